"""`shiplap migrate convert`: another autoscaler's configuration becomes Shiplap's, with a report and steps."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import msgspec
import typer

from shiplap.errors import InvalidInput
from shiplap.manifests.claim_rules import ClaimRule
from shiplap.manifests.files.documents import STDIN, Document, read_documents
from shiplap.manifests.files.manifest_folders import unapplied_kustomizations
from shiplap_cli.commands.migrate.migration import migrate
from shiplap_cli.commands.migrate.migration_findings import (
    MatchQuality,
    Migration,
    MigrationFinding,
    MigrationStep,
    Naming,
    counts_by_match,
)
from shiplap_cli.commands.migrate.migration_page import MigrationCost, migration_page, report_text
from shiplap_cli.output import Format, Output, Printed, emit, yaml_text

_CLASSES, _POOLS = "ec2nodeclasses.yaml", "nodepools.yaml"
_REPORT = "MIGRATION.md"


def convert(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Karpenter's objects, or AWS's answers about groups with Cluster Autoscaler's Deployment and expander"
            " ConfigMap: files, folders, or - for standard input."
        ),
    ] = None,
    to: Annotated[Path | None, typer.Option("--to", help="Folder to write manifests, settings and report to.")] = None,
    cluster: Annotated[str, typer.Option("--cluster", help="Name of the EKS cluster, where no file says it.")] = "",
    from_aws: Annotated[
        bool, typer.Option("--from-aws", help="Ask AWS about the node groups and Auto Scaling groups of --cluster.")
    ] = False,
    region: Annotated[str, typer.Option("--region", help="Region to ask, and of the dry run's prices.")] = "",
    cluster_state: Annotated[
        list[Path] | None,
        typer.Option("--cluster-state", help="The cluster's objects: habits of its pods, and a dry run of them."),
    ] = None,
    suffix: Annotated[str, typer.Option("--suffix", help="Ends the names of the new NodePools.")] = "-shiplap",
    taint: Annotated[
        bool, typer.Option("--taint/--no-taint", help="Keep all but chosen pods off the new pools at first.")
    ] = True,
    output: Output = Format.TABLE,
) -> int:
    """Write NodePools, EC2NodeClasses, claim rules and a report from what another autoscaler is configured with.

    Nothing is changed in the cluster or the account. Exit code 0 when everything maps, 1 when something does not.

    Example: kubectl get nodepools,ec2nodeclasses -o yaml | shiplap migrate convert - --to manifests
    """
    if from_aws and not cluster:
        raise InvalidInput("--from-aws", "needs --cluster, the name of the EKS cluster whose groups are asked for")
    if not files and not from_aws:
        raise InvalidInput("migrate convert", "needs files, - for standard input, or --from-aws --cluster NAME")
    if STDIN in (files or ()) and STDIN in (cluster_state or ()):
        raise InvalidInput("-", "standard input can be read once: give --cluster-state or the configuration as a file")
    documents = [document for path in files or () for document in read_documents(path)]
    if from_aws:
        from shiplap_cli.commands.migrate.aws_groups import documents_of  # noqa: PLC0415 - botocore is slow to import

        documents += documents_of(cluster, region)
    naming = Naming(suffix, taint)
    region = region or _region_of(documents)
    given = _given(files or (), from_aws=from_aws, cluster=cluster, region=region, suffix=suffix)
    migration = migrate(documents, naming, cluster=cluster, folder=str(to or "manifests"), given=given)
    unapplied = [
        MigrationFinding(MatchQuality.NONE, Path(warning.source).name, "kustomization", note=warning.reason)
        for warning in unapplied_kustomizations(documents)
    ]
    migration = msgspec.structs.replace(migration, findings=(*migration.findings, *unapplied))
    cost = None
    if cluster_state:
        migration = msgspec.structs.replace(
            migration, findings=(*migration.findings, *_habits(cluster_state, migration))
        )
        cost = _migration_cost(documents, naming, cluster, cluster_state, region)
    if to is not None:
        _write(to, migration, cost, region)
    emit(_document(migration, cost), output, lambda: migration_page(migration, cost, to))
    return 1 if counts_by_match(migration.findings)["not mapped"] or (cost is not None and cost.left_out) else 0


def _habits(paths: Sequence[Path], migration: Migration) -> tuple[MigrationFinding, ...]:
    from shiplap_cli.commands.migrate.workload_findings import with_local_storage, workload_findings  # noqa: PLC0415
    from shiplap_cli.inputs.cluster_files import read_cluster_state  # noqa: PLC0415 - not needed without --cluster-state

    state = read_cluster_state(paths)
    raw = () if STDIN in paths else (document for path in paths for document in read_documents(path))
    return workload_findings(
        state.view.pods,
        state.view.nodes,
        state.pod_disruption_budgets,
        from_autoscaler=migration.origin != "Karpenter",
        local=with_local_storage(raw),
        renamed={former.name: former.becomes for former in migration.formers},
    )


_REGION = re.compile(r'"(?:arn:aws[a-z-]*:[a-z0-9-]+:)?([a-z]{2}(?:-[a-z]+)+-[0-9])(?:[a-z]"|:)')


def _region_of(documents: Sequence[Document]) -> str:
    """The Region of the zones and ARNs in the input; empty where none or several are named."""
    found = {
        region for document in documents for region in _REGION.findall(msgspec.json.encode(document.data).decode())
    }
    return found.pop() if len(found) == 1 else ""


def _given(files: Sequence[Path], *, from_aws: bool, cluster: str, region: str, suffix: str) -> str:
    """The arguments that convert the same again; standard input needs a file the second time."""
    words = [str(path) if path != STDIN else "FILE" for path in files]
    words += ["--from-aws"] if from_aws else []
    for name, value in (("--cluster", cluster), ("--region", region)):
        words += [name, value] if value else []
    return shlex.join([*words, f"--suffix={suffix}"])


def _migration_cost(
    documents: Sequence[Document], naming: Naming, cluster: str, state: Sequence[Path], region: str
) -> MigrationCost:
    """Plan all present pods on the new pools, without the taint that keeps them off at first."""
    from shiplap_cli.commands.migrate.migration_cost import cost_of_migration  # noqa: PLC0415 - numpy is slow to import

    bare = migrate(documents, msgspec.structs.replace(naming, taint=False), cluster=cluster)
    with TemporaryDirectory() as folder:
        place = Path(folder) / "manifests.yaml"
        place.write_text(yaml_text(bare.manifests), encoding="utf-8")
        return cost_of_migration(place, state, region)


def _write(folder: Path, migration: Migration, cost: MigrationCost | None, region: str) -> None:
    """Raises InvalidInput: the folder holds something already; OSError: it cannot be written."""
    names = (_CLASSES, _POOLS, _REPORT)
    there = [name for name in names if (folder / name).exists()]
    if there:
        raise InvalidInput(str(folder / there[0]), "is there already; give another folder, or move it away")
    folder.mkdir(parents=True, exist_ok=True)
    classes = [body for body in migration.manifests if body["kind"] == "EC2NodeClass"]
    (folder / _CLASSES).write_text(yaml_text(classes), encoding="utf-8")
    others = [body for body in migration.manifests if body["kind"] != "EC2NodeClass"]
    (folder / _POOLS).write_text(yaml_text(others), encoding="utf-8")
    (folder / _REPORT).write_text(
        report_text(migration, cost, _settings_text(migration, region, folder)), encoding="utf-8"
    )


def _settings_text(migration: Migration, region: str, folder: Path) -> str:
    """The settings for a shiplap.yaml in the working directory: the Region, and the cluster's entry."""
    asked = {key: value for key, value in msgspec.to_builtins(_settings(migration)).items() if value}
    entry = {"name": migration.cluster, "manifests": folder.as_posix(), **asked}
    return msgspec.yaml.encode({"region": region or "REGION", "clusters": [entry]}).decode()


