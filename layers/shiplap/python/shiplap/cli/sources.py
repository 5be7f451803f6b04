"""What `shiplap plan`, `explain` and `disrupt` decide on: a cluster or files for it, manifests, a catalogue."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from shiplap.api.documents import Document
from shiplap.api.manifests import Report, check, inspect
from shiplap.api.scheduler_config import SchedulerConfig
from shiplap.api.types import EC2NodeClass, Manifests
from shiplap.cli.claim_rules import read_claim_rules
from shiplap.cli.inputs import (
    ClusterState,
    for_unknown_ami,
    read_catalog,
    read_cluster_state,
    read_scheduler_config,
)
from shiplap.cli.options import Sources
from shiplap.cluster.survey import Unseen
from shiplap.errors import AwsError, InvalidInput, InvalidManifests
from shiplap.instances import embedded, learned_file
from shiplap.instances.catalog import Catalog
from shiplap.instances.families import spec_hash
from shiplap.instances.nodeclass import ResolvedNodeClass
from shiplap.instances.resolve import instance_types
from shiplap.instances.setting import from_cluster
from shiplap.instances.types import InstanceType, LearnedCapacity
from shiplap.kubernetes.timestamps import epoch
from shiplap.scheduling.snapshot import NodeClassCatalog, SchedulingSettings, Snapshot
from shiplap.settings import ClusterSettings

_BUDGET = re.compile(r"spec\.disruption\.budgets\[\d+\](\.(nodes|schedule|duration))?")
"""What of a budget may be unreadable: the decision then blocks every disruption of the pool, and says so."""

_NODE_CLASS_FIELD = "spec.template.spec.nodeClassRef.name"
_FILES = "files"


class Reading(msgspec.Struct, frozen=True):
    """What a decision is made on. `unseen` and `notes` say in which way it may differ from the cluster's truth.

    `live` when a cluster was asked; `region` is where prices are of.
    """

    snapshot: Snapshot
    state: ClusterState
    live: bool = False
    region: str = embedded.DEFAULT_REGION
    unseen: tuple[Unseen, ...] = ()
    notes: tuple[str, ...] = ()


class _Seen(msgspec.Struct, frozen=True):
    """A cluster, from files or asked, and the settings that its catalogue is made with."""

    state: ClusterState
    cluster: ClusterSettings
    live: bool
    unseen: tuple[Unseen, ...] = ()


class _Supply(msgspec.Struct, frozen=True):
    """Types, and the EC2NodeClasses that AWS has answered."""

    catalog: Catalog
    resolved: dict[str, ResolvedNodeClass] = {}
    not_ready: dict[str, str] = {}
    notes: tuple[str, ...] = ()


def snapshot_of(sources: Sources) -> Snapshot:
    """Read everything a scheduling decision looks at. Raises InvalidInput for whatever cannot be used."""
    return read(sources).snapshot


def read(sources: Sources, *, lax_budgets: bool = False) -> Reading:
    """As `snapshot_of`, with what else was read: standard input can be read only once.

    With `lax_budgets` a disruption budget that cannot be read is no error: the decision takes it as one of none.
    """
    return read_all(sources, [sources.manifests], lax_budgets=lax_budgets)[0]


def read_all(
    sources: Sources, manifests: Sequence[Sequence[Path] | None], *, lax_budgets: bool = False
) -> list[Reading]:
    """One reading of the cluster under each of several sets of manifests; None takes those of the cluster.

    Raises:
        InvalidInput: as `snapshot_of`.
    """
    _one_of("--prefix-delegation", sources.prefix_delegation, ("auto", "on", "off"))
    _one_of("--min-values-policy", sources.min_values_policy, ("Strict", "BestEffort"))
    _one_of("--preference-policy", sources.preference_policy, ("Respect", "Ignore"))
    config = sources.scheduler_config
    spread = read_scheduler_config(config) if config is not None else SchedulerConfig()
    rules = read_claim_rules(sources.claim_rules) if sources.claim_rules is not None else ()
    settings = SchedulingSettings(
        preference_policy=sources.preference_policy,
        min_values_policy=sources.min_values_policy,
        improve_s=sources.improve_seconds,
        default_spread=spread.pod_topology_spread.constraints(),
        claim_rules=rules,
    )
    moment = _moment(sources.now)
    given = {
        number: _manifests(paths, tolerate_missing_classes=sources.catalog is not None, lax_budgets=lax_budgets)
        for number, paths in enumerate(manifests)
        if paths
    }
    seen = _seen(sources, own_manifests=len(given) < len(manifests), workloads=bool(settings.default_spread))
    types = read_catalog(sources.catalog) if sources.catalog is not None else None
    learned = learned_file.read(sources.capacity) if sources.capacity is not None and types is None else ()
    readings = []
    for number in range(len(manifests)):
        written = given.get(number) or _of_cluster(seen, sources, lax_budgets=lax_budgets)
        notes: tuple[str, ...] = ()
        if types is not None:
            catalogs = _given_catalogs(written, types)
        else:
            supply = _supply(sources, seen, written)
            catalogs, notes = _catalogs(written, seen, supply, learned), supply.notes
        snapshot = Snapshot(
            cluster=seen.cluster.name,
            now=moment,
            view=seen.state.view,
            claims=seen.state.claims,
            manifests=written,
            catalogs=catalogs,
            settings=settings,
        )
        readings.append(Reading(snapshot, seen.state, seen.live, seen.cluster.region, seen.unseen, notes))
    return readings


def _seen(sources: Sources, *, own_manifests: bool, workloads: bool) -> _Seen:
    """The files that were named, else the cluster of a context."""
    cluster = ClusterSettings(
        name=_FILES,
        region=sources.region or embedded.DEFAULT_REGION,
        vm_memory_overhead_percent=sources.vm_memory_overhead_percent,
        reserved_enis=sources.reserved_enis,
        prefix_delegation=sources.prefix_delegation,
    )
    asked = bool(sources.context or sources.kubeconfig)
    if sources.cluster_state:
        if asked:
            option = "--context" if sources.context else "--kubeconfig"
            raise InvalidInput(option, "asks a cluster, and --cluster-state stands for one; give one of them")
        return _Seen(read_cluster_state(sources.cluster_state), cluster, live=False)
    from shiplap.cli.live import look  # noqa: PLC0415 - files need no client

    found = look(sources.kubeconfig, sources.context, manifests=own_manifests, workloads=workloads)
    cluster = msgspec.structs.replace(
        cluster,
        name=found.access.context,
        region=sources.region or found.region or embedded.DEFAULT_REGION,
        endpoint=found.access.server,
        kubernetes_version=found.kubernetes_version,
    )
    return _Seen(found.state, cluster, live=True, unseen=found.unseen)


def _one_of(option: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise InvalidInput(option, f"{value!r} is none of {', '.join(allowed)}")


def _moment(text: str | None) -> float:
    if text is None:
        return time.time()
    try:
        return epoch(text)
    except ValueError as error:
        raise InvalidInput("--now", f"expected a time such as 2026-01-31T12:00:00Z: {error}") from error


def _of_cluster(seen: _Seen, sources: Sources, *, lax_budgets: bool) -> Manifests:
    """The manifests that stand among the cluster's objects."""
    documents: Sequence[Document] = seen.state.manifests
    if not any(document.data.get("kind") == "NodePool" for document in documents):
        where = f"context {seen.cluster.name}" if seen.live else "the cluster state"
        raise InvalidInput("--manifests", f"is missing, and {where} holds no NodePool; give files or folders with some")
    return _sound(check(documents), tolerate_missing_classes=sources.catalog is not None, lax_budgets=lax_budgets)


