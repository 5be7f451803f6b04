"""EC2NodeClasses validated and ready, filters and prices: scenarios 7, 9, 59, 113 to 117, 125 and 129 of the AWS
reference.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shiplap.flows.catalog.inspect import inspect
from shiplap.flows.planning.decision_inputs import read_inputs, read_supply
from shiplap.flows.planning.decision_snapshots import priced_snapshot
from shiplap.flows.planning.planned_launches import FleetOptions, fleet_options
from shiplap.instances.capacity.capacity_setting import CapacitySetting
from shiplap.instances.catalog.ec2_catalog import TypePrices, ZonePrice
from shiplap.instances.catalog.type_catalog import InstanceType, Offering
from shiplap.instances.readiness import nodeclass_status
from shiplap.instances.resolve import instance_types
from shiplap.kubernetes.requirements import requirement
from shiplap.manifests.custom_resources import RequirementSpec
from tests.builders.claims import node_claim
from tests.builders.node_classes import node_class
from tests.conformance.real_types import catalog as real_catalog
from tests.integration.flows.stage import Stage, catalog
from tests.unit.manifests.manifest_samples import EC2_NODE_CLASS, changed, fields_of

FAMILY = "karpenter.k8s.aws/instance-family"


def fields_refused(**spec: Any) -> list[str]:
    """The fields that are wrong in an EC2NodeClass that is otherwise right."""
    made = EC2_NODE_CLASS
    for field, value in spec.items():
        made = changed(made, f"spec.{field}", value)
    return fields_of(made)


def device(root: bool = False, **ebs: Any) -> dict[str, Any]:
    return {"deviceName": "/dev/xvda", "rootVolume": root, "ebs": ebs}


@pytest.mark.parametrize(
    "devices",
    [
        [device(root=True, volumeSize="20Gi"), device(root=True, volumeSize="20Gi")],
        [device(volumeSize="0Gi")],
        [device(volumeSize="100Mi")],
        [device(volumeSize="65T")],
        [device(snapshotID="snap-1", volumeInitializationRate=99)],
        [device(snapshotID="snap-1", volumeInitializationRate=301)],
        [device(volumeSize="20Gi", volumeInitializationRate=200)],
        [device()],
    ],
)
def test_113_block_devices_that_ec2_would_refuse(devices: list[Any]) -> None:
    assert fields_refused(blockDeviceMappings=devices)
    assert not fields_refused(blockDeviceMappings=[device(root=True, volumeSize="64T")])


@pytest.mark.parametrize(
    ("tracking", "wrong"),
    [
        ({}, 1),
        ({"tcpEstablishedTimeout": 59}, 1),
        ({"tcpEstablishedTimeout": 432001}, 1),
        ({"udpStreamTimeout": 59}, 1),
        ({"udpStreamTimeout": 181}, 1),
        ({"udpTimeout": 29}, 1),
        ({"udpTimeout": 61}, 1),
        ({"udpTimeout": "45s"}, 1),
        ({"udpTimeout": "45"}, 1),
        ({"udpTimeout": 45.5}, 1),
        ({"tcpEstablishedTimeout": 432000, "udpStreamTimeout": 180, "udpTimeout": 30}, 0),
    ],
)
def test_115_connection_tracking(tracking: dict[str, Any], wrong: int) -> None:
    assert len(fields_refused(connectionTracking=tracking)) == wrong


def test_117_expressions_need_no_gate_and_plain_values_stay_as_they_are() -> None:
    """Upstream refuses expressions while its gate is off, as it is by default; here there is no gate."""
    kubelet = {"maxPods": "max_pods - 1", "kubeReserved": {"cpu": "vcpus * 10", "memory": "1Gi"}}
    assert not fields_refused(kubelet=kubelet)
    assert fields_refused(kubelet={"maxPods": "cores * 10"}) == ["spec.kubelet.maxPods"]


class Given:
    """A cluster with one EC2NodeClass; everything that AWS is asked for is there, unless a test takes it away."""

    def __init__(self, **spec: Any) -> None:
        self.stage = Stage()
        made = node_class(**spec)
        manifests = msgspec.structs.replace(self.stage.settings.manifests, node_classes=(made,))
        self.settings = msgspec.structs.replace(self.stage.settings, manifests=manifests)

    def condition(self, name: str) -> tuple[str, str]:
        (status,) = inspect(self.settings, catalog(), self.stage.context).node_classes
        found = {item.type: item for item in status.conditions}
        return found[name].status, found[name].reason

    def not_ready(self) -> str:
        supply = read_supply(self.settings, self.stage.context)
        priced = priced_snapshot(
            self.settings, read_inputs(self.settings, self.stage.context), supply, self.stage.context
        )
        return priced.snapshot.catalogs[0].not_ready


def test_an_expression_that_divides_by_zero_makes_the_class_not_ready() -> None:
    """From the reference's nodeclass_status, not a numbered scenario."""
    given = Given(kubelet={"maxPods": "10 / (vcpus - 2)"})
    assert given.condition(nodeclass_status.VALIDATION) == ("False", "KubeletExpressionEvaluationFailed")
    assert given.condition(nodeclass_status.READY) == ("False", "KubeletExpressionEvaluationFailed")
    assert "division by zero" in given.not_ready()


