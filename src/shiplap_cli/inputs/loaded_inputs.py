"""The inputs of `shiplap plan`, `explain` and `disrupt`: a cluster or files for it, manifests, a catalogue."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from shiplap.errors import InvalidInput, InvalidManifests
from shiplap.flows.live_settings import AS_DEPLOYED, ManifestState, state_of_ages
from shiplap.flows.planning.decision_inputs import DecisionInputs
from shiplap.flows.planning.decision_snapshots import snapshot_of
from shiplap.instances.catalog.type_catalog import InstanceType, LearnedCapacity
from shiplap.kubernetes import labels
from shiplap.kubernetes.timestamps import epoch
from shiplap.manifests.custom_resources import Manifests
from shiplap.manifests.files.documents import Document
from shiplap.manifests.files.loading import ManifestReport, check_documents, inspect_files, no_manifest
from shiplap.manifests.files.manifest_folders import unapplied_kustomizations
from shiplap.manifests.validation.live_objects import check_live_object, live_manifests, own_objects
from shiplap.ports import DecisionState
from shiplap.scheduling.model.scheduling_plan import Plan
from shiplap.scheduling.model.snapshot import Snapshot
from shiplap.scheduling.planner import plan
from shiplap_cli.inputs.catalog_file import read_catalog_file
from shiplap_cli.inputs.cluster_files import ClusterState
from shiplap_cli.inputs.cluster_inputs import ClusterInputs, read_cluster_inputs
from shiplap_cli.inputs.cluster_listing import MissingPermission
from shiplap_cli.inputs.instance_supply import (
    NODE_CLASS_FIELD,
    InstanceSupply,
    catalogs_of,
    catalogs_of_file,
    embedded_supply,
    supply_of,
    used_node_classes,
    with_assumed_node_classes,
)
from shiplap_cli.inputs.learned import learned_file
from shiplap_cli.inputs.missing_storage import notes_of_waiting_pods
from shiplap_cli.installs.find_install import InstallOptions
from shiplap_cli.options import Sources
from shiplap_cli.output import counted, note, summary
from shiplap_cli.policy_views import as_asked_by

if TYPE_CHECKING:
    from shiplap_cli.installs.installed import InstalledCluster
    from shiplap_cli.installs.installed_decision import InstalledDecision

_BUDGET = re.compile(r"spec\.disruption\.budgets\[\d+\](\.(nodes|schedule|duration))?")
"""Fields of a budget that may be unreadable: the decision then blocks every disruption of the pool, and says so."""


class LoadedInputs(msgspec.Struct, frozen=True):
    """The inputs of a decision."""

    snapshot: Snapshot
    """The inputs of a plan."""

    state: ClusterState
    """The cluster as it was listed or as files have it."""

    live: bool = False
    """True if a cluster was asked."""

    region: str = ""
    """The Region of prices and zones; empty where a catalogue file gives them."""

    unseen: tuple[MissingPermission, ...] = ()
    """Rights that were missing, so that the inputs may differ from the cluster's truth."""

    notes: tuple[str, ...] = ()
    """What else the inputs may differ by."""

    decision: InstalledDecision | None = None
    """What the functions of an install decide by; None where no install was asked."""

    def decided(self) -> tuple[Snapshot, Plan]:
        """The plan, and the snapshot that it is made of: an install's without what its schedule function leaves out.

        Raises InvalidInput as `planner.plan`.
        """
        if self.decision is not None:
            return self.decision.decided(self.snapshot)
        return self.snapshot, plan(self.snapshot)


_NO_INSTALL = InstallOptions()


def load_inputs(sources: Sources, which: InstallOptions = _NO_INSTALL, *, lax_budgets: bool = False) -> LoadedInputs:
    """Read everything a decision looks at, once: standard input cannot be read again.

    With `lax_budgets` a disruption budget that cannot be read is no error: the decision takes it as one of none.

    Raises:
        InvalidInput: a source cannot be used.
    """
    return load_inputs_per_manifests(sources, [sources.manifests], which, lax_budgets=lax_budgets)[0]