def _manifests(paths: Sequence[Path], *, tolerate_missing_classes: bool, lax_budgets: bool) -> Manifests:
    """Manifests without problems. With a catalogue file an EC2NodeClass is only a name, so it need not be there."""
    found = _sound(inspect(paths), tolerate_missing_classes=tolerate_missing_classes, lax_budgets=lax_budgets)
    if not found.node_pools:
        raise InvalidInput(", ".join(map(str, paths)), "there is no NodePool among the manifests")
    return found


def _sound(report: Report, *, tolerate_missing_classes: bool, lax_budgets: bool) -> Manifests:
    problems = [
        problem
        for problem in report.problems
        if not (tolerate_missing_classes and problem.field == _NODE_CLASS_FIELD and "there is no" in problem.reason)
        if not (lax_budgets and _BUDGET.fullmatch(problem.field))
    ]
    if problems:
        raise InvalidManifests(problems)
    return report.manifests


def _class_names(manifests: Manifests) -> list[str]:
    return sorted({pool.spec.template.spec.node_class_ref.name for pool in manifests.node_pools})


def _given_catalogs(manifests: Manifests, types: tuple[InstanceType, ...]) -> tuple[NodeClassCatalog, ...]:
    hashes = {item.metadata.name: spec_hash(item) for item in manifests.node_classes}
    return tuple(NodeClassCatalog(name, types, spec_hash=hashes.get(name, "")) for name in _class_names(manifests))


