"""Random clusters: every pod that a plan places may run there, as kube-scheduler itself judges it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from shiplap.kubernetes.objects import Pod
from shiplap.scheduling.model.snapshot import Snapshot
from shiplap.scheduling.planner import plan
from shiplap_lab.cluster_simulator.kube_scheduler import NodeInfo, PodInfo, refusals
from tests.e2e import programs
from tests.e2e.api import api_of
from tests.e2e.arbiter import Arbiter, Extender, Key, described
from tests.e2e.control_plane import ControlPlane
from tests.property.drawn_snapshots import snapshots
from tests.property.drawn_topologies import clusters
from tests.property.drawn_volumes import NAMES, planned, worlds
from tests.thoroughness import draws

pytestmark = [pytest.mark.e2e, pytest.mark.filterwarnings("ignore:Generating overly large repr")]

EXAMPLES = settings(
    derandomize=True,
    deadline=None,
    database=None,
    # An example costs a second, and one that fails eight more: shrinking it would take the rest of the day.
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def arbiter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arbiter]:
    try:
        programs.find()
    except programs.ProgramsMissing as missing:
        pytest.skip(f"no control plane: {missing}")
    folder = tmp_path_factory.mktemp("arbiter")
    with (
        Extender() as extender,
        ControlPlane(
            folder,
            controllers=(),
            nodes=False,
            extenders=[extender.configuration],
            without_admission=["Priority", "ServiceAccount"],  # priorities are given as numbers, and no pod runs
        ) as plane,
        api_of(plane) as api,
    ):
        yield Arbiter(api, extender)


@settings(EXAMPLES, max_examples=draws(60))
@given(snapshot=snapshots())
def test_kube_scheduler_lets_every_pod_run_where_it_is_planned(arbiter: Arbiter, snapshot: Snapshot) -> None:
    judge(arbiter, snapshot)


@settings(EXAMPLES, max_examples=draws(60))
@given(snapshot=clusters())
def test_kube_scheduler_lets_pods_with_topology_rules_run_where_they_are_planned(
    arbiter: Arbiter, snapshot: Snapshot
) -> None:
    judge(arbiter, snapshot)


@settings(EXAMPLES, max_examples=draws(30))
@given(world=worlds())
def test_kube_scheduler_lets_pods_with_volumes_run_where_they_are_planned(
    arbiter: Arbiter, world: dict[str, Any]
) -> None:
    """Volumes that exist: those still to be made wait for a provisioner, not for a scheduler."""
    outcome, _ = planned({**world, "bound": dict.fromkeys(NAMES, True)})
    refused = arbiter.refusals(outcome.snapshot, outcome.plan)
    assert not refused, "\n".join((*refused, described(outcome.snapshot, outcome.plan)))


@settings(EXAMPLES, max_examples=draws(40))
@given(snapshot=snapshots())
def test_the_simulated_scheduler_finds_the_same_nodes(arbiter: Arbiter, snapshot: Snapshot) -> None:
    """Resources, selectors, affinity, taints, cordons and ports; it does not judge topology and volumes."""
    expected = passing(snapshot)
    found: dict[Key, frozenset[str]] = {}
    for patience_s in (0.2, 2.0):
        found = arbiter.feasible(snapshot, patience_s)
        if found == expected:
            return
    assert found == expected, described(snapshot, plan(snapshot))


def passing(snapshot: Snapshot) -> dict[Key, frozenset[str]]:
    """The nodes that pass the filters of the simulated scheduler."""
    nodes = [node for node in snapshot.view.nodes if not node.metadata.deletion_timestamp]
    states = {node.metadata.name: NodeInfo.of(node) for node in nodes}
    waiting = {}
    for pod in snapshot.view.pods:
        if pod.spec.node_name in states:
            states[pod.spec.node_name].add(PodInfo.of(pod))
        elif not pod.spec.node_name:
            waiting[pod.metadata.namespace, pod.metadata.name] = PodInfo.of(pod)
    return {
        key: frozenset(name for name, state in states.items() if not refusals(needs, state))
        for key, needs in waiting.items()
    }


def judge(arbiter: Arbiter, snapshot: Snapshot) -> None:
    view = msgspec.structs.replace(snapshot.view, pods=tuple(admitted(pod) for pod in snapshot.view.pods))
    case = msgspec.structs.replace(snapshot, view=view)
    decided = plan(case)
    refused = arbiter.refusals(case, decided)
    assert not refused, "\n".join((*refused, described(case, decided)))


def admitted(pod: Pod) -> Pod:
    """The pod without spread constraints that an API server would not take: two alike for one topology key."""
    constraints = {item.topology_key: item for item in pod.spec.topology_spread_constraints}
    spec = msgspec.structs.replace(pod.spec, topology_spread_constraints=tuple(constraints.values()))
    return msgspec.structs.replace(pod, spec=spec)
