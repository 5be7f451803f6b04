"""The inputs of `shiplap plan`, `explain` and `disrupt`: a cluster or files for it, manifests, a catalogue."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from shiplap.errors import InvalidInput, InvalidManifests
from shiplap.instances.catalog.type_catalog import InstanceType, LearnedCapacity
from shiplap.kubernetes import labels
from shiplap.kubernetes.timestamps import epoch
from shiplap.manifests.custom_resources import Manifests
from shiplap.manifests.files.documents import Document
from shiplap.manifests.files.loading import ManifestReport, check_documents, inspect_files
from shiplap.manifests.validation.live_objects import check_live_object, live_manifests, own_objects
from shiplap.scheduling.model.scheduling_plan import Plan
from shiplap.scheduling.model.snapshot import NodeClassCatalog, SchedulingSettings, Snapshot
from shiplap.scheduling.planner import plan
from shiplap.settings import ClusterSettings
from shiplap_cli.inputs import learned_file
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
)
from shiplap_cli.installs.find_install import InstallOptions
from shiplap_cli.options import Sources
from shiplap_cli.output import counted, summary

if TYPE_CHECKING:
    from shiplap_cli.installs.installed import InstalledCluster

_BUDGET = re.compile(r"spec\.disruption\.budgets\[\d+\](\.(nodes|schedule|duration))?")
"""Fields of a budget that may be unreadable: the decision then blocks every disruption of the pool, and says so."""


class LoadedInputs(msgspec.Struct, frozen=True):
    """The inputs of a decision. `unseen` and `notes` say in which way they may differ from the cluster's truth.

    `live` when a cluster was asked; `region` is that of prices and zones, empty where a catalogue file gives them.
    """

    snapshot: Snapshot
    state: ClusterState
    live: bool = False
    region: str = ""
    unseen: tuple[MissingPermission, ...] = ()
    notes: tuple[str, ...] = ()
    installed: InstalledCluster | None = None

    def decided(self) -> tuple[Snapshot, Plan]:
        """The plan, and the snapshot that it is made of: an install's without what its schedule function leaves out.

        Raises InvalidInput as `planner.plan`.
        """
        if self.installed is not None:
            return self.installed.decided(self.snapshot)
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
        written = given.get(number) or _own_manifests(cluster_inputs, sources, lax_budgets=lax_budgets)
        supply = supply_of(sources, cluster_inputs, written) if types is None else None
        snapshot = _snapshot(cluster_inputs, written, types, supply, learned, moment)
        notes = _notes(cluster_inputs, supply)
        region = supply.catalog.region if supply is not None else ""
        loaded.append(
            LoadedInputs(
                snapshot,
                cluster_inputs.state,
                cluster_inputs.live,
                region,
                cluster_inputs.unseen,
                notes,
                cluster_inputs.installed,
            )
        )
    return loaded


def _notes(cluster_inputs: ClusterInputs, supply: InstanceSupply | None) -> tuple[str, ...]:
    """The assumptions of a decision, a line each."""
    assumed = (cluster_inputs.region_assumed,) if supply is not None and cluster_inputs.region_assumed else ()
    others = (
        tuple(cluster_inputs.installed.notes) if cluster_inputs.installed is not None else _install_hint(cluster_inputs)
    )
    return (*assumed, *(supply.notes if supply is not None else ()), *_note_of_workloads(cluster_inputs), *others)


def _note_of_workloads(cluster_inputs: ClusterInputs) -> Iterator[str]:
    added = cluster_inputs.state.added
    if added:
        total, listed = sum(number for _, number in added), summary([f"{number} of {name}" for name, number in added])
        yield f"{counted(total, 'pod')} with + in the name will be made by workloads: {listed}"


def _snapshot(
    cluster_inputs: ClusterInputs,
    written: Manifests,
    types: tuple[InstanceType, ...] | None,
    supply: InstanceSupply | None,
    learned: tuple[LearnedCapacity, ...] | None,
    moment: float,
) -> Snapshot:
    """The snapshot under a set of manifests; either `types` or a `supply` is given."""
    cluster = msgspec.structs.replace(cluster_inputs.cluster, manifests=written)
    installed = cluster_inputs.installed
    if installed is None:
        if supply is None:
            return _snapshot_without_install(cluster_inputs, cluster, catalogs_of_file(written, types or ()), moment)
        return _snapshot_without_install(
            cluster_inputs, cluster, catalogs_of(written, cluster_inputs, supply, learned or ()), moment
        )
    if learned is not None:
        installed = msgspec.structs.replace(installed, capacity=installed.capacity.given(learned))
    supply = supply or embedded_supply(cluster_inputs)
    bought = installed.supply(
        supply.catalog,
        written.node_classes,
        supply.resolved,
        supply.not_ready,
        _shifted_zones(cluster_inputs, installed),
    )
    snapshot = installed.snapshot(cluster, cluster_inputs.state.view, cluster_inputs.state.claims, bought, moment)
    if types is not None:
        return msgspec.structs.replace(snapshot, catalogs=catalogs_of_file(written, types))
    unknown = {name for name, item in bought.node_classes.items() if item.resolved is None and not item.not_ready}
    others = catalogs_of(written, cluster_inputs, supply, installed.capacity.all() if unknown else (), unknown)
    known = [catalog for catalog in snapshot.catalogs if catalog.node_class not in unknown]
    catalogs = tuple(sorted([*known, *others], key=lambda catalog: catalog.node_class))
    return msgspec.structs.replace(snapshot, catalogs=catalogs)


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


def _snapshot_without_install(
    cluster_inputs: ClusterInputs, cluster: ClusterSettings, catalogs: tuple[NodeClassCatalog, ...], moment: float
) -> Snapshot:
    """The snapshot of a cluster that no install is asked about."""
    return Snapshot(
        cluster=cluster.name,
        now=moment,
        view=cluster_inputs.state.view,
        claims=cluster_inputs.state.claims,
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


def _own_manifests(cluster_inputs: ClusterInputs, sources: Sources, *, lax_budgets: bool) -> Manifests:
    """The manifests that the install decides by, else those of the cluster."""
    installed = cluster_inputs.installed.settings if cluster_inputs.installed is not None else None
    if installed is not None and not installed.live_manifests:
        return installed.manifests
    if installed is not None:  # as its functions read them: what is wrong is left out
        found = own_objects(document.data for document in cluster_inputs.state.manifests)
        return live_manifests(check_live_object(item, installed.allowed) for item in found).manifests
    return _manifests_in_cluster(cluster_inputs, sources, lax_budgets=lax_budgets)


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
    manifests = _without_problems(
        inspect_files(paths), tolerate_missing_classes=tolerate_missing_classes, lax_budgets=lax_budgets
    )
    if not manifests.node_pools:
        raise InvalidInput(", ".join(map(str, paths)), "there is no NodePool among the manifests")
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
