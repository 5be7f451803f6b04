"""kube-scheduler's own filters as a program: `scheduler/main.go`, compiled from the modules that `make e2e` pins.

The program binds the pods of a plan in drawn orders, and tries pods that were left out on nodes that could have been
launched. `make conformance-scheduler` plays both as laws. `python -m tests.combinations.kube_scheduler` only builds it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from msgspec.structs import replace

from shiplap.errors import InvalidInput
from shiplap.kubernetes.objects import Node, Pod
from shiplap.scheduling.model.scheduling_plan import Plan
from shiplap.scheduling.model.snapshot import Snapshot
from tests.combinations.carrying_out import launched
from tests.combinations.launchable_nodes import LaunchableNode, arriving_nodes, launchable_nodes
from tests.combinations.laws import Decided, KnownDefect, Law
from tests.combinations.overlaid_types import overlaid
from tests.e2e.arbiter import plain
from tests.e2e.programs import HERE as E2E
from tests.e2e.programs import minor, version
from tests.line_programs import LineProgram, built
from tests.rules import KIND, POOL, ZONE, tolerates

SOURCE = Path(__file__).resolve().parent / "scheduler"
CACHE = SOURCE.parents[2] / "build" / "kube-scheduler"
ORDERS = 3
_MOST_CHANCES = 12
"""Nodes that are tried for pods that were left out, beside one in each place."""
_GIBIBYTE = {"storage": "1Gi"}
_CLAIM = {"accessModes": ["ReadWriteMany"], "resources": {"requests": _GIBIBYTE}}
_VOLUME = {"accessModes": ["ReadWriteMany"], "capacity": _GIBIBYTE}
"""What the API asks for and plans do not."""


_BINDS_ELSEWHERE = KnownDefect(
    "pods of a spread keep each other off the node they are nominated for, and take the room of others", 88120052, 386
)


class Unbound(msgspec.Struct, frozen=True):
    """A pod of a plan that no node took in an order, with the nodes of the pods that were bound."""

    order: int
    pod: str
    reason: str
    homes: dict[str, str] = {}


class Fitting(msgspec.Struct, frozen=True):
    """A pod that was left out although it fits a node that could have been launched."""

    pod: str
    node: str


class SchedulerVerdict(msgspec.Struct, frozen=True):
    """The verdict of kube-scheduler on a plan; `error` is the reason why it could not judge the plan."""

    unbound: tuple[Unbound, ...] = ()
    fitting: tuple[Fitting, ...] = ()
    error: str = ""


def build() -> Path:
    """The program, built if it is missing.

    Raises:
        ProgramsMissing: there is no Go, or the modules cannot be downloaded.
        BuildFailed: it cannot be built.
    """
    pinned = E2E / "versions" / minor() / "go.mod"
    sources = (pinned, pinned.with_suffix(".sum"), SOURCE / "main.go")
    return built(CACHE, version(), sources, SOURCE, flags=[f"-modfile={pinned}"], as_named=False)


class KubeScheduler(LineProgram):
    """The program at work, one cluster at a time."""

    def judge(self, snapshot: Snapshot, plan: Plan, rng: Random) -> SchedulerVerdict:
        """Return the verdict of kube-scheduler on a plan, in orders that are drawn.

        Raises:
            InvalidInput: the program cannot read the cluster.
        """
        found = self.answer(msgspec.json.encode(cluster_line(snapshot, plan, rng)))
        if found.error:
            raise InvalidInput("kube-scheduler", found.error)
        return found

    def answer(self, line: bytes) -> SchedulerVerdict:
        """Return the verdict of kube-scheduler on one line."""
        self.send(line + b"\n")
        return msgspec.json.decode(self.receive(), type=SchedulerVerdict)


def scheduler_laws(scheduler: KubeScheduler) -> tuple[Law, ...]:
    """The laws that the program judges, both by one verdict. Orders are drawn anew for each plan."""

    @lru_cache(maxsize=1)
    def verdict(before: Decided) -> SchedulerVerdict:
        rng = Random(repr(sorted(_homes(before.plan).items())))  # noqa: S311 - a draw for a test
        return scheduler.judge(before.snapshot, before.plan, rng)

    def unbound(before: Decided) -> str:
        found = verdict(before).unbound
        return "; ".join(f"{item.pod} binds nowhere in order {item.order}: {item.reason}" for item in found[:3])

    def fitting(before: Decided) -> str:
        return "; ".join(f"{item.pod} fits {item.node}" for item in verdict(before).fitting[:3])

    return (
        Law.of_plan("every pod of a plan binds in every order", unbound, _BINDS_ELSEWHERE),
        Law.of_plan("no pod is left out that fits a node", fitting),
    )


def cluster_line(snapshot: Snapshot, plan: Plan, rng: Random) -> dict[str, Any]:
    """A cluster and its plan as the program reads them.

    Pods are nominated for their planned nodes, as `lifecycle` does before it opens a node. Claims in flight have become
    nodes. Nodes on their way out are gone, but for those with pods that nothing moves.
    """
    nodes = [
        *_staying(snapshot, plan),
        *arriving_nodes(overlaid(snapshot), plan, rng),
        *(node for node, _ in launched(snapshot, plan.node_claims)),
    ]
    there = {node.metadata.name for node in nodes}
    homes = {key: home for key, home in _homes(plan).items() if home in there}
    pods = {pod.key: pod for pod in snapshot.view.pods}
    planned = sorted(homes)
    left = [] if plan.unsettled else _left_out(plan, pods)  # unsettled: another decision places some of them
    daemons = [pod for node in nodes for pod in _daemon_pods(snapshot, node)]
    running = [_object(pod) for pod in pods.values() if pod.spec.node_name in there and pod.key not in homes]
    return {
        "nodes": [_object(node) for node in nodes],
        "bound": [*running, *daemons],
        "pods": [_nominated(pods[key], homes[key]) for key in planned],
        "orders": [_order(rng, [pods[key].spec.priority for key in planned]) for _ in range(ORDERS)],
        "leftOut": [_object(pod) for pod in left],
        "chances": [_chance(snapshot, chance) for chance in (_chances(snapshot, plan, rng) if left else ())],
        "namespaces": [_object(item) for item in snapshot.view.namespaces],
        "defaultSpread": [plain(item) for item in snapshot.settings.default_spread],
        "replicaSets": [_object(item) for item in snapshot.view.replica_sets],
        "claims": [_object(item, _CLAIM) for item in snapshot.view.persistent_volume_claims],
        "volumes": [_object(item, _VOLUME) for item in snapshot.view.persistent_volumes],
        "classes": [_object(item) for item in snapshot.view.storage_classes],
        "csiNodes": [_csi_node(item) for item in snapshot.view.csi_nodes],
    }


def _staying(snapshot: Snapshot, plan: Plan) -> Iterator[Node]:
    """Nodes that take pods, ready as the plan assumes them to be, without taints that go once they are.

    A node that leaves takes none. It stays with pods that must not be disrupted.
    """
    startup = {
        (taint.key, taint.effect)
        for pool in snapshot.manifests.node_pools
        for taint in pool.spec.template.spec.startup_taints
    }
    moved = {*_homes(plan), *(entry.pod.key for entry in plan.unschedulable)}
    keeping = {pod.spec.node_name for pod in snapshot.view.pods if pod.key not in moved}
    for node in snapshot.view.nodes:
        leaves = bool(node.metadata.deletion_timestamp)
        if not leaves or node.metadata.name in keeping:
            lasting = tuple(taint for taint in node.spec.taints if (taint.key, taint.effect) not in startup)
            closed = node.spec.unschedulable or leaves
            yield replace(node, spec=replace(node.spec, taints=lasting, unschedulable=closed))


def _homes(plan: Plan) -> dict[str, str]:
    groups = (*plan.node_claims, *plan.existing_nodes)
    return {pod.key: group.name for group in groups for pod in group.pods}


def _order(rng: Random, priorities: Sequence[int]) -> list[int]:
    """The places of pods in the order in which they are tried: by priority, else as drawn."""
    places = rng.sample(range(len(priorities)), len(priorities))
    return sorted(places, key=lambda place: -priorities[place])


def _daemon_pods(snapshot: Snapshot, node: Node) -> Iterator[dict[str, Any]]:
    """The pods that DaemonSets start on a node: those that tolerate its taints and select it."""
    for daemon in snapshot.view.daemon_sets:
        spec = daemon.spec.template.spec
        selected = all(node.metadata.labels.get(key) == value for key, value in spec.node_selector.items())
        if selected and tolerates(node.spec.taints, spec):
            body: dict[str, Any] = plain(daemon.spec.template)
            body["metadata"] = body.get("metadata", {}) | {
                "name": f"{daemon.metadata.name}-{node.metadata.name}",
                "namespace": daemon.metadata.namespace,
                "uid": f"{daemon.metadata.uid}/{node.metadata.name}",
            }
            yield _placed(body, node.metadata.name)


def _left_out(plan: Plan, pods: Mapping[str, Pod]) -> list[Pod]:
    """A pod of each kind that was left out for want of a node.

    A ceiling may leave out any pod, and what sleeps waits on purpose.
    """
    found: dict[tuple[str, str], Pod] = {}
    for entry in plan.unschedulable:
        pod = pods[entry.pod.key]
        if not entry.message.startswith(("sleeps", "ceiling reached:")):
            found.setdefault((pod.metadata.namespace, pod.metadata.labels.get("app", "")), pod)
    return list(found.values())


def _chances(snapshot: Snapshot, plan: Plan, rng: Random) -> list[LaunchableNode]:
    """Some nodes that could be launched, at least one in each place where a NodePool can launch any."""
    every = list(launchable_nodes(overlaid(snapshot), plan))
    rng.shuffle(every)
    first: dict[tuple[str, ...], LaunchableNode] = {}
    for chance in every:
        labels = chance.node.metadata.labels
        first.setdefault((labels[POOL], labels[ZONE], labels[KIND]), chance)
    chosen = {chance.node.metadata.name: chance for chance in (*first.values(), *every[:_MOST_CHANCES])}
    return [chosen[name] for name in sorted(chosen)]


def _chance(snapshot: Snapshot, chance: LaunchableNode) -> dict[str, Any]:
    bound = list(_daemon_pods(snapshot, chance.node))
    return {"node": _object(chance.node), "bound": bound, "open": chance.is_open}


def _nominated(pod: Pod, node: str) -> dict[str, Any]:
    body = _object(pod)
    body["spec"].pop("nodeName", None)
    return {**body, "status": {"nominatedNodeName": node}}


def _placed(body: dict[str, Any], node: str) -> dict[str, Any]:
    return {**body, "spec": {**body["spec"], "nodeName": node}}


def _object(item: msgspec.Struct, lacking: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """An object as the API writes it, with a uid, and with what the API asks for and plans do not."""
    body = plain(item)
    metadata = body["metadata"]
    metadata.setdefault("uid", f"{metadata.get('namespace', '')}/{metadata['name']}")
    metadata.pop("creationTimestamp", None)
    for owner in metadata.get("ownerReferences", ()):
        owner.setdefault("apiVersion", "apps/v1")
    return {**body, "spec": {**(lacking or {}), **body["spec"]}} if "spec" in body else body


def _csi_node(item: msgspec.Struct) -> dict[str, Any]:
    body = plain(item)
    drivers = [{**driver, "nodeID": body["metadata"]["name"]} for driver in body.get("spec", {}).get("drivers", ())]
    return {**body, "spec": {"drivers": drivers}}


def main() -> int:
    """Build the program and say where it is."""
    sys.stdout.write(f"{build()}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
