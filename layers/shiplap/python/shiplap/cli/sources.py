"""What `shiplap plan` and `shiplap explain` decide on: files for a cluster, its manifests and its catalogue."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from shiplap.api.manifests import inspect
from shiplap.api.scheduler_config import SchedulerConfig
from shiplap.api.types import EC2NodeClass, Manifests
from shiplap.cli.inputs import (
    ClusterState,
    for_unknown_ami,
    read_catalog,
    read_cluster_state,
    read_scheduler_config,
)
from shiplap.errors import InvalidInput, InvalidManifests
from shiplap.instances import embedded, learned_file
from shiplap.instances.resolve import instance_types
from shiplap.instances.setting import from_cluster
from shiplap.instances.types import InstanceType, LearnedCapacity
from shiplap.kubernetes.timestamps import epoch
from shiplap.scheduling.snapshot import NodeClassCatalog, SchedulingSettings, Snapshot
from shiplap.settings import IMPROVE_S, ClusterSettings

_NODE_CLASS_FIELD = "spec.template.spec.nodeClassRef.name"

StateFiles = Annotated[
    list[Path],
    typer.Option(
        "--cluster-state", help="Kubernetes objects as YAML or JSON: files, folders, or - for standard input."
    ),
]
ManifestFiles = Annotated[
    list[Path], typer.Option("--manifests", help="NodePools, EC2NodeClasses, NodeOverlays: files or folders.")
]
CatalogFile = Annotated[
    Path | None,
    typer.Option("--catalog", help="Instance types to plan with instead of EC2's; figures are taken as given."),
]
CapacityFile = Annotated[
    Path | None, typer.Option("--capacity", help="Learned capacity, as `shiplap capacity export` writes it.")
]
Now = Annotated[str | None, typer.Option("--now", help="Plan as of this time (RFC 3339); the clock's without.")]
Region = Annotated[str, typer.Option("--region", help="Region of the embedded catalogue.")]
MemoryOverhead = Annotated[
    float,
    typer.Option(
        "--vm-memory-overhead-percent", min=0, max=1, help="Share of memory the hypervisor keeps, as a fraction."
    ),
]
ReservedEnis = Annotated[int, typer.Option("--reserved-enis", min=0, help="Network interfaces that pods cannot use.")]
PrefixDelegation = Annotated[
    str, typer.Option("--prefix-delegation", help="auto (as the VPC CNI's DaemonSet says), on or off.")
]
MinValuesPolicy = Annotated[str, typer.Option("--min-values-policy", help="Strict or BestEffort.")]
PreferencePolicy = Annotated[
    str,
    typer.Option("--preference-policy", help="Respect (preferences bind until a pod cannot be placed) or Ignore."),
]
ImproveSeconds = Annotated[
    float,
    typer.Option(
        "--improve-seconds", min=0, max=60, help="Effort spent on cheaper nodes; 0 for first-fit-decreasing only."
    ),
]
SchedulerConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--scheduler-config", help="Default spread constraints (podTopologySpread), as kube-scheduler has them."
    ),
]


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a command, as they were given."""

    cluster_state: Sequence[Path]
    manifests: Sequence[Path]
    catalog: Path | None = None
    capacity: Path | None = None
    now: str | None = None
    region: str = "us-east-1"
    vm_memory_overhead_percent: float = 0.075
    reserved_enis: int = 0
    prefix_delegation: str = "auto"
    min_values_policy: str = "Strict"
    preference_policy: str = "Respect"
    scheduler_config: Path | None = None
    improve_s: float = IMPROVE_S


def snapshot_of(sources: Sources) -> Snapshot:
    """Read everything a scheduling decision looks at. Raises InvalidInput for whatever cannot be used."""
    return read(sources)[0]


