"""The comparison with Karpenter's scheduler: the price rule, the judge of both plans, the bars. No Go is needed."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from benchmarks.karpenter import karpenter_comparison
from benchmarks.karpenter.karpenter_comparison import Compared, Side, compare_all, missed_bars, ours, summary, theirs
from benchmarks.karpenter.launched_nodes import Verdict, judge, launch
from benchmarks.karpenter.random_batches import (
    DAEMONS,
    HOST,
    NODE_CLASS,
    REQUIRED,
    ZONE,
    Batch,
    catalogues,
    drawn,
    fixed,
)
from shiplap.manifests.custom_resources import RequirementSpec
from shiplap.scheduling.packing import strategies
from tests import go_modules
from tests.e2e.programs import ProgramsMissing
from tests.karpenter.karpenter_scheduler import (
    KarpenterScheduler,
    LaunchedOffering,
    OpenedClaim,
    ScheduledBatch,
    as_line,
    read_answer,
)

ZONES = ("test-zone-1", "test-zone-2", "test-zone-3")
KIND, ARCH = "karpenter.sh/capacity-type", "kubernetes.io/arch"
FOUR, EIGHT = "fake-it-3", "fake-it-7"
"""Fake types of four and eight vCPUs; a vCPU costs 0.1 USD, 10⁹ bytes of memory 0.1 USD, a node has 2 GiB per vCPU."""


def pod(name: str, cpu: str = "1", app: str = "web", **spec: Any) -> dict[str, Any]:
    container = {"name": "app", "resources": {"requests": {"cpu": cpu}}, "ports": spec.pop("ports", [])}
    metadata = {"name": name, "namespace": "default", "uid": name, "labels": {"app": app}}
    return {"metadata": metadata, "spec": {"containers": [container], **spec}}


def spread(key: str, app: str = "web", skew: int = 1) -> dict[str, Any]:
    rule = {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule"}
    return {"topologySpreadConstraints": [{**rule, "labelSelector": {"matchLabels": {"app": app}}}]}


def near_or_away(kind: str, key: str, app: str = "web") -> dict[str, Any]:
    return {"affinity": {kind: {REQUIRED: [{"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}]}}}


def batch(*pods: dict[str, Any], daemons: bool = False, **pool: Any) -> Batch:
    limits = {"limits": pool.pop("limits")} if "limits" in pool else {}
    spec = {"template": {"spec": {"nodeClassRef": NODE_CLASS, "requirements": [], **pool}}, **limits}
    sets = [
        {
            "metadata": {"name": "agent", "namespace": "kube-system"},
            "spec": {"template": {"spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "500m"}}}]}}},
        }
    ]
    return Batch("test", "fake", [{"metadata": {"name": "default"}, "spec": spec}], pods, sets if daemons else ())


def claim(
    *pods: str, types: tuple[str, ...] = (FOUR,), price: float = 0.829, pool: str = "default", **values: str
) -> OpenedClaim:
    """A claim whose requirements are `zone`, `kind` or `arch` with one value each."""
    keys = {"zone": ZONE, "kind": KIND, "arch": ARCH}
    rules = tuple(RequirementSpec(keys[name], "In", (value,)) for name, value in values.items())
    return OpenedClaim(pool, rules, types, LaunchedOffering("", "", "", price), pods)


PRICE = 4 * 0.1 + 8 * 2**30 / 1e9 * 0.1


def judged(of: Batch, *claims: OpenedClaim, left_out: dict[str, str] | None = None) -> tuple[str, ...]:
    right = tuple(msgspec.structs.replace(one, launch=_launch(of, one)) for one in claims)
    return judge(of, ScheduledBatch(right, left_out or {})).violations


def _launch(of: Batch, one: OpenedClaim) -> LaunchedOffering:
    node = launch(of, one, "node")
    return node.offering if node is not None else one.launch


def test_a_claim_costs_the_cheapest_offering_that_it_allows() -> None:
    verdict = judge(batch(pod("a")), ScheduledBatch((claim("a", types=(EIGHT, FOUR), price=PRICE),), {}))
    assert verdict == Verdict(PRICE, 1, 1, ())


def test_equal_prices_are_told_apart_by_name() -> None:
    node = launch(batch(pod("a")), claim("a"), "node")
    assert node is not None
    assert (node.offering.zone, node.offering.capacity_type) == ("test-zone-1", "on-demand")
    assert (node.labels["integer"], node.labels["size"], node.labels[HOST]) == ("4", "small", "node")


def test_requirements_decide_zone_and_capacity_type() -> None:
    node = launch(batch(pod("a")), claim("a", zone="test-zone-2", kind="spot"), "node")
    assert node is not None
    assert (node.offering.zone, node.offering.capacity_type) == ("test-zone-2", "spot")


def test_a_plan_without_mistakes_has_no_violations() -> None:
    pods = [pod(f"a{place}", **spread(ZONE)) for place in range(3)]
    claims = [claim(f"a{place}", zone=zone) for place, zone in enumerate(ZONES)]
    assert judged(batch(*pods, daemons=True), *claims) == ()


def test_the_price_that_a_scheduler_states_is_checked() -> None:
    [text] = judge(batch(pod("a")), ScheduledBatch((claim("a", price=0.5),), {})).violations
    assert text == f"node-00000 costs {PRICE}, not 0.5 as the scheduler says"


def test_pods_are_named_once() -> None:
    of = batch(pod("a"), pod("b"), pod("c"))
    texts = judged(of, claim("a", "a"), claim("d"), left_out={"b": "too large"})
    assert texts[:3] == ("a is named 2 times", "c is named 0 times", "d is not in the batch")


@pytest.mark.parametrize(
    ("of", "claims", "text"),
    [
        (batch(pod("a")), [claim("a", arch="arm64")], "claim 0 allows no offering"),
        (batch(pod("a")), [claim("a", types=())], "claim 0 allows no offering"),
        (batch(pod("a")), [claim("a", pool="other")], "node-00000: there is no NodePool other"),
        (batch(pod("a")), [claim("a"), claim()], "node-00001: holds no pod"),
        (
            batch(pod("a"), requirements=[{"key": KIND, "operator": "In", "values": ["spot"]}]),
            [claim("a")],
            "node-00000: does not meet the requirements of its NodePool",
        ),
        (
            batch(pod("a"), taints=[{"key": "dedicated", "value": "jobs", "effect": "NoSchedule"}]),
            [claim("a")],
            "node-00000: a does not tolerate the taints",
        ),
        (
            batch(pod("a", nodeSelector={ARCH: "arm64"})),
            [claim("a")],
            "node-00000: a is not allowed on its labels",
        ),
        (batch(pod("a", "4")), [claim("a")], f"node-00000: cpu 4000 of 3900 on {FOUR}"),
        (batch(pod("a", "3500m"), daemons=True), [claim("a")], f"node-00000: cpu 4000 of 3900 on {FOUR}"),
        (
            batch(*(pod(name, ports=[{"containerPort": 80, "hostPort": 80}]) for name in "ab")),
            [claim("a", "b")],
            "node-00000: b and a both take host port 80/TCP",
        ),
        (
            batch(pod("a"), pod("b"), limits={"cpu": "7"}),
            [claim("a"), claim("b")],
            "NodePool default: 8000 cpu, limit 7",
        ),
    ],
)
def test_each_mistake_of_a_node_is_found(of: Batch, claims: list[OpenedClaim], text: str) -> None:
    assert judged(of, *claims) == (text,)


def test_zone_skew_is_found() -> None:
    of = batch(*(pod(name, **spread(ZONE)) for name in "abcd"))
    claims = [claim("a", "b", "c", zone=ZONES[0]), claim("d", zone=ZONES[1])]
    assert judged(of, *claims) == ("no order binds c to node-00000",)


def test_zones_of_nodes_for_other_pods_count_as_empty() -> None:
    of = batch(pod("a", **spread(ZONE)), pod("b", **spread(ZONE)), pod("c", app="other"))
    claims = [claim("a", "b", zone=ZONES[0]), claim("c", zone=ZONES[1])]
    assert judged(of, *claims) == ("no order binds b to node-00000",)


def test_zones_that_a_pod_may_not_use_do_not_count() -> None:
    first = {"nodeSelector": {ZONE: ZONES[0]}}
    of = batch(pod("a", **spread(ZONE), **first), pod("b", **spread(ZONE), **first), pod("c", app="other"))
    assert judged(of, claim("a", "b", zone=ZONES[0]), claim("c", zone=ZONES[1])) == ()


def test_pods_that_a_spread_counts_may_bind_after_those_that_it_binds() -> None:
    of = batch(*(pod(f"z{place}") for place in range(3)), *(pod(name, **spread(ZONE)) for name in "ab"))
    claims = [claim("a", "z0", "z1", zone=ZONES[0]), claim("b", "z2", zone=ZONES[1])]
    assert judged(of, *claims) == ()


def test_skew_over_nodes_is_found() -> None:
    of = batch(*(pod(name, **spread(HOST, skew=2)) for name in "abc"))
    assert judged(of, claim("a", "b", "c")) == ("no order binds c to node-00000",)
    assert judged(of, claim("a", "b"), claim("c")) == ()


def test_pods_that_want_each_other_in_two_zones_are_found() -> None:
    of = batch(*(pod(name, **near_or_away("podAffinity", ZONE)) for name in "abc"))
    claims = [claim("a", "b", zone=ZONES[0]), claim("c", zone=ZONES[1])]
    assert judged(of, *claims) == ("no order binds c to node-00001",)
    assert judged(of, claim("a", "b", "c")) == ()


def test_pods_that_follow_others_wait_for_them() -> None:
    of = batch(pod("a", **near_or_away("podAffinity", ZONE, "db")), pod("z", app="db"))
    assert judged(of, claim("a", zone=ZONES[0]), claim("z", zone=ZONES[0])) == ()
    assert judged(of, claim("a", zone=ZONES[0]), claim("z", zone=ZONES[1])) == ("no order binds a to node-00000",)


@pytest.mark.parametrize("owners", ["ab", "a", "b"])
def test_pods_that_keep_apart_on_one_node_are_found(owners: str) -> None:
    away = near_or_away("podAntiAffinity", HOST)
    of = batch(*(pod(name, **(away if name in owners else {})) for name in "ab"))
    [text] = judged(of, claim("a", "b"))
    assert text in ("no order binds a to node-00000", "no order binds b to node-00000")
    assert judged(of, claim("a"), claim("b")) == ()


def test_karpenters_answer_is_read() -> None:
    line = json.dumps(
        {
            "claims": [
                {
                    "nodePool": "default",
                    "requirements": [{"key": ZONE, "operator": "In", "values": [ZONES[2]]}],
                    "instanceTypes": [FOUR, EIGHT],
                    "launch": {"instanceType": FOUR, "zone": ZONES[2], "capacityType": "on-demand", "price": PRICE},
                    "pods": ["a"],
                }
            ],
            "leftOut": {"b": "too large"},
            "cpuSeconds": 0.25,
        }
    )
    answer = read_answer(line.encode())
    verdict = judge(batch(pod("a"), pod("b")), answer)
    assert verdict == Verdict(PRICE, 1, 1, ())
    assert (answer.left_out, answer.cpu_seconds) == ({"b": "too large"}, 0.25)


def test_a_batch_is_written_with_the_pods_of_daemon_sets() -> None:
    [_, _, of] = fixed()
    line = of.for_karpenter()
    assert [daemon["metadata"]["name"] for daemon in line["daemonPods"]] == list(DAEMONS)
    assert line["pods"][0]["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    assert (line["catalogue"], len(line["pods"])) == ("ec2", 200)


def test_the_large_batch_is_that_of_karpenters_own_benchmark() -> None:
    [benchmark, *others] = fixed(large=True)
    assert (len(benchmark.pods), benchmark.catalogue, len(benchmark.types)) == (10_000, "fake", 400)
    assert [item.name for item in others] == [item.name for item in fixed()]


def test_times_are_those_in_the_middle_of_all_runs() -> None:
    """The plan in the middle by price counts, whatever it took."""

    answers = iter(
        [
            ScheduledBatch((), {"a": "no"}, 9.0),
            ScheduledBatch((claim("a", types=(EIGHT,)),), {}, 2.0),
            ScheduledBatch((claim("a", types=(FOUR,)),), {}, 1.0),
        ]
    )

    class Scheduler:
        def schedule(self, _: object) -> ScheduledBatch:
            return next(answers)

    side = theirs(batch(pod("a")), cast(KarpenterScheduler, Scheduler()), 3)
    assert (side.verdict.placed, side.verdict.hourly, side.cpu_s) == (1, PRICE, 2.0)
    assert compared("x", 10, 9, 8).faster_by(Side(Verdict(1, 1, 1, ()), 0.05)) == 2.0


def test_what_passes_between_the_programs_is_kept(tmp_path: Path) -> None:
    echo = tmp_path / "echo"
    echo.write_text(
        '#!/bin/sh\nread catalogues\nread batch\necho \'{"claims": [], "leftOut": {}, "cpuSeconds": 0.5}\'\n'
    )
    echo.chmod(0o700)
    asked = batch(pod("a"))
    with KarpenterScheduler(echo, catalogues(), tmp_path / "dump") as karpenter:
        answer = karpenter.schedule(asked.for_karpenter())
    catalogue, written = (tmp_path / "dump" / "batches.jsonl").read_bytes().splitlines(keepends=True)
    assert written == as_line(asked.for_karpenter())
    assert list(json.loads(catalogue)["catalogues"]) == ["fake", "ec2"]
    assert read_answer((tmp_path / "dump" / "claims.jsonl").read_bytes()) == answer


def test_the_same_seed_draws_the_same_batches() -> None:
    assert [of.pods for of in drawn(3, 5)] == [of.pods for of in drawn(4, 5)[:3]]
    assert drawn(1, 5)[0].pods != drawn(1, 6)[0].pods
    assert all(1 <= len(of.pods) <= 2000 for of in drawn(40, 5))


def test_batches_of_few_pods_can_be_left_out() -> None:
    large = [of.name for of in drawn(40, 5) if len(of.pods) >= 300]
    assert [of.name for of in drawn(len(large), 5, 300)] == large


def test_our_plans_of_small_batches_are_valid() -> None:
    small = [of for of in drawn(30, 7) if len(of.pods) < 40][:4]
    for of in small:
        side = ours(of, 0.0)
        assert side.verdict.violations == ()
        assert side.verdict.placed == len(of.pods)


def compared(
    name: str, karpenter: float, plain: float, searched: float, *, placed: int = 5, karpenter_s: float = 0.1
) -> Compared:
    def side(hourly: float, number: int = 5, cpu_s: float = 0.1) -> Side:
        return Side(Verdict(hourly, number, 1, ()), cpu_s)

    return Compared(name, 5, side(karpenter, placed, karpenter_s), side(plain), side(searched))


def test_bars_that_hold() -> None:
    batches = [compared(f"b{place}", 10, 8, 8) for place in range(50)]
    assert missed_bars([compared("fixed", 10, 10, 9)], [*batches, compared("dearer", 10, 10.1, 10)]) == []


def test_bars_that_are_missed() -> None:
    batches = [compared("even", 10, 9.5, 9), compared("dearer", 10, 10.3, 10)]
    assert missed_bars([compared("fixed", 10, 10.1, 9)], batches) == [
        "fixed: ours without search is 1.00 % dearer",
        "the sum is -1.00 %, the bar is -10 %",
        "1 of 2 are dearer, the bar is 2 %",
        "dearer: ours without search is 3.00 % dearer",
    ]


def test_batches_of_which_other_pods_are_placed_are_not_compared() -> None:
    fewer, more = compared("fewer", 1, 10, 10, placed=4), compared("more", 10, 1, 1, placed=6)
    assert missed_bars([], [fewer, compared("same", 10, 9, 8)]) == []
    assert missed_bars([], [more]) == [
        "more: ours without search places 1 pods less",
        "more: ours with search places 1 pods less",
        "no batch can be compared",
    ]
    assert summary([fewer]) == "no batch can be compared"
    assert summary([fewer, compared("same", 10, 9, 8)]).splitlines()[:3] == [
        "1 of 2 batches place the same pods",
        "ours without search: 9.00 of 10.00 USD/h (-10.00 %), dearer in 0 (0.0 %), by -10.00 % at most",
        "ours with search: 8.00 of 10.00 USD/h (-20.00 %), dearer in 0 (0.0 %), by -20.00 % at most",
    ]


def test_speed_is_told_by_the_median_and_the_worst_batch() -> None:
    batches = [compared(f"took {took} s", 10, 9, 8, karpenter_s=took) for took in (0.05, 0.09, 0.3, 0.4, 2.0)]
    told = "3.0 times as fast in the median, slower in 2 of 5, by 50 ms at most"
    lines = summary(batches).splitlines()
    assert lines[3:6] == [
        "processor seconds: Karpenter 2.8, ours 0.5, with search 0.5",
        f"ours without search: {told}",
        f"ours with search: {told}",
    ]


def test_our_violations_miss_the_bars() -> None:
    one = compared("same", 10, 9, 8)
    broken = Compared(one.name, 5, one.karpenter, Side(Verdict(9, 5, 1, ("a", "b")), 0.1), one.searched)
    assert missed_bars([], [broken]) == ["same: ours without search: a"]


def test_there_is_a_reason_where_there_is_no_go(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def without_go() -> Path:
        raise ProgramsMissing("there is no Go")

    monkeypatch.setattr(karpenter_comparison, "build", without_go)
    monkeypatch.setattr(sys, "argv", ["karpenter_comparison.py"])
    assert karpenter_comparison.main() == karpenter_comparison.NO_GO
    assert capsys.readouterr().out == "skipped: there is no Go\n"


def test_all_programs_of_karpenters_core_are_of_the_release_whose_files_tests_read() -> None:
    root = Path(go_modules.__file__).parents[1]
    modules = [*root.glob("tests/karpenter/go.mod"), *root.glob("tests/e2e/*/go.mod")]
    pins = [re.findall(r"sigs\.k8s\.io/karpenter (v\S+)$", path.read_text(), re.MULTILINE) for path in modules]
    assert len(pins) == 3
    assert {f"sigs.k8s.io/karpenter@{version}" for found in pins for version in found} == {go_modules.KARPENTER_CORE[0]}


def test_small_batches_are_placed_in_several_orders_which_sometimes_find_a_cheaper_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """16 pods with spreads on Karpenter's fake types; the judge launches what the plan says."""
    batch = drawn(3, 77)[2]
    cheaper = ours(batch, 0.0).verdict
    monkeypatch.setattr(strategies, "ORDERS", strategies.ORDERS[:1])
    assert cheaper.hourly < ours(batch, 0.0).verdict.hourly
    assert (cheaper.placed, cheaper.violations) == (16, ())


def test_a_run_is_resumed_with_the_results_that_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def compare(of: Batch, *_: object) -> Compared:
        asked.append(of.name)
        return compared(of.name, 10, 9, 8)

    monkeypatch.setattr(karpenter_comparison, "compare", compare)
    first, second = Batch("first", "fake", [], []), Batch("second", "fake", [], [])
    karpenter, results = cast(KarpenterScheduler, None), tmp_path / "results"
    once = list(compare_all([first], karpenter, results))
    assert list(compare_all([first, second], karpenter, results)) == [*once, compared("second", 10, 9, 8)]
    assert asked == ["first", "second"]