def test_a_class_that_is_ready_has_every_condition_true() -> None:
    """From the reference's nodeclass_status, not a numbered scenario."""
    given = Given()
    for name in (*nodeclass_status.DEPENDENCIES, nodeclass_status.VALIDATION, nodeclass_status.READY):
        assert given.condition(name) == ("True", "")
    assert given.not_ready() == ""


# Filters of a launch: not switched off by minValues, as they are upstream


def offered(name: str, on_demand: float, spot: float) -> InstanceType:
    bought = (("on-demand", on_demand), ("spot", spot))
    return InstanceType(
        name,
        (requirement(FAMILY, "In", (name.partition(".")[0],)),),
        {"cpu": 2000},
        {},
        tuple(Offering("a", kind, price) for kind, price in bought),
    )


def asked_for(*types: InstanceType, min_families: int = 0) -> FleetOptions:
    rules = (RequirementSpec(FAMILY, "Exists", (), min_families),) if min_families else ()
    claim = node_claim(
        cluster="demo",
        name="c",
        node_pool="p",
        node_class="d",
        instance_types=tuple(item.name for item in types),
        requirements=rules,
        requests={"cpu": 1000},
    )
    return fleet_options(claim, {item.name: item for item in types}, ("a",))


def names(options: FleetOptions) -> list[str]:
    return [override.instance_type for override in options.overrides]


def test_7_spot_is_cheaper_than_any_on_demand_offering_asked_for() -> None:
    options = asked_for(offered("c.large", 0.2, 0.1), offered("m.large", 0.3, 0.25))
    assert (options.capacity_type, names(options)) == ("spot", ["c.large"])


def test_9_metal_is_not_asked_for_while_something_plain_fits() -> None:
    assert names(asked_for(offered("c.metal", 0.1, 0.05), offered("m.large", 0.3, 0.2))) == ["m.large"]


def test_59_a_minimum_of_values_keeps_what_it_needs_and_no_more() -> None:
    plain = (offered("c.large", 0.2, 0.1), offered("m.large", 0.3, 0.15), offered("r.large", 0.4, 0.3))
    assert names(asked_for(*plain, min_families=2)) == ["c.large", "m.large"]
    assert names(asked_for(*plain, min_families=3)) == ["c.large", "m.large", "r.large"]
    assert names(asked_for(*plain, min_families=4)) == []
    metal = offered("x.metal", 0.05, 0.01)
    assert names(asked_for(*plain, metal, min_families=2)) == ["c.large", "m.large"]
    assert "x.metal" in names(asked_for(*plain[:1], metal, min_families=2))


# Prices


def priced(prices: TypePrices | None = None) -> dict[tuple[str, str], Offering]:
    """Return the offerings of m5.large in every zone when AWS gave these prices."""
    whole = real_catalog()
    kept = tuple(kind for kind in whole.types if kind.instance_type == "m5.large")
    known = msgspec.structs.replace(whole, types=kept, prices={"m5.large": prices} if prices else {})
    (found,) = instance_types(known, node_class(), CapacitySetting(), resolved=None, learned=(), unavailable=())
    return {(item.zone, item.capacity_type): item for item in found.offerings}


def test_125_before_the_first_answer_spot_is_priced_by_on_demand() -> None:
    """Upstream takes the on-demand price itself; here it is a fraction of it, and marked as an estimate."""
    spot = priced(TypePrices(on_demand=0.1))["us-east-1a", "spot"]
    assert spot.available
    assert 0 < spot.price <= 0.1
    assert spot.price_estimated


def test_125_a_zone_without_a_price_is_an_estimate_too() -> None:
    """Upstream makes such an offering unavailable, although EC2 may well have it."""
    known = priced(TypePrices(on_demand=0.1, spot=(ZonePrice("us-east-1a", 0.03),)))
    assert (known["us-east-1a", "spot"].price, known["us-east-1a", "spot"].price_estimated) == (0.03, False)
    assert known["us-east-1b", "spot"].price_estimated


def test_129_types_without_a_price_are_sold_at_an_estimate() -> None:
    """Upstream does not launch them unless a NodeOverlay states a price."""
    assert all(item.available and item.price_estimated and item.price > 0 for item in priced().values())
