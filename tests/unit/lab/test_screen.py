"""The live picture keeps what matters on a terminal of ordinary width."""

from __future__ import annotations

import msgspec
from rich.console import Console

from shiplap.manifests.nodeclaim import ClaimState
from shiplap_lab.checks.observation import ClusterObservation, RegionObservation
from shiplap_lab.dev import dev_report, screen
from shiplap_lab.dev.dev_report import DevReport, Latency, NodeReport
from tests.builders.claims import with_fields
from tests.builders.nodes import node
from tests.builders.pods import pod
from tests.unit.lab.played_claims import CLAIM

NODE = node(
    "ip-10-0-0-4.ec2.internal",
    "8",
    "16Gi",
    instance_type="c7i-flex.12xlarge",
    ready=True,
    provider_id="aws:///us-east-1a/i-1",
)
RUNNING = with_fields(CLAIM, node_name="", node_pool="general", tier=1, hourly=12.3456)
PLANNED = with_fields(
    CLAIM, name="general-abcdefgh", instance_id="", instance_type="", node_name="", state=ClaimState.PLANNED, hourly=0.0
)


def drawn(*clusters: ClusterObservation, say: str = "Pods wait") -> str:
    console = Console(width=120)
    with console.capture() as captured:
        console.print(screen.frame("A title", say, RegionObservation(clusters), []))
    return captured.get()


def test_nodes_show_pool_tier_state_fill_pods_and_price() -> None:
    pods = (
        *(pod(f"web-{place}", memory="1Gi", node=NODE.metadata.name) for place in range(12)),
        pod("web-12", memory="1Gi"),
        pod("db-0", memory="1Gi"),
    )
    text = drawn(ClusterObservation("c", pods, (NODE,), (), (RUNNING, PLANNED)))
    (line,) = (line for line in text.splitlines() if "ip-10-0-0-4" in line)
    for word in ("c7i-flex.12xlarge", "general tier 1", "Ready", "75%", "web x12", "12.3456"):
        assert word in line
    assert "waiting: db-0, web-12" in text
    assert "general-abcdefgh" in text
    assert "Planned" in text
    assert max(map(len, text.splitlines())) <= 120


def test_a_long_wait_takes_one_line() -> None:
    text = drawn(say="Pods wait  [flex first: not bound: " + ", ".join(f"default/web-{n}" for n in range(50)) + "]")
    assert sum("default/web" in line for line in text.splitlines()) == 1


def test_what_has_not_happened_has_no_figure() -> None:
    assert "launched after" not in drawn(ClusterObservation("c", (pod("web-0", memory="1Gi"),)))
    assert "no node" in drawn(ClusterObservation("c", (pod("web-0", memory="1Gi"),)))


def test_a_miss_is_told_in_numbers() -> None:
    """The plan counted on 15 GiB; the kubelet reports 14."""
    small = node("n", "4", "14Gi", ready=True, provider_id="aws:///us-east-1a/i-1")
    missed = with_fields(
        CLAIM, node_name="n", missed=True, instance_type="m5.large", allocatable={"cpu": 4000, "memory": 15 * 2**30}
    )
    happened: list[str] = []

    screen.remember(happened, RegionObservation((ClusterObservation("c", (), (small,), (), (missed,)),)))

    (line,) = (line for line in happened if "MISSED" in line)
    assert "m5.large has 14Gi of memory for pods instead of 15Gi" in line
    assert "cpu" not in line


def test_a_miss_of_a_node_that_is_gone_is_told_without_numbers() -> None:
    missed = with_fields(CLAIM, node_name="n", missed=True, instance_type="m5.large", allocatable={"memory": 2**30})
    happened: list[str] = []

    screen.remember(happened, RegionObservation((ClusterObservation("c", (), (), (), (missed,)),)))

    assert any("MISSED" in line and "less than predicted" in line for line in happened)


def test_the_report_explains_an_empty_node_that_is_still_paid_for() -> None:
    empty = NodeReport("ip-1.ec2.internal", "m5.large", "a", "spot", "web", 0, 0, "ami-1", 0.25)
    foreign = msgspec.structs.replace(empty, name="ip-2", node_pool="", hourly=0.0)
    full = msgspec.structs.replace(empty, name="ip-3", pods=2)
    report = DevReport("s", 2, 2, (empty, foreign, full), 0, 2, 0.5, Latency(0.1, 0.2), {})
    console = Console(width=120)
    with console.capture() as captured:
        console.print(dev_report.table(report))

    text = " ".join(captured.get().split())
    assert "ip-1: empty, 0.2500 USD/h until `disrupt`" in text
    assert "ip-2: empty" not in text
    assert "ip-3: empty" not in text
