"""`shiplap init`: looks at an EKS cluster and writes the first files of an install that fit it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from shiplap.errors import AwsError, InvalidInput, InvalidManifests
from shiplap.manifests.files.documents import SUFFIXES, read_documents
from shiplap_cdk.install_document import MISSING_MANIFESTS, inspect_install
from shiplap_cdk.install_keys import LIVE
from shiplap_cdk.install_schema import SCHEMA_FILE, SCHEMA_LINE, schema_text
from shiplap_cdk.shipped_files import is_installed, rbac_manifests
from shiplap_cli.commands.init.install_files import (
    NEXT,
    SETTINGS,
    Choices,
    InstallFile,
    example_manifests,
    first_install,
)
from shiplap_cli.commands.init.surroundings import Client, ClusterSurroundings, clusters_of, look_around
from shiplap_cli.commands.init.told_surroundings import EndpointKind, told_surroundings
from shiplap_cli.hints import with_hint
from shiplap_cli.installs.find_install import aws_client
from shiplap_cli.output import FURTHER, Format, Output, Printed, ask, emit, progress, somebody_answers, yaml_text

_CAPACITY_TYPES = ("on-demand", "spot")


class InitDocument(Printed, frozen=True):
    """The output of the command: the cluster as it was found, and what was made of it.

    `surroundings` is null where shiplap.yaml was there and only what it needs beside it was written.
    """

    surroundings: ClusterSurroundings | None
    files: tuple[str, ...]
    remarks: tuple[str, ...]
    commands: tuple[str, ...]


def init(
    *,
    cluster: Annotated[str, typer.Option("--cluster", help="Name of the EKS cluster; asked for without.")] = "",
    region: Annotated[str, typer.Option("--region", help="Its Region; $AWS_REGION or the profile's without.")] = "",
    to: Annotated[Path, typer.Option("--to", help="Folder to write shiplap.yaml and manifests/ to.")] = Path(),
    capacity_types: Annotated[
        str, typer.Option("--capacity-types", help="What nodes may be bought as: on-demand, spot or on-demand,spot.")
    ] = "on-demand",
    node_role: Annotated[
        str, typer.Option("--node-role", help="An existing role for nodes; the stack makes one without.")
    ] = "",
    cpu_limit: Annotated[int, typer.Option("--cpu-limit", min=1, help="Most vCPUs of all nodes together.")] = 100,
    beside: Annotated[
        bool,
        typer.Option("--beside", help="Another autoscaler answers the same pods: leave all but chosen ones to it."),
    ] = False,
    aws: Annotated[
        bool,
        typer.Option("--aws/--no-aws", help="Ask AWS about the cluster; without, the options of networks tell."),
    ] = True,
    endpoint: Annotated[
        EndpointKind,
        typer.Option(
            "--endpoint", help="With --no-aws: from where the cluster's endpoint is reached.", rich_help_panel=FURTHER
        ),
    ] = EndpointKind.PUBLIC,
    subnets: Annotated[
        str,
        typer.Option(
            "--subnets",
            help="With --no-aws: private subnets, by commas; those with a tag without.",
            rich_help_panel=FURTHER,
        ),
    ] = "",
    security_group: Annotated[
        str,
        typer.Option(
            "--security-group", help="With --no-aws: the cluster's; those with a tag without.", rich_help_panel=FURTHER
        ),
    ] = "",
    arch: Annotated[
        str,
        typer.Option(
            "--arch",
            help="With --no-aws: what images are built for: amd64, arm64 or amd64,arm64.",
            rich_help_panel=FURTHER,
        ),
    ] = "amd64",
    force: Annotated[bool, typer.Option("--force", help="Write over files that are there.")] = False,
    output: Output = Format.TABLE,
) -> int:
    """Look at an EKS cluster and write shiplap.yaml, a NodePool and an EC2NodeClass that fit it.

    It changes nothing in the account or the cluster. It looks at the endpoint, the authentication mode, networks, node
    groups, and at instances and groups of other autoscalers. Exit code 2 for a question that could not be asked.

    With --no-aws it needs no credentials. Where shiplap.yaml is there, it writes only what that needs beside it and
    asks nothing: examples of manifests that it names and that do not exist, cdk.json, the RBAC manifests in docs, and
    the schema by which editors complete shiplap.yaml.

    Example: shiplap init --cluster production --region eu-west-1

    Example: shiplap init --no-aws --cluster production --region eu-west-1 --subnets subnet-0a1b2c3d,subnet-1a1b2c3d
    """
    told = {"--endpoint": endpoint is EndpointKind.PRIVATE, "--subnets": subnets, "--security-group": security_group}
    told["--arch"] = arch != "amd64"
    if aws and (odd := [name for name, value in told.items() if value]):
        raise InvalidInput(odd[0], "is asked of AWS: give --no-aws to tell it yourself")
    choices = Choices(
        capacity_types=_read_capacity_types(capacity_types),
        node_role=node_role,
        cpu_limit=cpu_limit,
        is_beside_another=beside,
    )
    if (to / SETTINGS).exists() and not (cluster or region or force or not aws):
        return _complete(to, choices, output)
    given = told_surroundings(cluster, region, endpoint, subnets, security_group, arch) if not aws else None
    found = given or _surroundings(cluster, region)
    made = first_install(found, choices)
    _write(to, made.files, force=force)
    files = [*(file.path for file in made.files), *_write_beside(to)]
    remarks = made.remarks if aws or beside else (*made.remarks, _UNASKED)
    document = InitDocument(found, tuple(str(to / path) for path in files), remarks, made.commands)
    emit(document, output, lambda: _view(document))
    return 0


def _complete(folder: Path, choices: Choices, output: Format) -> int:
    """Raises InvalidInput, InvalidManifests: what is wrong with shiplap.yaml is said before anything is written."""
    found = inspect_install(folder / SETTINGS)
    if others := [problem for problem in found.problems if not problem.reason.endswith(MISSING_MANIFESTS)]:
        raise InvalidManifests(others)
    examples = _examples(folder, choices) if found.problems else {}
    _write(folder, tuple(examples.values()), force=False)
    files = [*(file.path for file in examples.values()), *_write_beside(folder)]
    remarks = [
        f"{file.path} is an example for {cluster}, which was not looked at: read it"
        for cluster, file in examples.items()
    ]
    document = InitDocument(None, tuple(str(folder / path) for path in files), tuple(remarks), NEXT)
    emit(document, output, lambda: _view(document))
    return 0


def _examples(folder: Path, choices: Choices) -> dict[str, InstallFile]:
    """Manifests where shiplap.yaml names some that are not there; one file serves several clusters that name it."""
    (settings,) = read_documents(folder / SETTINGS)
    examples: dict[str, InstallFile] = {}
    for cluster in settings.data["clusters"]:
        name, path = cluster["name"], Path(cluster["manifests"])
        if cluster["manifests"] == LIVE or (folder / path).exists():
            continue
        file = path if path.suffix in SUFFIXES else path / "nodes.yaml"
        if str(file) not in {example.path for example in examples.values()}:
            told = told_surroundings(name, settings.data["region"], EndpointKind.PUBLIC, "", "", "amd64")
            examples[name] = example_manifests(str(file), told, choices)
    return examples


_UNASKED = "AWS was not asked: give --beside where another autoscaler launches nodes for this cluster"
_APP = """{
  "app": "python -m shiplap_cdk",
  "versionReporting": false,
  "notices": false
}
"""


def _write_beside(folder: Path) -> list[str]:
    """Write the schema of this version, and what a checkout has for the CDK and kubectl, unless it is there."""
    schema, text = folder / SCHEMA_FILE, schema_text()
    is_current = schema.exists() and schema.read_text(encoding="utf-8") == text
    if not is_current:
        schema.write_text(text, encoding="utf-8")
    return ([] if is_current else [SCHEMA_FILE]) + (_write_deployment(folder) if is_installed() else [])


def _write_deployment(folder: Path) -> list[str]:
    texts = {"cdk.json": _APP} | {f"docs/{path.name}": path.read_text() for path in rbac_manifests()}
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
        first_line = SCHEMA_LINE if file.path == SETTINGS else ""
        path.write_text(first_line + yaml_text(file.documents), encoding="utf-8")


def _view(document: InitDocument) -> Text:
    lines = [
        _seen(document.surroundings) if document.surroundings else f"{SETTINGS} is there and stays as it is",
        *(f"wrote {path}" for path in document.files),
        *(f"note: {remark}" for remark in document.remarks),
        "next:",
        *(f"  {command}" for command in document.commands),
    ]
    return Text("\n".join(lines))


def _seen(found: ClusterSurroundings) -> str:
    if not found.status:
        return f"{found.cluster} in {found.region}, as told"
    groups = ", ".join(group.name for group in found.node_groups) or "none"
    endpoint = "public" if found.is_open else "private" if not found.is_public else "public for some"
    return f"{found.cluster} in {found.region}: endpoint {endpoint}, node groups {groups}"
