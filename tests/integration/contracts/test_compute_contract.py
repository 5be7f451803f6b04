"""The contract of Compute, held by the in-memory fake and by the adapter on the emulated EC2."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import msgspec
import pytest

from shiplap.errors import AwsError
from shiplap.ports import Compute, FleetRequest, FleetResult, Instance
from shiplap_lab.fakes.compute import FakeCompute
from shiplap_lab.fakes.signals import FakeClock
from tests.builders.claims import node_claim, with_fields
from tests.integration.contracts.emulated_ec2 import ZONES, Region, emulated_region
from tests.integration.contracts.fleet_requests import NODE_CLASS, request_for


class Bench(Protocol):
    """An implementation with its levers. All clusters and installs share one account."""

    def compute(self, cluster: str = "demo", install: str = "shiplap") -> Compute: ...
    def leave(self, count: int, instance_type: str, zone: str, capacity_type: str = "on-demand") -> None: ...
    def lag(self, seconds: float) -> None: ...
    def advance(self, seconds: float) -> None: ...
    def reboots(self) -> list[str]:
        """Ids of the instances that were rebooted, each as often as it was."""
        ...


class FakeBench:
    def __init__(self) -> None:
        self._clock = FakeClock(1_700_000_000.0)
        self._fake = FakeCompute(self._clock, zones=ZONES)
        self._rebooted: list[str] = []
        self._fake.on_reboot.append(lambda instance: self._rebooted.append(instance.id))

    def compute(self, cluster: str = "demo", install: str = "shiplap") -> Compute:
        return self._fake if install == self._fake.install else self._fake.beside(install)

    def leave(self, count: int, instance_type: str, zone: str, capacity_type: str = "on-demand") -> None:
        self._fake.capacity[instance_type, zone, capacity_type] = count

    def lag(self, seconds: float) -> None:
        self._fake.describe_lag_s = seconds

    def advance(self, seconds: float) -> None:
        self._clock.advance(seconds)

    def reboots(self) -> list[str]:
        return self._rebooted


class EmulatorBench:
    def __init__(self, region: Region) -> None:
        self._region = region
        region.empty()
        region.seed("demo")

    def compute(self, cluster: str = "demo", install: str = "shiplap") -> Compute:
        return self._region.compute(cluster, install)

    def leave(self, count: int, instance_type: str, zone: str, capacity_type: str = "on-demand") -> None:
        self._region.control.capacity(instance_type, zone, capacity_type, available=count)

    def lag(self, seconds: float) -> None:
        self._region.control.timing(describe_lag_s=seconds)

    def advance(self, seconds: float) -> None:
        self._region.control.advance(seconds)

    def reboots(self) -> list[str]:
        return [item.id for item in self._region.control.instances() for _ in range(item.reboots)]


@pytest.fixture(scope="module")
def region() -> Iterator[Region]:
    with emulated_region() as running:
        yield running


@pytest.fixture(params=["fake", "emulator"])
def bench(request: pytest.FixtureRequest) -> Bench:
    return FakeBench() if request.param == "fake" else EmulatorBench(request.getfixturevalue("region"))


def launched(result: FleetResult) -> Instance:
    assert result.instance is not None, result.failures
    return result.instance


def test_selectors_are_answered(bench: Bench) -> None:
    resolved = bench.compute().resolve(NODE_CLASS)
    assert resolved.name == "default"
    assert resolved.amis
    assert {subnet.zone for subnet in resolved.subnets} == set(ZONES)
    assert all(subnet.free_ips > 0 for subnet in resolved.subnets)
    assert resolved.security_groups
    assert resolved.instance_profile


def test_a_launch_gives_one_instance_that_says_whose_it_is(bench: Bench) -> None:
    compute = bench.compute()
    request = request_for(compute)
    result = compute.launch(request)
    instance = launched(result)
    assert (instance.instance_type, instance.zone, instance.capacity_type) == ("m5.large", ZONES[0], "on-demand")
    assert instance.ami == request.overrides[0].ami
    assert (instance.cluster, instance.claim, instance.node_pool) == ("demo", "default-1", "default")
    assert instance.provider_id == f"aws:///{ZONES[0]}/{instance.id}"
    assert result.failures == ()
    assert [seen.id for seen in compute.instances("demo")] == [instance.id]


def test_the_cheapest_offering_is_taken_whatever_the_order(bench: Bench) -> None:
    compute = bench.compute()
    offerings = ((0.192, "m5.xlarge", ZONES[0]), (0.096, "m5.large", ZONES[1]))
    assert launched(compute.launch(request_for(compute, offerings=offerings))).instance_type == "m5.large"


def test_spot_is_launched_as_spot(bench: Bench) -> None:
    compute = bench.compute()
    instance = launched(compute.launch(request_for(compute, capacity_type="spot")))
    assert instance.capacity_type == "spot"
    assert [seen.capacity_type for seen in compute.instances("demo")] == ["spot"]


def test_the_same_token_gives_the_same_instance(bench: Bench) -> None:
    compute = bench.compute()
    first = launched(compute.launch(request_for(compute)))
    again = launched(compute.launch(request_for(compute)))
    assert again.id == first.id
    assert len(compute.instances("demo")) == 1


def test_a_token_used_for_something_else_never_makes_a_second_instance(bench: Bench) -> None:
    compute = bench.compute()
    first = launched(compute.launch(request_for(compute)))
    other = request_for(compute, offerings=((0.192, "m5.xlarge", ZONES[1]),))
    assert _outcome(compute, other) in (first.id, "IdempotentParameterMismatch")
    assert [seen.id for seen in compute.instances("demo")] == [first.id]


def _outcome(compute: Compute, request: FleetRequest) -> str:
    """The instance's id, or the code of the error."""
    try:
        return launched(compute.launch(request)).id
    except AwsError as error:
        return error.code


