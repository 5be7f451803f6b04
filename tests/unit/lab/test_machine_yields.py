"""Tests the yields of simulated machines: figures that are known of real nodes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shiplap_lab.catalogue import embedded
from shiplap_lab.virtual_time.machine_yields import MachineYields

MIB, GIB = 2**20, 2**30
SOLD = {kind.instance_type: msgspec.to_builtins(kind) for kind in embedded.load().types}


def yielded(
    name: str, *, seed: int = 0, enis: int = 0, prefixes: str = "auto", memory: int = 8 * GIB, **spec: Any
) -> tuple[dict[str, int], dict[str, int]]:
    made = MachineYields({"spec": spec}, reserved_enis=enis, prefix_delegation=prefixes, seed=seed)
    return made.resources(SOLD[name], memory)


@pytest.mark.parametrize(
    ("name", "pods", "millicores", "kept_mib"),
    [("m5.large", 29, 1930, 674), ("m5.xlarge", 58, 3920, 993), ("c5.4xlarge", 234, 15890, 2929)],
)
def test_what_kubelet_keeps_on_amazon_linux(name: str, pods: int, millicores: int, kept_mib: int) -> None:
    capacity, allocatable = yielded(name)
    assert (capacity["pods"], allocatable["cpu"]) == (pods, millicores)
    assert capacity["memory"] - allocatable["memory"] == kept_mib * MIB


@pytest.mark.parametrize(
    ("settings", "pods"),
    [
        ({"prefixes": "on"}, 110),
        ({"enis": 1}, 20),
        ({"enis": 3}, 0),
        ({"kubelet": {"maxPods": 60}}, 60),
        ({"kubelet": {"maxPods": 60}, "prefixes": "off"}, 29),
        ({"kubelet": {"podsPerCore": 5}}, 10),
        ({"kubelet": {"podsPerCore": 5}, "amiFamily": "Bottlerocket"}, 29),
    ],
)
def test_pods_by_addresses_and_settings(settings: dict[str, Any], pods: int) -> None:
    assert yielded("m5.large", **settings)[0]["pods"] == pods


def test_prefixes_need_nitro() -> None:
    assert yielded("m4.large", prefixes="on")[0]["pods"] == 20


def test_kubelets_settings_replace_and_add() -> None:
    kubelet = {
        "kubeReserved": {"cpu": "100m", "memory": "1Gi"},
        "systemReserved": {"cpu": "50m"},
        "evictionHard": {"memory.available": "5%", "nodefs.available": "100%"},
    }
    capacity, allocatable = yielded("m5.large", memory=10 * GIB, kubelet=kubelet)
    kept = {name: capacity[name] - allocatable[name] for name in ("cpu", "memory", "ephemeral-storage")}
    assert kept == {"cpu": 150, "memory": GIB + GIB // 2, "ephemeral-storage": GIB}


@pytest.mark.parametrize(
    ("spec", "volume"),
    [
        ({}, 20 * GIB),
        ({"blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": {"volumeSize": "100Gi"}}]}, 100 * GIB),
        ({"blockDeviceMappings": [{"deviceName": "/x", "rootVolume": True, "ebs": {"volumeSize": "50Gi"}}]}, 50 * GIB),
        ({"amiSelectorTerms": [{"alias": "bottlerocket@latest"}]}, 20 * GIB),
        ({"instanceStorePolicy": "RAID0"}, 75 * 10**9),
    ],
)
def test_a_file_system_keeps_a_part_that_the_seed_decides(spec: dict[str, Any], volume: int) -> None:
    stores = {yielded("m5d.large", seed=seed, **spec)[0]["ephemeral-storage"] for seed in range(5)}
    assert len(stores) == 5
    assert all(volume * 0.96 <= store <= volume for store in stores)


@pytest.mark.parametrize(
    ("name", "devices"),
    [
        ("g5.xlarge", {"nvidia.com/gpu": 1}),
        ("inf1.xlarge", {"aws.amazon.com/neuron": 1, "aws.amazon.com/neuroncore": 4}),
        ("c5n.18xlarge", {"vpc.amazonaws.com/efa": 1}),
    ],
)
def test_devices_of_the_hardware(name: str, devices: dict[str, int]) -> None:
    capacity = yielded(name)[0]
    assert {kind: number for kind, number in capacity.items() if "/" in kind} == devices
