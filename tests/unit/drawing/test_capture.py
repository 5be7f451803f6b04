"""Pictures of a cluster: what they take from nodes, pods, claims and plans."""

from __future__ import annotations

import subprocess
import sys
from functools import partial

from msgspec.structs import replace

from shiplap.drawing.capture import picture_after_plan, picture_of_claims, picture_of_cluster
from shiplap.drawing.picture import Amounts, NodePictureState
from shiplap.instances.catalog.type_catalog import InstanceType, LearnedCapacity, Observation, Offering
from shiplap.instances.offerings.node_prices import NodePrices
from shiplap.kubernetes.objects import NodeStatus
from shiplap.manifests.nodeclaim import ClaimState, PodReference
from shiplap.scheduling.model.scheduling_plan import Placement, Plan, Unschedulable
from shiplap.scheduling.model.snapshot import ClusterView, NodeClassCatalog, Snapshot
from tests.builders.claims import planned_claim, with_fields
from tests.builders.nodes import node as any_node
from tests.builders.pods import UNSCHEDULABLE
from tests.builders.pods import pod as any_pod
from tests.unit.drawing.captured import CLAIM, GIB, NOW

node = partial(
    any_node, cpu="2", memory="8Gi", pods="29", pool="web", capacity_type="spot", instance_type="m5.large", zone="z1"
)
pod = partial(any_pod, cpu="500m", memory="1Gi", namespace="shop")
waits = partial(pod, status={"conditions": [UNSCHEDULABLE | {"message": "0/1 nodes are available"}]})


def test_nodes_carry_their_pods_and_what_they_cost() -> None:
    pods = [
        pod("small", cpu="250m", node="n1"),
        pod("large", cpu="1", node="n1"),
        pod("over", node="n1", phase="Succeeded"),
        waits("waits"),
    ]
    offered = (Offering("z1", "spot", 0.03), Offering("z1", "on-demand", 0.096))
    prices = NodePrices(others={"m5.large": offered})
    picture = picture_of_cluster(
        "c", NOW, [node("n1"), node("foreign", pool="", capacity_type="")], pods, prices=prices
    )
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
        node("cordoned", cordoned=True),
        node("doomed", deleting=True),
        replace(node("from-a-file"), status=NodeStatus()),
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
    (drawn,) = picture_of_cluster("c", NOW, [], [waits("waits")], [flying, over]).nodes
    assert (drawn.name, drawn.state, drawn.instance_type) == ("f", NodePictureState.STARTING, "m5.large")
    assert [(each.name, each.fresh) for each in drawn.pods] == [("waits", True)]
    assert drawn.used == Amounts(1200, 3 * GIB, 2)


def test_a_pod_that_a_claim_in_flight_is_for_is_drawn_once_where_a_plan_has_it_there_as_well() -> None:
    flying = with_fields(
        CLAIM, name="f", state=ClaimState.LAUNCHED, pods=(PodReference("shop", "waits", "uid-waits"),), requests={}
    )
    view = ClusterView(pods=(waits("waits"), waits("more")))
    snapshot = Snapshot(cluster="c", now=NOW, view=view, claims=(flying,))
    known, more = PodReference("shop", "waits"), PodReference("shop", "more")
    both = Plan(existing_nodes=(Placement("f", (known, more)),))
    (drawn,) = picture_after_plan(snapshot, both, NodePrices()).nodes
    assert [each.name for each in drawn.pods] == ["waits", "more"]
    one = Plan(existing_nodes=(Placement("f", (more,)),))
    assert picture_after_plan(snapshot, one, NodePrices()).nodes[0].used == drawn.used


def test_the_oldest_pod_waits_first_and_ages_are_never_negative() -> None:
    pods = [
        waits("young", metadata={"creationTimestamp": "2025-06-15T15:00:00Z"}),
        waits("old", metadata={"creationTimestamp": "2025-06-15T14:00:00Z"}),
        waits("ahead", metadata={"creationTimestamp": "2026-06-15T15:00:00Z"}),
        waits("ending", deleting=True),
    ]
    waiting = picture_of_cluster("c", NOW, [], pods).pending
    assert [each.name for each in waiting] == ["old", "young", "ahead"]
    assert waiting[2].age_s == 0


def test_a_plan_come_true() -> None:
    kind = InstanceType("m5.large", (), {"cpu": 2000}, {}, (Offering("z1", "on-demand", 0.096),))
    snapshot = Snapshot(
        cluster="c",
        now=NOW,
        view=ClusterView(pods=(pod("there", node="n1"), *map(waits, ("joins", "new", "stuck"))), nodes=(node("n1"),)),
        catalogs=(NodeClassCatalog("default", (kind,)),),
    )
    planned = planned_claim(
        name="web-1",
        node_pool="web",
        tier=1,
        zone="z1",
        price=0.096,
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
