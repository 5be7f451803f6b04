"""`shiplap install chart`: the Helm chart of the functions' permissions, for those who deploy to clusters with Helm."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from shiplap.errors import InvalidInput
from shiplap_cdk.install_document import ServedCluster, read
from shiplap_cdk.policy_document import documents
from shiplap_cdk.shipped_files import shipped
from shiplap_cli.commands.validate.judged_settings import SETTINGS
from shiplap_cli.output import Format, Output, Printed, counted, emit, yaml_text

_CHART = "charts/shiplap-cluster"


class ChartDocument(Printed, frozen=True):
    """The files written, and a command for each cluster of shiplap.yaml, or one without a shiplap.yaml."""

    files: tuple[str, ...]
    commands: tuple[str, ...]


def chart(
    *,
    settings: Annotated[
        Path | None,
        typer.Option(help="A shiplap.yaml whose clusters get values; that of this folder without.", show_default=False),
    ] = None,
    to: Annotated[Path, typer.Option(help="The folder to write to.")] = Path("shiplap-chart"),
    output: Output = Format.TABLE,
) -> int:
    """Write the Helm chart with the RBAC manifests, and the values of each cluster of shiplap.yaml.

    It takes the place of `kubectl apply -f docs/rbac.yaml`. Neither AWS nor a cluster is asked.

    Example: shiplap install chart --to charts/shiplap
    """
    if to.exists() and not to.is_dir():
        raise InvalidInput("--to", f"{str(to)!r} is a file: name a folder")
    found = settings or (Path(SETTINGS) if Path(SETTINGS).exists() else None)
    clusters = read(found).clusters if found is not None else ()
    written = _written(to, clusters)
    command = f"helm upgrade --install shiplap {to}"
    commands = [f"{command} --kube-context CONTEXT --values {to / _values(each.name)}" for each in clusters]
    document = ChartDocument(tuple(map(str, written)), tuple(commands or [command]))
    emit(document, output, lambda: _view(document, to, clusters))
    return 0


def _written(to: Path, clusters: tuple[ServedCluster, ...]) -> list[Path]:
    """Write over the chart's own files; what else the folder holds stays."""
    source = shipped(_CHART)
    files = []
    for path in sorted(path for path in source.rglob("*") if path.is_file()):
        file = to / path.relative_to(source)
        file.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, file)
        files.append(file)
    for cluster in clusters:
        file = to / _values(cluster.name)
        file.write_text(yaml_text([_values_of(cluster)]), encoding="utf-8")
        files.append(file)
    return files


def _values(cluster: str) -> str:
    return f"values-{cluster}.yaml"


def _values_of(cluster: ServedCluster) -> dict[str, Any]:
    """The values by which the chart fits a cluster."""
    on = cluster.settings.policies_on
    features = {_camel(name): True for name, document in documents() if document.rbac and name in on}
    values: dict[str, Any] = {"manifests": "files"}
    if cluster.document.reads_cluster:
        values = {"manifests": "cluster", "karpenterLease": cluster.document.karpenter_lease}
    return values | ({"features": features} if features else {})


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


def _view(document: ChartDocument, to: Path, clusters: tuple[ServedCluster, ...]) -> Text:
    lines = [f"wrote {to}, {counted(len(document.files), 'file')}"]
    if not clusters:
        lines.append(f"no {SETTINGS} here: write {to / 'values.yaml'} for each cluster, or name one by --settings")
    lines.append("next:")
    return Text("\n".join([*lines, *(f"  {command}" for command in document.commands)]))