def _settings(migration: Migration) -> MigratedSettings:
    specs = [body["spec"] for body in migration.manifests if body["kind"] == "EC2NodeClass"]
    profiles = sorted({spec["instanceProfile"] for spec in specs if spec.get("instanceProfile")})
    roles = tuple(f"<role of instance profile {profile}>" for profile in profiles)
    return MigratedSettings(migration.claim_rules, roles, migration.join_timeout_s or None)


class MigratedSettings(Printed, frozen=True):
    """What the cluster's entry in shiplap.yaml gets; the roles of instance profiles are the user's to fill in."""

    claim_rules: tuple[ClaimRule, ...]
    node_roles: tuple[str, ...]
    join_timeout_s: int | None = msgspec.field(name="joinTimeoutSeconds")


class MigrationDocument(Printed, frozen=True, kw_only=True):
    """The output of the command; `dry_run` is there with --cluster-state."""

    origin: str = msgspec.field(name="from")
    cluster: str
    manifests: tuple[dict[str, Any], ...]
    settings: MigratedSettings
    findings: tuple[MigrationFinding, ...]
    summary: dict[str, int]
    steps: tuple[MigrationStep, ...]
    dry_run: MigrationCost | None


def _document(migration: Migration, cost: MigrationCost | None) -> MigrationDocument:
    return MigrationDocument(
        origin=migration.origin,
        cluster=migration.cluster,
        manifests=tuple(dict(each) for each in migration.manifests),
        settings=_settings(migration),
        findings=migration.findings,
        summary=dict(counts_by_match(migration.findings)),
        steps=migration.steps,
        dry_run=cost,
    )