def test_a_dry_offering_is_reported_and_the_next_one_taken(bench: Bench) -> None:
    compute = bench.compute()
    bench.leave(0, "m5.large", ZONES[0])
    offerings = ((0.096, "m5.large", ZONES[0]), (0.096, "m5.large", ZONES[1]), (0.192, "m5.xlarge", ZONES[0]))
    result = compute.launch(request_for(compute, offerings=offerings))
    assert (launched(result).instance_type, launched(result).zone) == ("m5.large", ZONES[1])
    [failure] = result.failures
    assert (failure.instance_type, failure.zone, failure.capacity_type) == ("m5.large", ZONES[0], "on-demand")
    assert (failure.code, failure.kind) == ("InsufficientInstanceCapacity", "capacity")


def test_when_everything_is_dry_there_is_no_instance_and_every_offering_is_reported(bench: Bench) -> None:
    compute = bench.compute()
    offerings = tuple((0.1, "m5.large", zone) for zone in ZONES)
    for zone in ZONES:
        bench.leave(0, "m5.large", zone)
    result = compute.launch(request_for(compute, offerings=offerings))
    assert result.instance is None
    assert [(failure.zone, failure.kind) for failure in result.failures] == [(zone, "capacity") for zone in ZONES]
    assert compute.instances("demo") == ()


def test_capacity_is_used_up_one_by_one(bench: Bench) -> None:
    compute = bench.compute()
    bench.leave(1, "m5.large", ZONES[0])
    assert compute.launch(request_for(compute, "a")).instance is not None
    assert compute.launch(request_for(compute, "b")).instance is None


def test_an_instance_is_found_by_its_launch_and_by_its_id(bench: Bench) -> None:
    compute = bench.compute()
    instance = launched(compute.launch(request_for(compute)))
    [found] = compute.launched("demo", "token-demo-default-1")
    assert compute.instance("demo", instance.id) == found
    assert (found.id, found.claim, found.cluster, found.zone) == (instance.id, "default-1", "demo", ZONES[0])
    assert found.launch == instance.launch == "token-demo-default-1"
    assert compute.launched("demo", "token") == compute.launched("other", "token-demo-default-1") == ()
    assert compute.instance("demo", "i-0123456789abcdef0") is None
    assert compute.instance("other", instance.id) is None


def test_claims_that_want_the_same_get_their_instances_from_one_launch(bench: Bench) -> None:
    compute = bench.compute()
    request = request_for(compute, "a", beside=("b", "c"))
    result = compute.launch(request)
    assert len({instance.id for instance in result.instances}) == 3
    assert {instance.claim for instance in result.instances} == {""}
    assert compute.launch(request).instances == result.instances
    shown = compute.launched("demo", request.token)
    assert [instance.id for instance in shown] == sorted(instance.id for instance in result.instances)
    assert {instance.claim for instance in shown} == {""}
    assert len(compute.instances("demo")) == 3