def load_inputs_per_manifests(
    sources: Sources,
    manifests: Sequence[Sequence[Path] | None],
    which: InstallOptions = _NO_INSTALL,
    *,
    lax_budgets: bool = False,
) -> list[LoadedInputs]:
    """One reading of the cluster under each of several sets of manifests; None takes those of the install or cluster.

    Raises:
        InvalidInput: a source cannot be used.
    """
    _one_of("--prefix-delegation", sources.prefix_delegation, ("auto", "on", "off"))
    _one_of("--min-values-policy", sources.min_values_policy, ("Strict", "BestEffort"))
    _one_of("--preference-policy", sources.preference_policy, ("Respect", "Ignore"))
    moment = _decision_time(sources.now)
    given = {
        number: _manifests_of_files(
            paths, tolerate_missing_classes=sources.catalog is not None, lax_budgets=lax_budgets
        )
        for number, paths in enumerate(manifests)
        if paths
    }
    cluster_inputs = read_cluster_inputs(sources, which, moment, own_manifests=len(given) < len(manifests))
    types = read_catalog_file(sources.catalog) if sources.catalog is not None else None
    learned = learned_file.read_learned(sources.capacity) if sources.capacity is not None and types is None else None
    loaded = []
    for number in range(len(manifests)):
        written, state = given.get(number), AS_DEPLOYED
        if written is None:
            written, state = _own_manifests(cluster_inputs, sources, moment, lax_budgets=lax_budgets)
        supply = supply_of(sources, cluster_inputs, written) if types is None else None
        assumed: tuple[str, ...] = ()
        if supply is not None and cluster_inputs.installed is None:  # an install knows its EC2NodeClasses
            written, assumed = with_assumed_node_classes(written)
        snapshot, decision = _snapshot(cluster_inputs, written, types, supply, learned, state, moment)
        notes = (*assumed, *_notes(cluster_inputs, supply))
        region = supply.catalog.region if supply is not None else ""
        loaded.append(
            LoadedInputs(
                snapshot,
                cluster_inputs.state,
                cluster_inputs.live,
                region,
                cluster_inputs.unseen,
                notes,
                decision,
            )
        )
    return loaded


def _notes(cluster_inputs: ClusterInputs, supply: InstanceSupply | None) -> tuple[str, ...]:
    """The assumptions of a decision, a line each."""
    assumed = (cluster_inputs.region_assumed,) if supply is not None and cluster_inputs.region_assumed else ()
    others = (
        tuple(cluster_inputs.installed.notes) if cluster_inputs.installed is not None else _install_hint(cluster_inputs)
    )
    of_supply = supply.notes if supply is not None else ()
    cluster, view = cluster_inputs.cluster, cluster_inputs.state.view
    of_storage = () if cluster_inputs.live else notes_of_waiting_pods(view, cluster.claim_rules)
    return (*assumed, *of_supply, *_notes_of_workloads(cluster_inputs), *of_storage, *others)


def _notes_of_workloads(cluster_inputs: ClusterInputs) -> Iterator[str]:
    added = cluster_inputs.state.added
    if added:
        total, listed = sum(number for _, number in added), summary([f"{number} of {name}" for name, number in added])
        yield f"{counted(total, 'pod')} with + in the name will be made by workloads: {listed}"
    for kind, number in cluster_inputs.state.passed_over:
        yield f"pods of {counted(number, kind)} are not planned: their kind is not read"
    if cluster_inputs.state.suspended:
        yield f"pods of suspended workloads are not planned: {summary(cluster_inputs.state.suspended)}"
    yield from cluster_inputs.state.doubts


def _snapshot(
    cluster_inputs: ClusterInputs,
    written: Manifests,
    types: tuple[InstanceType, ...] | None,
    supply: InstanceSupply | None,
    learned: tuple[LearnedCapacity, ...] | None,
    manifest_state: ManifestState,
    moment: float,
) -> tuple[Snapshot, InstalledDecision | None]:
    """The snapshot under a set of manifests, and the decision of an install; `types` or a `supply` is given."""
    cluster = msgspec.structs.replace(cluster_inputs.cluster, manifests=written)
    installed = cluster_inputs.installed
    if installed is None:
        inputs = DecisionInputs(
            moment, DecisionState(0, tuple(cluster_inputs.state.claims)), cluster_inputs.state.view, frozenset()
        )
        of_features = cluster_inputs.state.of_features
        if supply is None:
            of_file = catalogs_of_file(written, types or ())
            return as_asked_by(snapshot_of(cluster, inputs, of_file), of_features), None
        sold = catalogs_of(written, cluster_inputs, supply, learned or ())
        return as_asked_by(snapshot_of(cluster, inputs, sold), of_features), None
    if learned is not None:
        installed = msgspec.structs.replace(installed, capacity=installed.capacity.given(learned))
    from shiplap_cli.installs.installed_decision import installed_decision  # noqa: PLC0415 - files need no install

    supply = supply or embedded_supply(cluster_inputs)
    used = used_node_classes(written)
    bought = installed.supply(
        supply.catalog,
        [node_class for node_class in written.node_classes if node_class.metadata.name in used],
        supply.resolved,
        supply.not_ready,
        _shifted_zones(cluster_inputs, installed),
    )
    state = cluster_inputs.state
    decision = installed_decision(
        installed, cluster, state.view, state.claims, bought, manifest_state, state.of_features
    )
    snapshot = decision.snapshot
    if types is not None:
        return msgspec.structs.replace(snapshot, catalogs=catalogs_of_file(written, types)), decision
    unknown = {name for name, item in bought.node_classes.items() if item.resolved is None and not item.not_ready}
    others = catalogs_of(written, cluster_inputs, supply, installed.capacity.all() if unknown else (), unknown)
    known = [catalog for catalog in snapshot.catalogs if catalog.node_class not in unknown]
    catalogs = tuple(sorted([*known, *others], key=lambda catalog: catalog.node_class))
    return msgspec.structs.replace(snapshot, catalogs=catalogs), decision


