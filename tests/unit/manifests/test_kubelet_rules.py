"""Each rule of an EC2NodeClass's kubelet map, by an input that keeps it and one that breaks it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.manifests.manifest_samples import EC2_NODE_CLASS, changed, fields_of, problems_of


def with_kubelet(kubelet: Any, alias: str = "al2023@latest") -> dict[str, Any]:
    return changed(changed(EC2_NODE_CLASS, "spec.kubelet", kubelet), "spec.amiSelectorTerms", [{"alias": alias}])


@pytest.mark.parametrize(
    "kubelet",
    [
        {},
        {"maxPods": 110, "podsPerCore": 0, "clusterDNS": ["10.0.0.10", "fd00::a"], "cpuCFSQuota": False},
        {"maxPods": "110"},
        {"maxPods": None, "evictionHard": {"memory.available": None}, "tracing": None},
        {
            "kubeReserved": {"cpu": "100m", "memory": "1Gi", "ephemeral-storage": "1Gi", "pid": "1000"},
            "systemReserved": {"cpu": "1"},
        },
        {"evictionHard": {"memory.available": "5%", "nodefs.inodesFree": "100%", "pid.available": "100"}},
        {
            "evictionSoft": {"memory.available": "500Mi"},
            "evictionSoftGracePeriod": {"memory.available": "1m30s"},
            "evictionMaxPodGracePeriod": 60,
        },
        {"imageGCHighThresholdPercent": 100, "imageGCLowThresholdPercent": 0},
        {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", "featureGates": {"X": True}},
        {"shutdownGracePeriod": "30s", "logging": {"verbosity": 2, "vmodule": [{"filePattern": "a", "verbosity": 3}]}},
        {"authentication": {"anonymous": {"enabled": False}, "webhook": {"cacheTTL": "2m"}}},
        {"memoryReservationPolicy": "TieredReservation", "defaultPodSysctls": {"net.ipv4.ip_forward": "1"}},
        {
            "memoryThrottlingFactor": 0.9,
            "memorySwap": {"swapBehavior": "NoSwap"},
            "topologyManagerPolicy": "restricted",
        },
    ],
)
def test_accepted_for_al2023(kubelet: dict[str, Any]) -> None:
    assert problems_of(with_kubelet(kubelet)) == []


@pytest.mark.parametrize(
    ("kubelet", "field"),
    [
        ({"maxPod": 110}, "maxPod"),
        ({"maxPods": -1}, "maxPods"),
        ({"maxPods": 2**31}, "maxPods"),
        ({"maxPods": "default_enis * 10.5"}, "maxPods"),
        ({"maxPods": [1]}, "maxPods"),
        ({"maxPods": 1.5}, "maxPods"),
        ({"maxPods": "10Mi"}, "maxPods"),
        ({"maxPods": "50%"}, "maxPods"),
        ({"kubeReserved": {"memory": "5%"}}, "kubeReserved.memory"),
        ({"podsPerCore": -1}, "podsPerCore"),
        ({"podsPerCore": "3"}, "podsPerCore"),
        ({"evictionMaxPodGracePeriod": -1}, "evictionMaxPodGracePeriod"),
        ({"registerWithTaints": []}, "registerWithTaints"),
        ({"kubeReserved": {"gpu": "1"}}, "kubeReserved.gpu"),
        ({"kubeReserved": {"cpu": "-100m"}}, "kubeReserved.cpu"),
        ({"kubeReserved": {"cpu": 1}}, "kubeReserved.cpu"),
        ({"systemReserved": {"memory": "pods * 11"}}, "systemReserved.memory"),
        ({"evictionHard": {"memory": "100Mi"}}, "evictionHard.memory"),
        ({"evictionHard": {"memory.available": "-1Mi"}}, "evictionHard[memory.available]"),
        ({"evictionHard": {"memory.available": "101%"}}, "evictionHard[memory.available]"),
        ({"evictionHard": {"memory.available": "x%"}}, "evictionHard[memory.available]"),
        ({"evictionHard": {"memory.available": "little"}}, "evictionHard[memory.available]"),
        ({"evictionSoft": {"memory.available": "1Gi"}}, "evictionSoft[memory.available]"),
        ({"evictionSoftGracePeriod": {"memory.available": "1m"}}, "evictionSoftGracePeriod[memory.available]"),
        ({"evictionMinimumReclaim": {"memory": "500Mi"}}, "evictionMinimumReclaim.memory"),
        ({"evictionMinimumReclaim": {"memory.available": "lots"}}, "evictionMinimumReclaim[memory.available]"),
        ({"evictionMinimumReclaim": {"memory.available": "vcpus * 10"}}, "evictionMinimumReclaim[memory.available]"),
        ({"evictionMinimumReclaim": {"memory.available": "101%"}}, "evictionMinimumReclaim[memory.available]"),
        ({"imageGCHighThresholdPercent": 101}, "imageGCHighThresholdPercent"),
        ({"imageGCLowThresholdPercent": -1}, "imageGCLowThresholdPercent"),
        ({"imageGCHighThresholdPercent": 50, "imageGCLowThresholdPercent": 50}, "imageGCHighThresholdPercent"),
        ({"syncFrequency": "often"}, "syncFrequency"),
        ({"authentication": {"webhook": {"cacheTTL": "2 minutes"}}}, "authentication.webhook.cacheTTL"),
        ({"authentication": {"webhook": {"ttl": "2m"}}}, "authentication.webhook.ttl"),
        ({"logging": {"vmodule": [{"pattern": "a"}]}}, "logging.vmodule[0].pattern"),
        ({"featureGates": {"X": "true"}}, "featureGates.X"),
        ({"memoryThrottlingFactor": "0.9"}, "memoryThrottlingFactor"),
    ],
)
def test_refused_for_al2023(kubelet: dict[str, Any], field: str) -> None:
    assert fields_of(with_kubelet(kubelet)) == [f"spec.kubelet.{field}"]


@pytest.mark.parametrize("period", ["-1m", "soon"])
def test_grace_periods_are_durations_and_not_negative(period: str) -> None:
    kubelet = {
        "evictionSoft": {"memory.available": "1Gi"},
        "evictionSoftGracePeriod": {"memory.available": period},
    }
    assert fields_of(with_kubelet(kubelet)) == ["spec.kubelet.evictionSoftGracePeriod[memory.available]"]


def test_every_violation_is_named() -> None:
    kubelet = {"maxPod": 1, "kubeReserved": {"cpu": "-1"}, "syncFrequency": "x"}
    assert sorted(fields_of(with_kubelet(kubelet))) == [
        "spec.kubelet.kubeReserved.cpu",
        "spec.kubelet.maxPod",
        "spec.kubelet.syncFrequency",
    ]


def test_the_kubelet_must_be_a_map() -> None:
    assert fields_of(with_kubelet(["maxPods"])) == ["spec.kubelet"]


def test_expressions_may_stand_for_numbers() -> None:
    kubelet = {
        "maxPods": "min(max_pods, 100)",
        "kubeReserved": {"cpu": "vcpus * 10", "memory": "max_pods * 11 + 255"},
        "evictionHard": {"memory.available": "memory_mib / 20"},
    }
    assert problems_of(with_kubelet(kubelet)) == []


def test_an_expression_that_names_nothing_says_what_it_could_name() -> None:
    ((_, reason),) = problems_of(with_kubelet({"maxPods": "min(pods, 100)"}))
    assert "unknown variable 'pods'; known are vcpus, memory_mib" in reason


@pytest.mark.parametrize("alias", ["al2@latest", "bottlerocket@latest", "windows2022@latest"])
def test_only_al2023_passes_any_setting_on(alias: str) -> None:
    assert fields_of(with_kubelet({"topologyManagerPolicy": "restricted"}, alias)) == [
        "spec.kubelet.topologyManagerPolicy"
    ]
    assert fields_of(with_kubelet({"clusterDNS": ["10.0.0.10", "10.0.0.11"]}, alias)) == ["spec.kubelet.clusterDNS"]
    assert fields_of(with_kubelet({"clusterDNS": ["10.0.0.10"], "maxPods": 8}, alias)) == []


def test_custom_is_exempt() -> None:
    node_class = with_kubelet({"topologyManagerPolicy": "none", "clusterDNS": ["10.0.0.10", "10.0.0.11"]}, "al2@latest")
    assert fields_of(changed(node_class, "spec.amiFamily", "Custom")) == []


def test_bottlerocket_has_no_pods_per_core() -> None:
    assert fields_of(with_kubelet({"podsPerCore": 10}, "bottlerocket@latest")) == ["spec.kubelet.podsPerCore"]
    assert fields_of(with_kubelet({"podsPerCore": 10}, "al2@latest")) == []
