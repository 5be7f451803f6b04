"""What `shiplap plan`, `explain` and `disrupt` decide on: a cluster or files for it, manifests, a catalogue."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from shiplap.api.documents import Document
from shiplap.api.manifests import Report, check, inspect
from shiplap.api.types import EC2NodeClass, Manifests
from shiplap.cli.claim_rules import read_claim_rules
from shiplap.cli.hints import advised
from shiplap.cli.inputs import (
    ClusterState,
    for_unknown_ami,
    read_catalog,
    read_cluster_state,
    read_scheduler_config,
)
from shiplap.cli.install import Which, dev_access
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

if TYPE_CHECKING:
    from shiplap.cli.installed import Installed

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
    installed: Installed | None = None


class _Seen(msgspec.Struct, frozen=True):
    """A cluster, from files or asked, the settings that its catalogue is made with, and the install that serves it."""

    state: ClusterState
    cluster: ClusterSettings
    live: bool
    unseen: tuple[Unseen, ...] = ()
    installed: Installed | None = None


class _Supply(msgspec.Struct, frozen=True):
    """Types, and the EC2NodeClasses that AWS has answered."""

    catalog: Catalog
    resolved: dict[str, ResolvedNodeClass] = {}
    not_ready: dict[str, str] = {}
    notes: tuple[str, ...] = ()


_ALONE = Which()


def snapshot_of(sources: Sources) -> Snapshot:
    """Read everything a scheduling decision looks at. Raises InvalidInput for whatever cannot be used."""
    return read(sources).snapshot


def read(sources: Sources, which: Which = _ALONE, *, lax_budgets: bool = False) -> Reading:
    """As `snapshot_of`, with what else was read: standard input can be read only once.

    With `lax_budgets` a disruption budget that cannot be read is no error: the decision takes it as one of none.
    """
    return read_all(sources, [sources.manifests], which, lax_budgets=lax_budgets)[0]


def read_all(
    sources: Sources,
    manifests: Sequence[Sequence[Path] | None],
    which: Which = _ALONE,
    *,
    lax_budgets: bool = False,
) -> list[Reading]:
    """One reading of the cluster under each of several sets of manifests; None takes those of the install or cluster.

    Raises:
        InvalidInput: as `snapshot_of`.
    """
    _one_of("--prefix-delegation", sources.prefix_delegation, ("auto", "on", "off"))
    _one_of("--min-values-policy", sources.min_values_policy, ("Strict", "BestEffort"))
    _one_of("--preference-policy", sources.preference_policy, ("Respect", "Ignore"))
    moment = _moment(sources.now)
    given = {
        number: _manifests(paths, tolerate_missing_classes=sources.catalog is not None, lax_budgets=lax_budgets)
        for number, paths in enumerate(manifests)
        if paths
    }
    seen = _seen(sources, which, moment, own_manifests=len(given) < len(manifests))
    types = read_catalog(sources.catalog) if sources.catalog is not None else None
    learned = learned_file.read(sources.capacity) if sources.capacity is not None and types is None else None
    readings = []
    for number in range(len(manifests)):
        written = given.get(number) or _own_manifests(seen, sources, lax_budgets=lax_budgets)
        snapshot, notes = _snapshot(sources, seen, written, types, learned, moment)
        notes += tuple(seen.installed.notes) if seen.installed is not None else ()
        region = seen.cluster.region
        readings.append(Reading(snapshot, seen.state, seen.live, region, seen.unseen, notes, seen.installed))
    return readings


def _snapshot(
    sources: Sources,
    seen: _Seen,
    written: Manifests,
    types: tuple[InstanceType, ...] | None,
    learned: tuple[LearnedCapacity, ...] | None,
    moment: float,
) -> tuple[Snapshot, tuple[str, ...]]:
    """What is decided on under a set of manifests, and notes on it."""
    cluster = msgspec.structs.replace(seen.cluster, manifests=written)
    installed = seen.installed
    if installed is None:
        if types is not None:
            return _plain(seen, cluster, _given_catalogs(written, types), moment), ()
        supply = _supply(sources, seen, written)
        return _plain(seen, cluster, _catalogs(written, seen, supply, learned or ()), moment), supply.notes
    if learned is not None:
        installed = msgspec.structs.replace(installed, capacity=installed.capacity.given(learned))
    supply = _supply(sources, seen, written) if types is None else _Supply(embedded.load(seen.cluster.region))
    bought = installed.supply(
        supply.catalog, written.node_classes, supply.resolved, supply.not_ready, _shifted(seen, installed)
    )
    snapshot = installed.snapshot(cluster, seen.state.view, seen.state.claims, bought, moment)
    if types is not None:
        return msgspec.structs.replace(snapshot, catalogs=_given_catalogs(written, types)), ()
    unknown = {name for name, item in bought.node_classes.items() if item.resolved is None and not item.not_ready}
    others = _catalogs(written, seen, supply, installed.capacity.all() if unknown else (), unknown)
    known = [catalog for catalog in snapshot.catalogs if catalog.node_class not in unknown]
    catalogs = tuple(sorted([*known, *others], key=lambda catalog: catalog.node_class))
    return msgspec.structs.replace(snapshot, catalogs=catalogs), supply.notes


def _plain(seen: _Seen, cluster: ClusterSettings, catalogs: tuple[NodeClassCatalog, ...], moment: float) -> Snapshot:
    """The snapshot of a cluster that no install is asked about."""
    return Snapshot(
        cluster=cluster.name,
        now=moment,
        view=seen.state.view,
        claims=seen.state.claims,
        manifests=cluster.manifests,
        catalogs=catalogs,
        settings=SchedulingSettings(
            preference_policy=cluster.preference_policy,
            min_values_policy=cluster.min_values_policy,
            improve_s=cluster.improve_s,
            default_spread=cluster.pod_topology_spread.constraints(),
            claim_rules=cluster.claim_rules,
        ),
    )


def _seen(sources: Sources, which: Which, moment: float, *, own_manifests: bool) -> _Seen:
    """The files that were named, else the cluster of a context or of `shiplap dev`; the install before the cluster."""
    asked = bool(sources.context or sources.kubeconfig)
    if sources.cluster_state and asked:
        option = "--context" if sources.context else "--kubeconfig"
        raise InvalidInput(option, "asks a cluster, and --cluster-state stands for one; give one of them")
    installed = None
    if which.given:
        from shiplap.cli.installed import look_up  # noqa: PLC0415 - files need no AWS

        installed = look_up(which, moment)
    cluster = _settings(sources, installed)
    if sources.cluster_state:
        return _Seen(read_cluster_state(sources.cluster_state), cluster, live=False, installed=installed)
    from shiplap.cli.live import access_of, look  # noqa: PLC0415 - files need no client

    access = dev_access(which.cluster) if which.dev and not asked else access_of(sources.kubeconfig, sources.context)
    own = own_manifests and (installed is None or installed.settings is None)
    found = look(access, manifests=own, workloads=bool(cluster.pod_topology_spread.constraints()))
    of_install = installed.settings if installed is not None else None
    cluster = msgspec.structs.replace(
        cluster,
        name=installed.cluster if installed is not None and installed.cluster else found.access.context,
        region=sources.region or (of_install.region if of_install else found.region) or embedded.DEFAULT_REGION,
        endpoint=cluster.endpoint or found.access.server,
        kubernetes_version=cluster.kubernetes_version or found.kubernetes_version,
    )
    return _Seen(found.state, cluster, live=True, unseen=found.unseen, installed=installed)


_SETTINGS = {
    "vm_memory_overhead_percent": "vm_memory_overhead_percent",
    "reserved_enis": "reserved_enis",
    "prefix_delegation": "prefix_delegation",
    "min_values_policy": "min_values_policy",
    "preference_policy": "preference_policy",
    "improve_seconds": "improve_s",
}
"""Options by the setting of a cluster that they stand for."""


def _settings(sources: Sources, installed: Installed | None) -> ClusterSettings:
    """Those of the install, and over them what the options say otherwise than they do by themselves."""
    known = installed.settings if installed is not None else None
    if known is None:
        name = installed.cluster if installed is not None and installed.cluster else _FILES
        known = ClusterSettings(name=name, region=embedded.DEFAULT_REGION)
    usual = Sources()
    changes = {
        setting: getattr(sources, option)
        for option, setting in _SETTINGS.items()
        if getattr(sources, option) != getattr(usual, option)
    }
    if sources.region:
        changes["region"] = sources.region
    if sources.scheduler_config is not None:
        changes["pod_topology_spread"] = read_scheduler_config(sources.scheduler_config).pod_topology_spread
    if sources.claim_rules is not None:
        changes["claim_rules"] = read_claim_rules(sources.claim_rules)
    return msgspec.structs.replace(known, **changes)


def _own_manifests(seen: _Seen, sources: Sources, *, lax_budgets: bool) -> Manifests:
    """Those that the install was deployed with, which are what its functions decide by; else those of the cluster."""
    if seen.installed is not None and seen.installed.settings is not None:
        return seen.installed.settings.manifests
    return _of_cluster(seen, sources, lax_budgets=lax_budgets)


def _shifted(seen: _Seen, installed: Installed) -> frozenset[str]:
    """Zones that the install keeps out of."""
    if not seen.cluster.zonal_shift:
        return frozenset()
    from shiplap.cli.installed import shifted_zones  # noqa: PLC0415 - loads botocore

    return shifted_zones(installed, seen.cluster.region)


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
    region, installed = seen.cluster.region, seen.installed
    if sources.aws is False or (sources.aws is None and not seen.live and installed is None):
        said = f"embedded catalogue of {region}: prices are estimates, AMIs and subnets are not looked at"
        return _Supply(embedded.load(region), notes=(said,) if seen.live or installed is not None else ())
    from shiplap.cli.aws_supply import has_credentials, supply_of  # noqa: PLC0415 - loads botocore

    used = set(_class_names(manifests))
    node_classes = [item for item in manifests.node_classes if item.metadata.name in used]
    if sources.aws is None and not has_credentials():
        why = "there are no AWS credentials"
    else:
        try:
            found = supply_of(seen.cluster, node_classes, installed.catalog(region) if installed is not None else None)
            return _Supply(found.catalog, found.resolved, found.not_ready, found.notes)
        except AwsError as error:
            if sources.aws:
                hint = "see whether `aws sts get-caller-identity` is answered, or plan with --no-aws"
                raise InvalidInput("--aws", f"{error}; {hint}") from error
            why = advised(error)
    said = f"embedded catalogue of {region}, prices are estimates, AMIs and subnets are not looked at: {why}"
    return _Supply(embedded.load(region), notes=(said,))


def _catalogs(
    manifests: Manifests,
    seen: _Seen,
    supply: _Supply,
    learned: Sequence[LearnedCapacity],
    only: Collection[str] | None = None,
) -> tuple[NodeClassCatalog, ...]:
    """EC2's types under each EC2NodeClass, or only under some.

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
        if only is not None and name not in only:
            continue
        if name in supply.not_ready:
            catalogs.append(NodeClassCatalog(name, not_ready=supply.not_ready[name]))
            continue
        resolved = supply.resolved.get(name)
        applicable = learned if resolved is not None else for_unknown_ami(learned, _ami_ids(known[name]))
        try:
            types = instance_types(
                supply.catalog,
                known[name],
                setting,
                resolved=resolved,
                learned=applicable,
                unavailable=seen.installed.resting(supply.catalog) if seen.installed is not None else (),
            )
        except InvalidInput as error:  # as in a cluster: the pools of the other EC2NodeClasses go on
            catalogs.append(NodeClassCatalog(name, not_ready=error.what))
        else:
            selection = resolved.selection if resolved is not None else None
            catalogs.append(NodeClassCatalog(name, types, spec_hash=spec_hash(known[name]), selection=selection))
    return tuple(catalogs)


def _ami_ids(node_class: EC2NodeClass) -> list[str]:
    return [term.id for term in node_class.spec.ami_selector_terms if term.id]