def _supply(sources: Sources, seen: _Seen, manifests: Manifests) -> _Supply:
    """What can be bought: asked of AWS when that is wanted or possible, else the embedded catalogue.

    Raises:
        InvalidInput: AWS was to be asked and does not answer, or the region is not known.
    """
    region = seen.cluster.region
    if sources.aws is False or (sources.aws is None and not seen.live):
        said = f"embedded catalogue of {region}: prices are estimates, AMIs and subnets are not looked at"
        return _Supply(embedded.load(region), notes=(said,) if seen.live else ())
    from shiplap.cli.aws_supply import has_credentials, supply_of  # noqa: PLC0415 - loads botocore

    used = set(_class_names(manifests))
    node_classes = [item for item in manifests.node_classes if item.metadata.name in used]
    if sources.aws is None and not has_credentials():
        why = "there are no AWS credentials"
    else:
        try:
            found = supply_of(seen.cluster, node_classes)
            return _Supply(found.catalog, found.resolved, found.not_ready, found.notes)
        except AwsError as error:
            if sources.aws:
                hint = "see whether `aws sts get-caller-identity` is answered, or plan with --no-aws"
                raise InvalidInput("--aws", f"{error}; {hint}") from error
            why = str(error)
    said = f"embedded catalogue of {region}, prices are estimates, AMIs and subnets are not looked at: {why}"
    return _Supply(embedded.load(region), notes=(said,))


def _catalogs(
    manifests: Manifests, seen: _Seen, supply: _Supply, learned: Sequence[LearnedCapacity]
) -> tuple[NodeClassCatalog, ...]:
    """EC2's types under each EC2NodeClass.

    Raises:
        InvalidInput: a NodePool names an EC2NodeClass that is not among the manifests.
    """
    setting = from_cluster(seen.cluster, seen.state.view.daemon_sets)
    known = {item.metadata.name: item for item in manifests.node_classes}
    catalogs = []
    for name in _class_names(manifests):
        if name not in known:
            pool = next(p for p in manifests.node_pools if p.spec.template.spec.node_class_ref.name == name)
            reason = f"there is no EC2NodeClass {name!r} among the manifests; give it, or a --catalog"
            raise InvalidInput("manifests", reason, document=f"NodePool/{pool.metadata.name}", field=_NODE_CLASS_FIELD)
        if name in supply.not_ready:
            catalogs.append(NodeClassCatalog(name, not_ready=supply.not_ready[name]))
            continue
        resolved = supply.resolved.get(name)
        applicable = learned if resolved is not None else for_unknown_ami(learned, _ami_ids(known[name]))
        try:
            types = instance_types(
                supply.catalog, known[name], setting, resolved=resolved, learned=applicable, unavailable=()
            )
        except InvalidInput as error:  # as in a cluster: the pools of the other EC2NodeClasses go on
            catalogs.append(NodeClassCatalog(name, not_ready=str(error)))
        else:
            selection = resolved.selection if resolved is not None else None
            catalogs.append(NodeClassCatalog(name, types, spec_hash=spec_hash(known[name]), selection=selection))
    return tuple(catalogs)


def _ami_ids(node_class: EC2NodeClass) -> list[str]:
    return [term.id for term in node_class.spec.ami_selector_terms if term.id]
