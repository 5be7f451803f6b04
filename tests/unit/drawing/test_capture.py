"""Pictures of a cluster: what they take from nodes, pods, claims and plans."""

from __future__ import annotations

import subprocess
import sys

import msgspec

from shiplap.drawing.capture import picture_after_plan, picture_of_claims, picture_of_cluster
from shiplap.drawing.picture import Amounts, NodePictureState
from shiplap.instances.catalog.type_catalog import InstanceType, LearnedCapacity, Observation, Offering
from shiplap.instances.offerings.node_prices import NodePrices
from shiplap.kubernetes.objects import Node, Pod
from shiplap.manifests.nodeclaim import ClaimState, PodReference
from shiplap.scheduling.model.scheduling_plan import LaunchChoice, Placement, Plan, PlannedClaim, Unschedulable
from shiplap.scheduling.model.snapshot import ClusterView, NodeClassCatalog, Snapshot
from tests.builders.claims import with_fields
from tests.builders.nodes import node_object
from tests.builders.pods import UNSCHEDULABLE, pod_object
from tests.unit.drawing.captured import CLAIM, GIB, NOW


def node(name: str, *, pool: str = "web", ready: bool | None = True, **more: object) -> Node:
    sold = {"pool": pool, "capacity_type": "spot" if pool else ""}
    return msgspec.convert(node_object(name, **sold, instance_type="m5.large", zone="z1", ready=ready) | more, Node)


def pod(name: str, on: str = "", cpu: str = "500m", phase: str = "", **meta: object) -> Pod:
    waits = UNSCHEDULABLE | {"message": "0/1 nodes are available"}
    status = {"phase": phase, "conditions": [] if on else [waits]}
    body = pod_object(name, cpu, "1Gi", namespace="shop", node=on, metadata={"uid": f"uid-{name}", **meta})
    return msgspec.convert(body | {"status": status}, Pod)


def test_nodes_carry_their_pods_and_what_they_cost() -> None:
    pods = [pod("small", "n1", "250m"), pod("large", "n1", "1"), pod("over", "n1", phase="Succeeded"), pod("waits")]
    offered = (Offering("z1", "spot", 0.03), Offering("z1", "on-demand", 0.096))
    prices = NodePrices(others={"m5.large": offered})
    picture = picture_of_cluster("c", NOW, [node("n1"), node("foreign", pool="")], pods, prices=prices)
    foreign, ours = picture.nodes
    assert [each.name for each in ours.pods] == ["large", "small"]
    assert ours.used == Amounts(1250, 2 * GIB, 2)
    assert ours.allocatable == Amounts(2000, 8 * GIB, 29)
    assert (ours.pool, ours.capacity_type, ours.hourly, ours.list_hourly) == ("web", "spot", 0.03, 0.096)
    assert (foreign.pool, foreign.hourly) == ("", 0.096)
    assert [each.name for each in picture.pending] == ["waits"]
    assert picture.pending[0].reason == "0/1 nodes are available"
    assert picture.pools == ("web", "")
    assert picture.hourly == 0.03 + 0.096


def test_what_a_claim_was_bought_for_is_what_its_node_costs() -> None:
    known = with_fields(CLAIM, name="x", state=ClaimState.INITIALIZED, node_name="n1", hourly=0.5, tier=1)
    (drawn,) = picture_of_cluster("c", NOW, [node("n1")], [], [known]).nodes
    assert (drawn.hourly, drawn.tier, drawn.state) == (0.5, 1, NodePictureState.READY)


def test_a_node_in_service_has_the_same_memory_from_its_report_as_from_its_node() -> None:
    """`status` reads claims and reports, `top` reads Nodes: a plan counts on less than most nodes have."""

    def observed(node_name: str, memory_gib: int, ami: str = "ami-1", cluster: str = "c") -> Observation:
        amounts = {"cpu": 2000, "memory": memory_gib * GIB, "pods": 29}
        return Observation(ami, "m5.large", "h", amounts, amounts, NOW, cluster, node_name)

    planned = {"cpu": 1900, "memory": 6 * GIB, "pods": 29}
    ours = {"ami": "ami-1", "instance_type": "m5.large", "kubelet_hash": "h", "allocatable": planned}
    claims = [
        with_fields(CLAIM, name="own", state=ClaimState.INITIALIZED, node_name="n1", instance_id="i-1", **ours),
        with_fields(CLAIM, name="like", state=ClaimState.INITIALIZED, node_name="n2", instance_id="i-2", **ours),
        with_fields(CLAIM, name="coming", state=ClaimState.LAUNCHED, node_name="n3", instance_id="i-3", **ours),
        with_fields(
            CLAIM,
            name="other",
            state=ClaimState.INITIALIZED,
            node_name="n4",
            instance_id="i-4",
            **{**ours, "ami": "ami-2"},
        ),
    ]
    reports = (observed("n1", 8), observed("n1", 5, cluster="d"), observed("x", 7))
    learned = (LearnedCapacity("ami-1", "m5.large", "h", reports),)
    drawn = {
        item.name: item.allocatable.memory_bytes // GIB
        for item in picture_of_claims("c", NOW, claims, None, learned).nodes
    }
    assert drawn == {"n1": 8, "n2": 7, "n3": 6, "n4": 6}
    (of_node,) = picture_of_cluster("c", NOW, [node("n1")], []).nodes
    assert of_node.allocatable.memory_bytes // GIB == drawn["n1"]