def _install_hint(cluster_inputs: ClusterInputs) -> tuple[str, ...]:
    """Nodes of pools without any NodeClaim are most likely an install's, whose tables were not looked at."""
    pooled = any(labels.NODE_POOL in node.metadata.labels for node in cluster_inputs.state.view.nodes)
    if (
        not cluster_inputs.live
        or not pooled
        or cluster_inputs.state.claims
        or any(permission.resource == "nodeclaims" for permission in cluster_inputs.unseen)
    ):
        return ()
    return (
        "nodes of NodePools, but no NodeClaims: if an install of Shiplap serves this cluster, name it by --cluster, so "
        "that its claims on their way, settings and learned capacity count",
    )


def _own_manifests(
    cluster_inputs: ClusterInputs, sources: Sources, moment: float, *, lax_budgets: bool
) -> tuple[Manifests, ManifestState]:
    """The manifests that the install decides by, else those of the cluster, and their state."""
    installed = cluster_inputs.installed
    settings = installed.settings if installed is not None else None
    if installed is None or settings is None:
        return _manifests_in_cluster(cluster_inputs, sources, lax_budgets=lax_budgets), AS_DEPLOYED
    if not settings.live_manifests:
        return settings.manifests, AS_DEPLOYED
    found = own_objects(document.data for document in cluster_inputs.state.manifests)
    # As its functions read them: what is wrong is left out.
    live = live_manifests(check_live_object(item, settings.allowed) for item in found)
    return live.manifests, state_of_ages(live.with_ages(installed.stored_manifests, moment), moment)


def _shifted_zones(cluster_inputs: ClusterInputs, installed: InstalledCluster) -> frozenset[str]:
    """Zones that the install keeps out of."""
    if not cluster_inputs.cluster.zonal_shift:
        return frozenset()
    from shiplap_cli.installs.installed import shifted_zones  # noqa: PLC0415 - loads botocore

    return shifted_zones(installed, cluster_inputs.cluster.region)


def _one_of(option: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise InvalidInput(option, f"{value!r} is none of {', '.join(allowed)}")


def _decision_time(text: str | None) -> float:
    if text is None:
        return time.time()
    try:
        return epoch(text)
    except ValueError as error:
        raise InvalidInput("--now", f"expected a time such as 2026-01-31T12:00:00Z: {error}") from error


def _manifests_in_cluster(cluster_inputs: ClusterInputs, sources: Sources, *, lax_budgets: bool) -> Manifests:
    """The manifests that stand among the cluster's objects."""
    documents: Sequence[Document] = cluster_inputs.state.manifests
    if not any(document.data.get("kind") == "NodePool" for document in documents):
        where = f"context {cluster_inputs.cluster.name}" if cluster_inputs.live else "the cluster state"
        raise InvalidInput("--manifests", f"is missing, and {where} holds no NodePool; give files or folders with some")
    return _without_problems(
        check_documents(documents), tolerate_missing_classes=sources.catalog is not None, lax_budgets=lax_budgets
    )


def _manifests_of_files(paths: Sequence[Path], *, tolerate_missing_classes: bool, lax_budgets: bool) -> Manifests:
    """Manifests without problems. With a catalogue file an EC2NodeClass is only a name, so it need not be there."""
    report = inspect_files(paths)
    manifests = _without_problems(report, tolerate_missing_classes=tolerate_missing_classes, lax_budgets=lax_budgets)
    if not manifests.node_pools:
        raise no_manifest(paths, report, "NodePool")
    for warning in unapplied_kustomizations(report.others):
        note(f"! {warning}\n")
    return manifests


def _without_problems(report: ManifestReport, *, tolerate_missing_classes: bool, lax_budgets: bool) -> Manifests:
    problems = [
        problem
        for problem in report.problems
        if not (tolerate_missing_classes and problem.field == NODE_CLASS_FIELD and "there is no" in problem.reason)
        if not (lax_budgets and _BUDGET.fullmatch(problem.field))
    ]
    if problems:
        raise InvalidManifests(problems)
    return report.manifests
