"""A cluster's compact snapshot and the changes since always add up to a fresh list, whatever becomes of the watches.

Watch functions die, restart and overlap; connections break after any change, changes come twice, versions are
forgotten (410). Whoever decides sees the pods there are, or is told to list them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from shiplap.cluster.snapshot_keeper import FEWEST_PODS, RELIST_S, SAVE_S, SnapshotKeeper
from shiplap.errors import ClusterError, ClusterUnreachable, ObjectConflict, ObjectNotFound, ResourceVersionGone
from shiplap.flows.planning import decision_inputs
from shiplap.flows.planning.decision_inputs import BoundPods
from shiplap.kubernetes.compact_pods import lean_pod, merged_pods
from shiplap.kubernetes.objects import Pod
from shiplap.ports import WatchEvent
from shiplap_lab.fakes.cluster import ApiServer, FakeCluster
from shiplap_lab.fakes.stores import FakeSnapshots
from tests.integration.flows.stage import CLUSTER, Stage
from tests.thoroughness import draws

NAMES = st.sampled_from(("a", "b", "c", "d"))
STEPS = st.one_of(
    st.tuples(st.just("create"), NAMES),
    st.tuples(st.just("label"), NAMES),
    st.tuples(st.just("run"), NAMES),
    st.tuples(st.just("finish"), NAMES),
    st.tuples(st.just("bind"), NAMES),
    st.tuples(st.just("bind"), NAMES),
    st.tuples(st.just("delete"), NAMES),
    st.tuples(st.just("keep"), st.integers(0, 1)),
    st.tuples(st.just("keep"), st.integers(0, 1)),
    st.tuples(st.just("restart"), st.integers(0, 1)),
    st.tuples(st.just("forget"), st.just(0)),
    st.tuples(st.just("break"), st.integers(0, 3)),
    st.tuples(st.just("repeat"), st.integers(1, 4)),
    st.tuples(st.just("wait"), st.sampled_from((int(SAVE_S), int(2 * RELIST_S)))),
    st.tuples(st.just("look"), st.just(0)),
)


class Shaky(FakeCluster):
    """Watches that break after `breaks_after` changes, or begin with `repeats` changes that were told before."""

    def __init__(self, server: ApiServer) -> None:
        super().__init__(server)
        self.breaks_after: int | None = None
        self.repeats = 0

    def watch(self, kind: str, resource_version: str, timeout_s: float) -> Iterator[WatchEvent]:
        """As the fake's."""
        start = int(resource_version)
        if self.repeats:
            start, self.repeats = max(1, start - self.repeats), 0
        try:
            for number, event in enumerate(super().watch(kind, str(start), timeout_s)):
                if number == self.breaks_after:
                    self.breaks_after = None
                    raise ClusterUnreachable("the connection broke")
                yield event
        except ClusterError as error:
            if start != int(resource_version) and error.status == 410:
                yield from super().watch(kind, resource_version, timeout_s)
            else:
                raise


class Cluster(Stage):
    """A stage with a shaky connection and two watch functions that may both run."""

    def __init__(self) -> None:
        super().__init__()
        self.shaky = Shaky(self.server)
        self.snapshots = FakeSnapshots()
        self.keepers = [self.keeper(), self.keeper()]
        self.known = self.looker()

    def keeper(self) -> SnapshotKeeper:
        self.clock.advance(1)
        found = SnapshotKeeper(CLUSTER, self.shaky, self.snapshots, clock=self.clock, fewest_pods=0)
        found.established.set()
        return found

    def looker(self) -> BoundPods:
        return BoundPods(CLUSTER, replace(self.context, cluster=self.shaky, snapshots=self.snapshots))

    def play(self, action: str, name: str) -> None:
        """Act as users, kube-scheduler and kubelets do."""
        match action:
            case "create":
                self.server.create("pods", {"metadata": {"name": name}, "spec": {"containers": []}})
            case "label":
                version = self.server.resource_version
                self.server.patch("pods", name, {"metadata": {"labels": {"v": version}, "annotations": {"x": version}}})
            case "run":
                self.server.patch("pods", name, {"status": {"phase": "Running"}}, subresource="status")
            case "finish":
                self.server.patch("pods", name, {"status": {"phase": "Succeeded"}}, subresource="status")
            case "bind":
                self.server.bind(name, f"n-{name}")
            case "delete":
                self.server.delete("pods", name, grace_s=0)

    def happen(self, action: str, value: int) -> None:
        """Act on the watches and their holders."""
        match action:
            case "keep":
                self.keep(self.keepers[value])
            case "restart":
                self.keepers[value] = self.keeper()
            case "forget":
                self.server.compact()
            case "break":
                self.shaky.breaks_after = value
            case "repeat":
                self.shaky.repeats = value
            case "wait":
                self.clock.advance(value)
            case "look":
                self.look()

    def keep(self, keeper: SnapshotKeeper) -> None:
        """One round, failing as `run` bears it."""
        if not keeper.retired.is_set():
            with suppress(ClusterUnreachable, ResourceVersionGone):
                keeper.round(1.0)

    def look(self) -> bool:
        """Compare what a decision is told with what there is; whether it was told anything."""
        pending = self.cluster.pending_pods()
        told = self.known(decision_inputs.FEWEST_NODES, self.server.resource_version)
        if told is None:
            return False
        bound = [pod for pods, _ in FakeCluster(self.server).bound_pages() for pod in pods]
        assert _by_uid(told) == _by_uid([lean_pod(pod) for pod in bound])
        assert _by_uid(merged_pods(pending, told)).keys() == _by_uid([*pending, *bound]).keys()
        return True


def _by_uid(pods: list[Pod] | tuple[Pod, ...]) -> dict[str, Pod]:
    found = {pod.metadata.uid: pod for pod in pods}
    assert len(found) == len(pods)
    return found


@settings(derandomize=True, deadline=None, max_examples=draws(400))
@given(st.lists(STEPS, max_size=40))
def test_a_snapshot_and_what_follows_add_up_to_a_list(steps: list[tuple[str, str | int]]) -> None:
    cluster = Cluster()
    for action, value in steps:
        if isinstance(value, str):
            with suppress(ObjectNotFound, ObjectConflict):  # there is no such pod, or it has a node
                cluster.play(action, value)
        else:
            cluster.happen(action, value)
    cluster.look()
    # Whatever has happened, a watch function that is left alone mends it, and its snapshot is used.
    cluster.shaky.breaks_after = None
    last = cluster.keeper()
    for _ in range(2):
        last.round(1.0)
    cluster.known = cluster.looker()
    assert cluster.look()


def test_small_clusters_are_left_out() -> None:
    cluster = Cluster()
    cluster.play("create", "a")
    cluster.play("bind", "a")
    keeper = SnapshotKeeper(CLUSTER, cluster.shaky, cluster.snapshots, clock=cluster.clock)
    keeper.established.set()
    keeper.round(1.0)
    assert FEWEST_PODS > 1
    assert not cluster.look()