def test_states_of_nodes() -> None:
    nodes = [
        node("broken", ready=False),
        node("cordoned", spec={"unschedulable": True}),
        node("doomed", metadata={"name": "doomed", "deletionTimestamp": "2025-06-15T15:00:00Z"}),
        node("from-a-file", ready=None),
        node("leaving"),
    ]
    claims = [with_fields(CLAIM, name="l", state=ClaimState.DRAINING, node_name="leaving", failure="SpotInterruption")]
    drawn = {each.name: (each.state, each.note) for each in picture_of_cluster("c", NOW, nodes, [], claims).nodes}
    assert drawn == {
        "broken": (NodePictureState.NOT_READY, "kubelet is not ready"),
        "cordoned": (NodePictureState.READY, "cordoned"),
        "doomed": (NodePictureState.LEAVING, "is being deleted"),
        "from-a-file": (NodePictureState.READY, ""),
        "leaving": (NodePictureState.LEAVING, "SpotInterruption"),
    }


def test_a_claim_in_flight_shows_the_pods_it_is_for() -> None:
    flying = with_fields(
        CLAIM,
        name="f",
        state=ClaimState.LAUNCHED,
        pods=(PodReference("shop", "waits", "uid-waits"), PodReference("shop", "gone", "uid-gone")),
        requests={"cpu": 1200, "memory": 3 * GIB},
        allocatable={"cpu": 2000, "memory": 8 * GIB, "pods": 29},
        instance_types=("m5.large",),
    )
    over = with_fields(CLAIM, name="o", state=ClaimState.FAILED)
    (drawn,) = picture_of_cluster("c", NOW, [], [pod("waits")], [flying, over]).nodes
    assert (drawn.name, drawn.state, drawn.instance_type) == ("f", NodePictureState.STARTING, "m5.large")
    assert [(each.name, each.fresh) for each in drawn.pods] == [("waits", True)]
    assert drawn.used == Amounts(1200, 3 * GIB, 2)


def test_the_oldest_pod_waits_first_and_ages_are_never_negative() -> None:
    pods = [
        pod("young", creationTimestamp="2025-06-15T15:00:00Z"),
        pod("old", creationTimestamp="2025-06-15T14:00:00Z"),
        pod("ahead", creationTimestamp="2026-06-15T15:00:00Z"),
        pod("ending", deletionTimestamp="2025-06-15T15:00:00Z"),
    ]
    waiting = picture_of_cluster("c", NOW, [], pods).pending
    assert [each.name for each in waiting] == ["old", "young", "ahead"]
    assert waiting[2].age_s == 0


def test_a_plan_come_true() -> None:
    kind = InstanceType("m5.large", (), {"cpu": 2000}, {}, (Offering("z1", "on-demand", 0.096),))
    snapshot = Snapshot(
        cluster="c",
        now=NOW,
        view=ClusterView(pods=(pod("there", "n1"), pod("joins"), pod("new"), pod("stuck")), nodes=(node("n1"),)),
        catalogs=(NodeClassCatalog("default", (kind,)),),
    )
    planned = PlannedClaim(
        name="web-1",
        node_pool="web",
        node_class="default",
        tier=1,
        requirements=(),
        taints=(),
        labels={},
        instance_types=("m5.large",),
        launch=LaunchChoice("m5.large", "z1", "on-demand", 0.096),
        requests={"cpu": 700, "memory": GIB},
        pods=(PodReference("shop", "new"),),
        reasons=("flex is out of capacity",),
        allocatable={"cpu": 1900, "memory": 7 * GIB, "pods": 29},
    )
    plan = Plan(
        node_claims=(planned,),
        existing_nodes=(Placement("n1", (PodReference("shop", "joins"),)),),
        unschedulable=(Unschedulable(PodReference("shop", "stuck"), "fits nothing"),),
    )
    after = picture_after_plan(snapshot, plan, NodePrices(others={"m5.large": kind.offerings}))
    kept, new = after.nodes
    assert [(each.name, each.fresh) for each in kept.pods] == [("there", False), ("joins", True)]
    assert kept.used == Amounts(1000, 2 * GIB, 2)
    assert (new.name, new.state, new.tier, new.note) == (
        "web-1",
        NodePictureState.PLANNED,
        1,
        "flex is out of capacity",
    )
    assert (new.hourly, new.list_hourly, new.used.millicores) == (0.096, 0.096, 700)
    assert [(each.name, each.reason) for each in after.pending] == [("stuck", "fits nothing")]


def test_drawing_needs_no_package_beside_msgspec() -> None:
    """A Lambda draws: numpy and botocore would be most of its cold start."""
    program = (
        "import pkgutil, importlib, sys, shiplap.drawing as d\n"
        "[importlib.import_module(f'shiplap.drawing.{m.name}') for m in pkgutil.iter_modules(d.__path__)]\n"
        "print(sorted({'numpy', 'botocore', 'boto3', 'rich', 'typer', 'yaml', 'urllib3'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)  # noqa: S603
    assert done.stdout.strip() == "[]"