def test_an_instance_launched_with_others_gets_its_claims_name_later(bench: Bench) -> None:
    compute = bench.compute()
    first, second = compute.launch(request_for(compute, "a", beside=("b",))).instances
    for name, instance_id in (("a", second.id), ("b", "i-0123456789abcdef0")):
        claim = node_claim(cluster="demo", name=name, node_pool="default", node_class="default")
        compute.name(with_fields(claim, instance_id=instance_id))
    names = {instance.id: instance.claim for instance in compute.instances("demo")}
    assert names == {first.id: "", second.id: "a"}


def test_a_launch_that_is_short_takes_what_there_is_and_says_what_ran_dry(bench: Bench) -> None:
    compute = bench.compute()
    bench.leave(2, "m5.large", ZONES[0])
    bench.leave(1, "m5.large", ZONES[1])
    offerings = ((0.096, "m5.large", ZONES[0]), (0.096, "m5.large", ZONES[1]))
    result = compute.launch(request_for(compute, "a", beside=("b", "c", "d"), offerings=offerings))
    assert sorted(instance.zone for instance in result.instances) == [ZONES[0], ZONES[0], ZONES[1]]
    assert [(failure.zone, failure.kind) for failure in result.failures] == [
        (ZONES[0], "capacity"),
        (ZONES[1], "capacity"),
    ]


def test_a_launch_repeated_for_those_left_asks_for_as_many_as_before(bench: Bench) -> None:
    compute = bench.compute()
    request = request_for(compute, "a", beside=("b", "c"))
    first = compute.launch(request)
    left = msgspec.structs.replace(request, claims=request.claims[1:], count=3)
    assert compute.launch(left).instances == first.instances
    assert len(compute.instances("demo")) == 3


def test_a_launch_may_stay_invisible_for_a_while(bench: Bench) -> None:
    compute = bench.compute()
    bench.lag(10)
    request = request_for(compute)
    instance = launched(compute.launch(request))
    assert compute.launched("demo", request.token) == ()
    assert launched(compute.launch(request)).id == instance.id
    bench.advance(11)
    assert [found.id for found in compute.launched("demo", request.token)] == [instance.id]


def test_clusters_see_only_their_own(bench: Bench) -> None:
    mine, theirs = bench.compute("demo"), bench.compute("other")
    one = launched(mine.launch(request_for(mine)))
    two = launched(theirs.launch(request_for(theirs, cluster="other")))
    assert [seen.id for seen in mine.instances("demo")] == [one.id]
    assert [seen.id for seen in theirs.instances("other")] == [two.id]


def test_a_terminated_instance_is_gone(bench: Bench) -> None:
    compute = bench.compute()
    instance = launched(compute.launch(request_for(compute)))
    compute.terminate("demo", instance.id)
    bench.advance(1)
    assert compute.instances("demo") == ()
    assert compute.instance("demo", instance.id) is None
    assert compute.launched("demo", instance.launch) == ()


def test_terminating_twice_or_what_never_was_is_no_error(bench: Bench) -> None:
    compute = bench.compute()
    instance = launched(compute.launch(request_for(compute)))
    compute.terminate("demo", instance.id)
    compute.terminate("demo", instance.id)
    compute.terminate("demo", "i-0123456789abcdef0")
    assert compute.instances("demo") == ()


def test_an_instance_of_another_cluster_is_never_ended(bench: Bench) -> None:
    compute = bench.compute("other")
    instance = launched(compute.launch(request_for(compute, cluster="other")))
    bench.compute("demo").terminate("demo", instance.id)
    assert [seen.id for seen in compute.instances("other")] == [instance.id]


def test_launch_templates_are_kept_while_young_or_in_use_and_then_deleted(bench: Bench) -> None:
    compute = bench.compute()
    instance = launched(compute.launch(request_for(compute)))
    assert compute.sweep_templates("demo") == 0
    bench.advance(25 * 3600)
    assert compute.sweep_templates("demo") == 0
    compute.terminate("demo", instance.id)
    bench.advance(3601)
    assert compute.sweep_templates("other") == 0
    bench.advance(3601)
    assert compute.sweep_templates("demo") == 1
    bench.advance(3601)
    assert compute.sweep_templates("demo") == 0
    assert compute.launch(request_for(compute, "later")).instance is not None