def read(sources: Sources) -> tuple[Snapshot, ClusterState]:
    """As `snapshot_of`, with the cluster's state as it was read: standard input can be read only once."""
    _one_of("--prefix-delegation", sources.prefix_delegation, ("auto", "on", "off"))
    _one_of("--min-values-policy", sources.min_values_policy, ("Strict", "BestEffort"))
    _one_of("--preference-policy", sources.preference_policy, ("Respect", "Ignore"))
    config = sources.scheduler_config
    spread = read_scheduler_config(config) if config is not None else SchedulerConfig()
    moment = _moment(sources.now)
    state = read_cluster_state(sources.cluster_state)
    written = _manifests(sources.manifests, tolerate_missing_classes=sources.catalog is not None)
    cluster = ClusterSettings(
        name="files",
        region=sources.region,
        vm_memory_overhead_percent=sources.vm_memory_overhead_percent,
        reserved_enis=sources.reserved_enis,
        prefix_delegation=sources.prefix_delegation,
    )
    if sources.catalog is not None:
        catalogs = _given_catalogs(written, read_catalog(sources.catalog))
    else:
        learned = learned_file.read(sources.capacity) if sources.capacity is not None else ()
        catalogs = _embedded_catalogs(written, cluster, state, learned)
    snapshot = Snapshot(
        cluster=cluster.name,
        now=moment,
        view=state.view,
        claims=state.claims,
        manifests=written,
        catalogs=catalogs,
        settings=SchedulingSettings(
            preference_policy=sources.preference_policy,
            min_values_policy=sources.min_values_policy,
            improve_s=sources.improve_s,
            default_spread=spread.pod_topology_spread.constraints(),
        ),
    )
    return snapshot, state


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


def _manifests(paths: Sequence[Path], *, tolerate_missing_classes: bool) -> Manifests:
    """Manifests without problems. With a catalogue file an EC2NodeClass is only a name, so it need not be there."""
    report = inspect(paths)
    problems = [
        problem
        for problem in report.problems
        if not (tolerate_missing_classes and problem.field == _NODE_CLASS_FIELD and "there is no" in problem.reason)
    ]
    if problems:
        raise InvalidManifests(problems)
    if not report.manifests.node_pools:
        raise InvalidInput(", ".join(map(str, paths)), "there is no NodePool among the manifests")
    return report.manifests


def _class_names(manifests: Manifests) -> list[str]:
    return sorted({pool.spec.template.spec.node_class_ref.name for pool in manifests.node_pools})


def _given_catalogs(manifests: Manifests, types: tuple[InstanceType, ...]) -> tuple[NodeClassCatalog, ...]:
    return tuple(NodeClassCatalog(name, types) for name in _class_names(manifests))


def _embedded_catalogs(
    manifests: Manifests, cluster: ClusterSettings, state: ClusterState, learned: Sequence[LearnedCapacity]
) -> tuple[NodeClassCatalog, ...]:
    """EC2's types under each EC2NodeClass.

    Raises:
        InvalidInput: a NodePool names an EC2NodeClass that is not among the manifests.
    """
    setting = from_cluster(cluster, state.view.daemon_sets)
    known = {item.metadata.name: item for item in manifests.node_classes}
    raw = embedded.load(cluster.region)
    catalogs = []
    for name in _class_names(manifests):
        if name not in known:
            pool = next(p for p in manifests.node_pools if p.spec.template.spec.node_class_ref.name == name)
            reason = f"there is no EC2NodeClass {name!r} among the manifests; give it, or a --catalog"
            raise InvalidInput("manifests", reason, document=f"NodePool/{pool.metadata.name}", field=_NODE_CLASS_FIELD)
        applicable = for_unknown_ami(learned, _ami_ids(known[name]))
        try:
            types = instance_types(raw, known[name], setting, resolved=None, learned=applicable, unavailable=())
        except InvalidInput as error:  # as in a cluster: the pools of the other EC2NodeClasses go on
            catalogs.append(NodeClassCatalog(name, not_ready=str(error)))
        else:
            catalogs.append(NodeClassCatalog(name, types))
    return tuple(catalogs)


def _ami_ids(node_class: EC2NodeClass) -> list[str]:
    return [term.id for term in node_class.spec.ami_selector_terms if term.id]
