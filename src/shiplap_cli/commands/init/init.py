"""`shiplap init`: looks at an EKS cluster and writes the first files of an install that fit it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from shiplap.errors import AwsError, InvalidInput
from shiplap_cdk.shipped_files import is_installed, shipped
from shiplap_cli.commands.init.install_files import Choices, InstallFile, first_install
from shiplap_cli.commands.init.surroundings import Client, ClusterSurroundings, clusters_of, look_around
from shiplap_cli.hints import with_hint
from shiplap_cli.installs.find_install import aws_client
from shiplap_cli.output import Format, Output, Printed, ask, emit, progress, somebody_answers, yaml_text

_CAPACITY_TYPES = ("on-demand", "spot")


class InitDocument(Printed, frozen=True):
    """The output of the command: the cluster as it was found, and what was made of it."""

    surroundings: ClusterSurroundings
    files: tuple[str, ...]
    remarks: tuple[str, ...]
    commands: tuple[str, ...]


def init(
    *,
    cluster: Annotated[str, typer.Option("--cluster", help="Name of the EKS cluster; asked for without.")] = "",
    region: Annotated[str, typer.Option("--region", help="Its Region; $AWS_REGION or the profile's without.")] = "",
    to: Annotated[Path, typer.Option("--to", help="Folder to write shiplap.yaml and manifests/ to.")] = Path(),
    capacity_types: Annotated[
        str, typer.Option("--capacity-types", help="What nodes may be bought as: on-demand, spot or both.")
    ] = "on-demand",
    node_role: Annotated[
        str, typer.Option("--node-role", help="An existing role for nodes; the stack makes one without.")
    ] = "",
    cpu_limit: Annotated[int, typer.Option("--cpu-limit", min=1, help="Most vCPUs of all nodes together.")] = 100,
    beside: Annotated[
        bool,
        typer.Option("--beside", help="Another autoscaler answers the same pods: leave all but chosen ones to it."),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Write over files that are there.")] = False,
    output: Output = Format.TABLE,
) -> int:
    """Look at an EKS cluster and write shiplap.yaml, a NodePool and an EC2NodeClass that fit it.

    It changes nothing in the account or the cluster. It looks at the endpoint, the authentication mode, networks, node
    groups, and at instances and groups of other autoscalers. Exit code 2 for a question that could not be asked.

    Example: shiplap init --cluster production --region eu-west-1
    """
    choices = Choices(
        capacity_types=_read_capacity_types(capacity_types),
        node_role=node_role,
        cpu_limit=cpu_limit,
        is_beside_another=beside,
    )
    found = _surroundings(cluster, region)
    made = first_install(found, choices)
    _write(to, made.files, force=force)
    files = [file.path for file in made.files] + (_write_deployment(to) if is_installed() else [])
    document = InitDocument(found, tuple(str(to / path) for path in files), made.remarks, made.commands)
    emit(document, output, lambda: _view(document))
    return 0


_DEPLOYMENT = ("docs/kustomization.yaml", "docs/rbac-cluster-manifests.yaml", "docs/rbac.yaml")
_APP = """{
  "app": "python -m shiplap_cdk",
  "versionReporting": false,
  "notices": false
}
"""


def _write_deployment(folder: Path) -> list[str]:
    """Write what a checkout has beside shiplap.yaml, for the CDK and kubectl; what is there stays as it is."""
    texts = {"cdk.json": _APP} | {name: shipped(name).read_text() for name in _DEPLOYMENT}
    missing = [name for name in sorted(texts) if not (folder / name).exists()]
    for name in missing:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(texts[name])
    return missing


def _read_capacity_types(text: str) -> tuple[str, ...]:
    wanted = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    for name in wanted:
        if name not in _CAPACITY_TYPES:
            raise InvalidInput("--capacity-types", f"{name!r} is neither on-demand nor spot")
    if not wanted:
        raise InvalidInput("--capacity-types", "names nothing; on-demand, spot, or on-demand,spot")
    return tuple(sorted(wanted))


def _surroundings(cluster: str, region: str) -> ClusterSurroundings:
    """Raises InvalidInput: AWS cannot be asked, or it is not known about which cluster."""
    try:
        client, region = _clients(region)
        with progress(f"looking at {region}") as report:
            name = cluster or _chosen(clusters_of(client), region)
            report(f"looking at {name}")
            return look_around(client, region, name)
    except AwsError as error:
        raise InvalidInput("AWS", with_hint(error)) from error


def _clients(region: str) -> tuple[Client, str]:
    """Raises InvalidInput: no Region is named; AwsError: the profile or the Region cannot be used."""
    from botocore.exceptions import BotoCoreError, NoRegionError  # noqa: PLC0415 - so that --help does not wait for botocore

    made: dict[str, object] = {}

    def client(service: str) -> object:
        if service not in made:
            made[service] = aws_client(service, region)
        return made[service]

    try:
        return client, client("eks").meta.region_name  # type: ignore[attr-defined]
    except NoRegionError as error:
        raise InvalidInput("--region", "is missing, and so is AWS_REGION: name the cluster's Region") from error
    except BotoCoreError as error:  # no such profile, or what is no Region
        raise AwsError(f"AWS cannot be asked: {error}") from error


def _chosen(names: Sequence[str], region: str) -> str:
    """Raises InvalidInput: there is no cluster, or nobody to choose one."""
    if not names:
        raise InvalidInput("--region", f"there is no EKS cluster in {region}")
    if len(names) == 1:
        return names[0]
    known = ", ".join(names)
    if not somebody_answers():
        raise InvalidInput("--cluster", f"name one of {known}")
    name = ask(f"Which cluster ({known})?")
    if name not in names:
        raise InvalidInput("--cluster", f"there is no EKS cluster {name!r} in {region}; there are {known}")
    return name


def _write(folder: Path, files: Sequence[InstallFile], *, force: bool) -> None:
    """Raises InvalidInput: a file is there already; OSError: it cannot be written."""
    there = [str(folder / file.path) for file in files if (folder / file.path).exists()]
    if there and not force:
        raise InvalidInput(there[0], "is there already; give another folder by --to, or write over it by --force")
    for file in files:
        path = folder / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml_text(file.documents), encoding="utf-8")


def _view(document: InitDocument) -> Text:
    found = document.surroundings
    groups = ", ".join(group.name for group in found.node_groups) or "none"
    endpoint = "public" if found.is_open else "private" if not found.is_public else "public for some"
    lines = [
        f"{found.cluster} in {found.region}: endpoint {endpoint}, node groups {groups}",
        *(f"wrote {path}" for path in document.files),
        *(f"note: {remark}" for remark in document.remarks),
        "next:",
        *(f"  {command}" for command in document.commands),
    ]
    return Text("\n".join(lines))