def test_images_are_those_of_anybodys_instances(bench: Bench) -> None:
    mine, theirs = bench.compute("demo"), bench.compute("other")
    one = launched(mine.launch(request_for(mine)))
    two = launched(theirs.launch(request_for(theirs, cluster="other")))
    assert mine.images([one.id, two.id, "i-0123456789abcdef0"]) == {one.id: one.ami, two.id: two.ami}
    assert mine.images([two.id]) == {two.id: two.ami}
    assert mine.images([]) == {}


def test_two_installs_for_one_cluster_neither_see_nor_end_each_others_instances(bench: Bench) -> None:
    ours, theirs = bench.compute(), bench.compute(install="second")
    mine = launched(ours.launch(request_for(ours, token="one")))
    other = launched(theirs.launch(request_for(theirs, token="other")))
    assert (mine.install, other.install) == ("shiplap", "second")
    assert [found.id for found in ours.instances("demo")] == [mine.id]
    assert [found.id for found in theirs.instances("demo")] == [other.id]
    assert ours.other_installs("demo") == {"second": 1}
    assert theirs.other_installs("demo") == {"shiplap": 1}
    assert ours.instance("demo", other.id) is None
    assert ours.launched("demo", "other") == ()
    ours.terminate("demo", other.id)
    assert theirs.instance("demo", other.id) is not None
    theirs.terminate("demo", other.id)
    assert theirs.instances("demo") == ()
    assert ours.instance("demo", mine.id) is not None
    ours.instances("demo")
    assert ours.other_installs("demo") == {}


def test_instances_that_name_no_install_are_shown_to_all_and_claimed_by_whoever_knows_them(bench: Bench) -> None:
    """They were launched before instances said whose they are."""
    before, after = bench.compute(install=""), bench.compute()
    old = launched(before.launch(request_for(before, token="old")))
    assert old.install == ""
    assert [(found.id, found.install) for found in after.instances("demo")] == [(old.id, "")]
    assert [found.id for found in after.launched("demo", "old")] == [old.id]
    assert after.other_installs("demo") == {}
    after.terminate("demo", old.id)
    assert after.instance("demo", old.id) is None


def test_why_an_instance_ended_is_told_while_it_is_described(bench: Bench) -> None:
    compute = bench.compute()
    instance = launched(compute.launch(request_for(compute)))
    assert compute.ended("demo", instance.id) is None
    assert compute.ended("demo", "i-00000000000abcdef") is None
    compute.terminate("demo", instance.id)
    failure = compute.ended("demo", instance.id)
    assert failure is not None
    assert (failure.code, failure.kind) == ("Client.UserInitiatedShutdown", "transient")
    assert (failure.instance_type, failure.zone, failure.capacity_type) == ("m5.large", ZONES[0], "on-demand")
    assert compute.ended("other", instance.id) is None


def test_several_instances_are_ended_at_once_and_only_ours(bench: Bench) -> None:
    compute = bench.compute()
    ids = [
        instance.id for instance in compute.launch(request_for(compute, beside=("default-2", "default-3"))).instances
    ]
    other = bench.compute(install="other")
    theirs = launched(other.launch(request_for(other, "theirs")))
    compute.terminate("demo", *ids[:2], theirs.id, "i-00000000000abcdef")
    assert [instance.id for instance in compute.instances("demo")] == [ids[2]]
    assert [instance.id for instance in other.instances("demo")] == [theirs.id]
    compute.terminate("demo")
    compute.terminate("demo", *ids)
    assert compute.instances("demo") == ()


def test_an_instance_of_ours_is_rebooted_and_no_other(bench: Bench) -> None:
    compute = bench.compute()
    instance, other = (launched(compute.launch(request_for(compute, claim=name))) for name in ("a-1", "a-2"))
    compute.reboot("demo", instance.id)
    assert bench.reboots() == [instance.id]
    for cluster, instance_id in (("another", other.id), ("demo", "i-0123456789abcdef0")):
        with pytest.raises(AwsError) as refused:
            compute.reboot(cluster, instance_id)
        assert refused.value.code == "InvalidInstanceID.NotFound"
    with pytest.raises(AwsError):
        bench.compute(install="theirs").reboot("demo", other.id)
    compute.terminate("demo", other.id)
    with pytest.raises(AwsError):
        compute.reboot("demo", other.id)
    assert bench.reboots() == [instance.id]
