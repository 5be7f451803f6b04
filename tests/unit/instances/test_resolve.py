"""Instance types under an EC2NodeClass: AMIs, offerings, and the best figures there are."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shiplap.errors import InvalidInput
from shiplap.instances.capacity.capacity_setting import CapacitySetting
from shiplap.instances.catalog.ami_families import FAMILIES
from shiplap.instances.catalog.ec2_catalog import TypePrices, ZonePrice
from shiplap.instances.catalog.resolved_nodeclass import Ami, CapacityReservation, PlacementGroup
from shiplap.instances.catalog.type_catalog import InstanceType, LearnedCapacity
from shiplap.instances.offerings.estimated_prices import SPOT_FRACTION
from shiplap.instances.offerings.offerings import incompatibility
from shiplap.instances.resolve import instance_types, remembered_types
from shiplap.manifests.custom_resources import ConnectionTracking, CpuOptions, EnclaveOptions, NetworkInterface
from tests.builders.node_classes import node_class
from tests.unit.instances.given_instances import (
    AMD,
    ARM,
    GIB,
    MIB,
    kind,
    known,
    only,
    resolved,
    seen,
    yields,
)

GPU = "karpenter.k8s.aws/instance-gpu-count"
ACCELERATOR = "karpenter.k8s.aws/instance-accelerator-count"


def ami(name: str, arch: str, *more: tuple[str, str], created: str = "2025-03-01", deprecated: bool = False) -> Ami:
    requirements = (("kubernetes.io/arch", "In", (arch,)), *((key, operator, ()) for key, operator in more))
    return Ami(name, name, created, deprecated, requirements)


# In the order EC2 lists the images of one Bottlerocket release: the GPU image of each architecture first.
BOTTLEROCKET = (
    ami("nvidia-amd64", "amd64", (GPU, "Exists")),
    ami("nvidia-arm64", "arm64", (GPU, "Exists")),
    ami("standard-amd64", "amd64", (GPU, "DoesNotExist"), (ACCELERATOR, "DoesNotExist")),
    ami("standard-arm64", "arm64", (GPU, "DoesNotExist"), (ACCELERATOR, "DoesNotExist")),
    ami("neuron-amd64", "amd64", (ACCELERATOR, "Exists")),
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("t3.large", "standard-amd64"),
        ("t4g.large", "standard-arm64"),
        ("g5.xlarge", "nvidia-amd64"),
        ("g5g.xlarge", "nvidia-arm64"),
        ("inf2.xlarge", "neuron-amd64"),
    ],
)
def test_each_type_boots_the_ami_its_full_labels_meet(name: str, expected: str) -> None:
    assert yields(name, answered=resolved(*BOTTLEROCKET)).ami == expected


def test_deprecated_amis_come_last_and_order_decides_otherwise() -> None:
    first, second = ami("a", "amd64", deprecated=True), ami("b", "amd64")
    assert yields("t3.large", answered=resolved(first, second)).ami == "b"
    assert yields("t3.large", answered=resolved(first)).ami == "a"
    assert yields("t3.large", answered=resolved(ami("c", "amd64"), second)).ami == "c"


def test_a_type_without_an_ami_is_dropped() -> None:
    assert names(resolved(AMD)) == ["m5.large"]
    assert names(resolved(ARM)) == ["t4g.small"]
    assert names(None) == ["m5.large", "t4g.small"]


def names(answered: object, **spec: object) -> list[str]:
    found = instance_types(
        only("m5.large", "t4g.small"),
        node_class(**spec),  # type: ignore[arg-type]
        CapacitySetting(),
        resolved=answered,  # type: ignore[arg-type]
        learned=(),
        unavailable=(),
    )
    return [each.name for each in found]


def test_windows_runs_on_amd64_alone() -> None:
    assert names(None, family="Windows2022") == ["m5.large"]


def test_an_ami_with_unreadable_requirements() -> None:
    broken = Ami("ami-1", "x", "2026", requirements=(("kubernetes.io/arch", "Like", ("amd64",)),))
    with pytest.raises(InvalidInput, match="ami-1"):
        yields("m5.large", answered=resolved(broken))


def learned_of(made: InstanceType, memory: int, **more: int) -> LearnedCapacity:
    return known(seen(made.name, memory, ami=made.ami, kubelet=made.kubelet_hash, **more))


def test_learned_capacity_replaces_the_formula_even_upwards() -> None:
    answered = resolved()
    before = yields("m5.large", answered=answered)
    for memory in (7500 * MIB, 7800 * MIB):
        after = yields("m5.large", answered=answered, learned=(learned_of(before, memory, pods=29, cpu=2000),))
        assert after.verified
        assert after.careful == {}
        assert after.capacity["memory"] == memory
        assert after.allocatable["memory"] == memory - 674 * MIB
        assert after.sources["memory"] == "learned"
        assert after.sources["ephemeral-storage"] == "formula"
        assert after.allocatable["ephemeral-storage"] == 17 * GIB


def test_what_kubelet_keeps_back_is_learned_too() -> None:
    before = yields("m5.large", answered=resolved())
    report = known(seen("m5.large", 7800 * MIB, ami="ami-amd", kubelet=before.kubelet_hash, allocatable=7000 * MIB))
    after = yields("m5.large", answered=resolved(), learned=(report,))
    assert after.overhead["memory"] == 800 * MIB
    assert after.overhead["cpu"] == 70


def test_devices_that_are_not_allocatable_are_kept_back() -> None:
    before = yields("g5.12xlarge", answered=resolved())
    report = seen("g5.12xlarge", 180 * GIB, kubelet=before.kubelet_hash)
    broken = msgspec.structs.replace(
        report,
        capacity=report.capacity | {"nvidia.com/gpu": 4},
        allocatable=report.allocatable | {"nvidia.com/gpu": 3},
    )
    one = yields("g5.12xlarge", answered=resolved(), learned=(known(broken),))
    assert (one.verified, one.careful_allocatable["nvidia.com/gpu"]) == (False, 3), "one node may be broken"
    two = yields(
        "g5.12xlarge", answered=resolved(), learned=(known(broken, msgspec.structs.replace(broken, node="n2")),)
    )
    assert (two.verified, two.allocatable["nvidia.com/gpu"]) == (True, 3)


def test_pods_are_never_more_than_kubelet_is_told() -> None:
    before = yields("m5.large", answered=resolved())
    for pods, expected in ((110, 29), (25, 25)):
        after = yields("m5.large", answered=resolved(), learned=(learned_of(before, 7600 * MIB, pods=pods),))
        assert after.allocatable["pods"] == expected


def test_learned_under_other_kubelet_settings_is_a_sibling() -> None:
    report = known(seen("m5.large", 7800 * MIB, kubelet="other"))
    after = yields("m5.large", answered=resolved(), learned=(report,))
    assert not after.verified
    assert after.sources["memory"] == "sibling"
    assert after.capacity["memory"] == 7800 * MIB
    assert after.careful["memory"] == (8192 - 1024 - 128) * MIB


def test_learned_on_another_ami_teaches_nothing() -> None:
    report = known(seen("m5.large", 7800 * MIB, ami="ami-old"))
    assert yields("m5.large", answered=resolved(), learned=(report,)) == yields("m5.large", answered=resolved())


def test_a_sibling_moves_the_estimate_and_the_careful_bound() -> None:
    report = known(seen("m5.large", 7000 * MIB))
    after = yields("m5.xlarge", answered=resolved(), learned=(report,), beside=("m5.large",))
    assert after.capacity["memory"] == 14000 * MIB
    ratio = (8192 - 7000 - 128) / 8192
    assert after.careful["memory"] == pytest.approx(16 * GIB * (1 - 2 * ratio) - 128 * MIB, abs=2)
    assert after.sources == {
        "cpu": "catalog",
        "memory": "sibling",
        "ephemeral-storage": "formula",
        "pods": "formula",
        "vpc.amazonaws.com/pod-eni": "formula",
    }


def test_percentages_of_kubelet_follow_a_better_estimate() -> None:
    made = node_class(kubelet={"evictionHard": {"memory.available": "10%"}})
    report = known(seen("m5.large", 7000 * MIB, kubelet="other"))
    after = yields("m5.large", made, answered=resolved(), learned=(report,))
    assert after.overhead["memory"] == 574 * MIB + 700 * MIB
    assert after.overhead_fraction == {"memory": 0.1, "ephemeral-storage": 0.1}


def test_planning_from_files_counts_what_any_ami_gave() -> None:
    before = yields("m5.large")
    assert before.ami == ""
    reports = tuple(
        known(seen("m5.large", memory * MIB, ami=name, kubelet=before.kubelet_hash))
        for name, memory in (("ami-1", 7800), ("ami-2", 7600))
    )
    after = yields("m5.large", learned=reports)
    assert after.verified
    assert after.capacity["memory"] == 7600 * MIB


def test_offerings_are_zones_with_a_subnet_times_usage_classes() -> None:
    made = yields("m5.large", answered=resolved(zones=("us-east-1b", "us-east-1e", "us-east-1a")))
    assert [(each.zone, each.capacity_type, each.zone_id, each.available) for each in made.offerings] == [
        ("us-east-1a", "on-demand", "use1-az6", True),
        ("us-east-1a", "spot", "use1-az6", True),
        ("us-east-1b", "on-demand", "use1-az1", True),
        ("us-east-1b", "spot", "use1-az1", True),
    ], "m5.large is not sold in us-east-1e"


def test_offerings_that_ec2_refused_are_not_available() -> None:
    found = instance_types(
        only("m5.large"),
        node_class(),
        CapacitySetting(),
        resolved=resolved(),
        learned=(),
        unavailable=[("m5.large", "us-east-1a", "spot")],
    )
    gone = [(each.zone, each.capacity_type) for each in found[0].offerings if not each.available]
    assert gone == [("us-east-1a", "spot")]


def test_what_was_worked_out_before_is_used_for_the_same_and_for_nothing_else() -> None:
    catalog, answered = only("m5.large"), resolved()

    def found(**changed: Any) -> InstanceType:
        given = {"catalog": catalog, "node_class": node_class(), "setting": CapacitySetting(), "resolved": answered}
        (item,) = instance_types(**{**given, "learned": (), "unavailable": (), **changed})
        return item

    first = found()
    assert found().offerings is first.offerings
    addresses = tuple(msgspec.structs.replace(net, free_ips=net.free_ips - 1) for net in answered.subnets)
    assert found(resolved=msgspec.structs.replace(answered, subnets=addresses)).offerings is first.offerings
    assert found(learned=(learned_of(first, 7000 * MIB),)).verified
    assert not all(item.available for item in found(unavailable=[("m5.large", "us-east-1a", "spot")]).offerings)
    assert found(resolved=resolved(ami("b", "amd64"))).ami == "b"
    assert {item.zone for item in found(resolved=None).offerings} > {"us-east-1a", "us-east-1b"}
    one_zone = msgspec.structs.replace(answered, subnets=answered.subnets[:1])
    assert len({item.zone for item in found(resolved=one_zone).offerings}) == 1
    dearer = msgspec.structs.replace(catalog, prices={"m5.large": TypePrices(on_demand=9.0)})
    assert max(item.price for item in found(catalog=dearer).offerings) == 9.0
    assert found(setting=CapacitySetting(reserved_enis=1)).capacity["pods"] < first.capacity["pods"]
    assert found(node_class=node_class(kubelet={"maxPods": 5})).capacity["pods"] == 5
    assert found() == first


def test_prices_are_aws_own_where_known_and_marked_where_not() -> None:
    prices = {"m5.large": TypePrices(on_demand=0.1, spot=(ZonePrice("us-east-1a", 0.03),))}
    catalog = msgspec.structs.replace(only("m5.large", "t3.large"), prices=prices)
    found = instance_types(catalog, node_class(), CapacitySetting(), resolved=resolved(), learned=(), unavailable=())
    m5 = {(each.zone, each.capacity_type): (each.price, each.price_estimated) for each in found[0].offerings}
    assert m5 == {
        ("us-east-1a", "on-demand"): (0.1, False),
        ("us-east-1a", "spot"): (0.03, False),
        ("us-east-1b", "on-demand"): (0.1, False),
        ("us-east-1b", "spot"): (0.1 * SPOT_FRACTION, True),
    }
    assert all(each.price_estimated and each.price > 0 for each in found[1].offerings)


@pytest.mark.parametrize(
    ("name", "family", "spec", "reason"),
    [
        ("a1.large", "AL2023", {}, "Graviton"),
        ("a1.large", "Bottlerocket", {}, None),
        ("c4.large", "AL2", {"connection_tracking": ConnectionTracking(udp_timeout=60)}, "Nitro"),
        ("c4.large", "AL2", {}, None),
        ("m5.metal", "AL2", {"connection_tracking": ConnectionTracking(udp_timeout=60)}, "Nitro"),
        ("m5.large", "AL2", {"connection_tracking": ConnectionTracking(udp_timeout=60)}, None),
        ("m5.large", "AL2", {"cpu_options": CpuOptions("enabled")}, "nested"),
        ("m5.large", "AL2", {"cpu_options": CpuOptions("disabled")}, None),
        ("c8i.large", "AL2", {"cpu_options": CpuOptions("enabled")}, None),
        ("t3.medium", "AL2", {"enclave_options": EnclaveOptions(True)}, "Enclaves"),
        ("t3.medium", "AL2", {"enclave_options": EnclaveOptions(False)}, None),
        ("c5.xlarge", "AL2", {"enclave_options": EnclaveOptions(True)}, None),
        ("m5.large", "AL2", {"network_interfaces": (NetworkInterface(1, 0),)}, "card 1"),
        ("m5.large", "AL2", {"network_interfaces": (NetworkInterface(0, 3),)}, "device 3"),
        ("m5.large", "AL2", {"network_interfaces": (NetworkInterface(0, 1, "efa-only"),)}, "adapters"),
        ("g5.48xlarge", "AL2", {"network_interfaces": (NetworkInterface(0, 1, "efa-only"),)}, None),
    ],
)
def test_what_cannot_run_under_a_node_class(
    name: str, family: str, spec: dict[str, object], reason: str | None
) -> None:
    made = node_class(family=family, **spec)
    found = incompatibility(kind(name), FAMILIES[family], made.spec)
    assert (found is None) if reason is None else (found is not None and reason in found)
    offered = yields(name, made).offerings
    assert any(each.available for each in offered) is (reason is None)


def test_efa_adapters_as_written() -> None:
    made = node_class(network_interfaces=(NetworkInterface(0, 0), NetworkInterface(0, 1, "efa-only")))
    assert yields("g5.48xlarge", made).capacity["vpc.amazonaws.com/efa"] == 1
    assert (
        "vpc.amazonaws.com/efa"
        not in yields("g5.48xlarge", node_class(network_interfaces=(NetworkInterface(),))).capacity
    )


def test_a_reservation_is_one_more_way_to_buy_its_type() -> None:
    held = (
        CapacityReservation("cr-2", "m5.large", "us-east-1a", available=3),
        CapacityReservation("cr-1", "m5.large", "us-east-1b", type="capacity-block", interruptible=True),
        CapacityReservation("cr-3", "m5.large", "us-east-1f", available=3),
    )
    answered = msgspec.structs.replace(resolved(), capacity_reservations=held)
    (made,) = instance_types(
        only("m5.large"), node_class(), CapacitySetting(), resolved=answered, learned=(), unavailable=()
    )
    reserved = [offering for offering in made.offerings if offering.capacity_type == "reserved"]
    assert [(o.reservation_id, o.zone, o.available, o.reservation_capacity) for o in reserved] == [
        ("cr-1", "us-east-1b", False, 0),  # exhausted
        ("cr-2", "us-east-1a", True, 3),
    ]  # and cr-3 is in a zone without a subnet
    assert (reserved[0].reservation_type, reserved[0].reservation_interruptible) == ("capacity-block", True)
    on_demand = next(offering for offering in made.offerings if offering.capacity_type == "on-demand")
    assert 0 < reserved[1].price < on_demand.price / 1_000_000


def in_group(name: str, group: PlacementGroup) -> InstanceType:
    return yields(name, answered=msgspec.structs.replace(resolved(), placement_group=group))


@pytest.mark.parametrize(
    ("name", "strategy", "available"),
    [("m5.large", "cluster", True), ("t3.large", "cluster", False), ("t3.large", "spread", True)],
)
def test_types_that_a_placement_group_cannot_hold_are_not_available(name: str, strategy: str, available: bool) -> None:
    made = in_group(name, PlacementGroup("pg-1", "x", strategy))
    assert any(each.available for each in made.offerings) is available


def test_nodes_carry_the_placement_group_and_may_be_in_any_of_its_partitions() -> None:
    made = in_group("m5.large", PlacementGroup("pg-1", "x", "partition", 3))
    found = {item.key: item for item in made.requirements}
    assert found["karpenter.k8s.aws/placement-group-id"].values == {"pg-1"}
    assert found["karpenter.k8s.aws/placement-group-partition"].values == {"1", "2", "3"}
    alone = {item.key: item for item in in_group("m5.large", PlacementGroup("pg-1", "x", "cluster")).requirements}
    assert not alone["karpenter.k8s.aws/placement-group-partition"].values
    assert "karpenter.k8s.aws/placement-group-id" not in {item.key for item in yields("m5.large").requirements}


def test_types_are_reckoned_once_for_the_same_question_and_anew_for_another() -> None:
    def asked(*learned: LearnedCapacity, overhead: float = 0.075) -> tuple[InstanceType, ...]:
        """The same question each time, made of other objects."""
        setting = CapacitySetting(vm_memory_overhead_percent=overhead)
        catalog, answered = only("m5.large", "t4g.small"), resolved()
        return remembered_types(catalog, node_class(), setting, resolved=answered, learned=learned, unavailable=())

    first = asked()
    assert asked() is first
    more = asked(learned_of(first[0], 7800 * MIB, pods=29, cpu=2000))
    assert more[0].capacity != first[0].capacity
    assert asked(overhead=0.1)[0].capacity != first[0].capacity
    assert asked() is first
    for number in range(40):
        asked(overhead=0.1 + number / 1000)
    assert asked() is not first
    assert asked() == first
