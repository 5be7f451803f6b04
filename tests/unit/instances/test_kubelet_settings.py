"""Reading the kubelet map of an EC2NodeClass, and the hash that says for whom learned capacity holds."""

from __future__ import annotations

from typing import Any

import pytest

from shiplap.errors import InvalidInput
from shiplap.instances.capacity.kubelet_settings import KubeletSettings, Threshold, kubelet_hash, read_kubelet_settings
from shiplap.manifests.custom_resources import NetworkInterface
from tests.builders.node_classes import node_class
from tests.unit.instances.given_instances import MIB, disk


def test_nothing_written() -> None:
    assert read_kubelet_settings(node_class()) == KubeletSettings()


def test_everything_that_shapes_capacity() -> None:
    written = {
        "maxPods": "42",
        "podsPerCore": 3,
        "kubeReserved": {"cpu": "1", "memory": "100Mi", "pid": "1000"},
        "systemReserved": {"ephemeral-storage": "1Gi"},
        "evictionHard": {"memory.available": "5%", "nodefs.available": "10Gi", "imagefs.available": "15%"},
        "clusterDNS": ["10.0.0.10"],
    }
    assert read_kubelet_settings(node_class(kubelet=written)) == KubeletSettings(
        max_pods=42,
        pods_per_core=3,
        kube_reserved={"cpu": 1000, "memory": 100 * MIB},
        system_reserved={"ephemeral-storage": 2**30},
        eviction={"memory": Threshold(percent=5.0), "ephemeral-storage": Threshold(amount=10 * 2**30)},
    )


def test_nothing_may_be_reserved() -> None:
    found = read_kubelet_settings(node_class(kubelet={"kubeReserved": {"cpu": "0", "memory": 0}}))
    assert found.kube_reserved == {"cpu": 0, "memory": 0}


@pytest.mark.parametrize(
    ("written", "field"),
    [
        ({"maxPods": "max_pods - ten"}, "spec.kubelet.maxPods"),
        ({"maxPods": -1}, "spec.kubelet.maxPods"),
        ({"maxPods": True}, "spec.kubelet.maxPods"),
        ({"podsPerCore": 1.5}, "spec.kubelet.podsPerCore"),
        ({"kubeReserved": ["cpu"]}, "spec.kubelet.kubeReserved"),
        ({"kubeReserved": {"cpu": "cores * 10"}}, "spec.kubelet.kubeReserved.cpu"),
        ({"kubeReserved": {"cpu": "-1"}}, "spec.kubelet.kubeReserved.cpu"),
        ({"systemReserved": {"memory": True}}, "spec.kubelet.systemReserved.memory"),
        ({"systemReserved": {"memory": ["1Gi"]}}, "spec.kubelet.systemReserved.memory"),
        ({"evictionHard": {"memory.available": "lots%"}}, "spec.kubelet.evictionHard.memory.available"),
        ({"evictionHard": {"memory.available": "101%"}}, "spec.kubelet.evictionHard.memory.available"),
        ({"evictionHard": {"nodefs.available": "x"}}, "spec.kubelet.evictionHard.nodefs.available"),
    ],
)
def test_what_cannot_be_read_is_named(written: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_kubelet_settings(node_class(kubelet=written))
    assert caught.value.field == field
    assert caught.value.document == "EC2NodeClass/default"


def test_the_hash_does_not_depend_on_the_order_of_writing() -> None:
    one = node_class(kubelet={"maxPods": 5, "podsPerCore": 2})
    other = node_class(kubelet={"podsPerCore": 2, "maxPods": 5})
    assert kubelet_hash(one, 5) == kubelet_hash(other, 5)


def test_the_hash_changes_with_all_that_changes_what_kubelet_reports() -> None:
    made = [
        kubelet_hash(node_class(), 29),
        kubelet_hash(node_class(), 110),
        kubelet_hash(node_class(kubelet={"systemReserved": {"memory": "1Gi"}}), 29),
        kubelet_hash(node_class(user_data="[settings]"), 29),
        kubelet_hash(node_class(block_device_mappings=(disk("/dev/xvda", "100Gi"),)), 29),
        kubelet_hash(node_class(instance_store_policy="RAID0"), 29),
        *(
            kubelet_hash(node_class(network_interfaces=(NetworkInterface(0, 0), other)), 29)
            for other in (NetworkInterface(0, 1), NetworkInterface(1, 1), NetworkInterface(0, 1, "efa-only"))
        ),
    ]
    assert len(set(made)) == len(made)


def test_the_hash_ignores_what_does_not() -> None:
    assert kubelet_hash(node_class(tags={"team": "a"}), 29) == kubelet_hash(node_class(), 29)
