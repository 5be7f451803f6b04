"""The whole simulated cluster, step by step in virtual time."""

from __future__ import annotations

import json
from threading import Event, Thread

import msgspec
import pytest

from shiplap.aws.userdata import bottlerocket, render
from shiplap.aws.userdata.bootstrap import UNREGISTERED, Bootstrap
from shiplap.instances.catalog.ec2_catalog import (
    Catalog,
    Ec2InstanceType,
    MemoryInfo,
    NetworkInfo,
    ProcessorInfo,
    VCpuInfo,
)
from shiplap.kubernetes.objects import Node, Pod, Taint, is_ready
from shiplap_lab.cluster_simulator.booted_user_data import NodeRegistration, registration
from shiplap_lab.cluster_simulator.kubelet import ORPHANED_S, UNHEARD_S
from shiplap_lab.cluster_simulator.machines import CatalogHardware, Delays, Machine, NodeResources
from shiplap_lab.cluster_simulator.simulated_cluster import PolledCluster, Runner
from shiplap_lab.fakes.cluster import ApiServer
from shiplap_lab.fakes.signals import FakeClock
from tests.builders.pods import pod_object

GIB = 2**30
BOOT = Bootstrap(
    cluster="dev",
    endpoint="https://api",
    ca="Y2E=",
    family="AL2023",
    service_cidr="10.100.0.0/16",
    dns="10.100.0.10",
    labels={"karpenter.sh/nodepool": "default", "team": "web"},
    taints=(Taint("dedicated", "NoSchedule", "web"), Taint("startup", "NoExecute"), UNREGISTERED),
    kubelet={"kubeReserved": {"cpu": "100m", "memory": "300Mi"}, "evictionHard": {"memory.available": "5%"}},
    max_pods=58,
)
RENDERERS = {
    "AL2023": render.al2023,
    "Bottlerocket": bottlerocket.render,
    "AL2": render.al2,
    "Windows2022": render.windows,
}
TYPE = Ec2InstanceType(
    instance_type="m5.large",
    v_cpu_info=VCpuInfo(2),
    memory_info=MemoryInfo(8192),
    network_info=NetworkInfo(ipv4_addresses_per_interface=10, maximum_network_interfaces=3),
    processor_info=ProcessorInfo(supported_architectures=("x86_64",)),
)


def machine(number: int = 1, **changes: object) -> Machine:
    base = Machine(f"i-{number}", "m5.large", "eu-west-1a", "ami-1", 0.0, private_dns=f"ip-10-0-0-{number}")
    return msgspec.structs.replace(base, **changes)


def ample(machine: Machine, told: NodeRegistration) -> NodeResources:
    resources = {"cpu": 2000, "memory": 8 * GIB, "pods": 10}
    return NodeResources(resources, resources)


class World:
    def __init__(self, **options: object) -> None:
        self.server = ApiServer(FakeClock(1000.0))
        self.machines: list[Machine] = []
        options.setdefault("delays", Delays(join_s=5.0, ready_s=2.0))
        self.cluster = PolledCluster(self.server, ample, lambda: self.machines, **options)

    def pod(self, name: str) -> Pod:
        return msgspec.convert(self.server.get("pods", name), Pod)

    def nodes(self) -> list[Node]:
        return [msgspec.convert(item, Node) for item in self.server.list("nodes").items]


def test_a_pod_waits_for_a_node_runs_and_goes_with_it() -> None:
    world = World()
    world.server.create("pods", pod_object("web", "500m", "1Gi", metadata={}))
    world.cluster.step(0.0)
    condition = world.pod("web").status.conditions[0]
    assert (condition.reason, condition.message) == ("Unschedulable", "no nodes available to schedule pods")
    (event,) = world.server.list("events").items
    assert (event["reason"], event["involvedObject"]["name"]) == ("FailedScheduling", "web")

    world.machines = [machine(launched_at=10.0)]
    world.cluster.step(14.9)
    assert world.nodes() == []
    world.cluster.step(15.0)
    (node,) = world.nodes()
    assert node.spec.provider_id == "aws:///eu-west-1a/i-1"
    assert [taint.key for taint in node.spec.taints] == ["node.kubernetes.io/not-ready"]
    assert not is_ready(node.status)
    assert world.pod("web").spec.node_name == ""

    world.cluster.step(17.0)
    assert is_ready(world.nodes()[0].status)
    assert world.pod("web").spec.node_name == "ip-10-0-0-1"
    world.cluster.step(17.1)
    assert world.pod("web").status.phase == "Running"
    assert {c.type: c.status for c in world.pod("web").status.conditions}["PodScheduled"] == "True"

    world.machines = [machine(launched_at=10.0, running=False)]
    world.cluster.step(30.0)
    assert world.nodes() == []
    assert world.server.list("pods").items == []


def test_whoever_reads_pods_sees_all_that_wait_or_none() -> None:
    """A plan for some of them would depend on how fast the others were looked at."""
    world = World()
    with world.server.at_once():
        for number in range(20):
            world.server.create("pods", pod_object(f"web-{number}", "500m", "1Gi", metadata={}))
    readers: list[Thread] = []
    seen: list[int] = []

    def read() -> None:
        pods = world.server.list("pods").items
        seen.append(sum(bool(item["status"].get("conditions")) for item in pods))

    def look(*_: object) -> None:
        readers.append(Thread(target=read))
        readers[-1].start()

    world.server.on_write(look)
    world.cluster.step(0.0)
    for reader in readers:
        reader.join()
    assert len(readers) >= 20
    assert set(seen) == {20}


def test_a_node_that_a_finalizer_keeps_is_marked_once_nothing_is_heard_of_it() -> None:
    """New pods keep off it, and nobody takes its last word for Ready."""
    world = World()
    world.machines = [machine()]
    for now in (10.0, 20.0):
        world.cluster.step(now)
    world.server.patch("nodes", "ip-10-0-0-1", {"metadata": {"finalizers": ["karpenter.sh/termination"]}})
    world.machines = [machine(running=False)]
    world.cluster.step(30.0)
    world.cluster.step(20.0 + UNHEARD_S - 1)
    assert is_ready(world.nodes()[0].status)
    world.cluster.step(30.0 + UNHEARD_S)
    (node,) = world.nodes()
    assert [(each.type, each.status) for each in node.status.conditions] == [("Ready", "Unknown")]
    assert [(taint.key, taint.effect) for taint in node.spec.taints] == [
        ("node.kubernetes.io/unreachable", "NoSchedule"),
        ("node.kubernetes.io/unreachable", "NoExecute"),
    ]


def test_a_node_that_goes_in_the_moment_in_which_it_is_marked_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.machines = [machine()]
    for now in (10.0, 20.0):
        world.cluster.step(now)
    world.server.patch("nodes", "ip-10-0-0-1", {"metadata": {"finalizers": ["karpenter.sh/termination"]}})
    world.machines = [machine(running=False)]
    world.cluster.step(30.0)
    patch = world.server.patch

    def gone_before(plural: str, name: str, *given: object, **options: object) -> dict:
        patch("nodes", "ip-10-0-0-1", {"metadata": {"finalizers": []}})
        return patch(plural, name, *given, **options)

    monkeypatch.setattr(world.server, "patch", gone_before)
    world.cluster.step(30.0 + UNHEARD_S)
    assert world.nodes() == []


@pytest.mark.parametrize("comes_again", [False, True])
def test_pods_of_a_node_that_somebody_deleted_end_all_the_same(comes_again: bool) -> None:
    """One of them is being deleted already: no kubelet is left to end it."""
    world = World()
    world.machines = [machine()]
    for name in ("runs", "leaves"):
        world.server.create("pods", pod_object(name, "500m", "1Gi", metadata={}))
    for now in (10.0, 20.0, 21.0):
        world.cluster.step(now)
    node = world.server.get("nodes", "ip-10-0-0-1")
    world.server.delete("pods", "leaves")
    world.server.delete("nodes", "ip-10-0-0-1")
    world.cluster.step(22.0)
    if comes_again:
        world.server.create("nodes", {"metadata": {"name": "ip-10-0-0-1"}, "spec": node["spec"]})
    world.cluster.step(21.0 + ORPHANED_S)
    assert len(world.server.list("pods").items) >= (1 if comes_again else 2)
    world.cluster.step(22.0 + ORPHANED_S)
    left = [item["metadata"]["name"] for item in world.server.list("pods").items]
    assert ("runs" in left) == comes_again
    assert comes_again or left == []


def test_a_machine_that_is_rebooted_comes_back_with_another_boot_and_its_pods() -> None:
    world = World()
    world.server.create("pods", pod_object("web", "500m", "1Gi", metadata={}))
    world.machines = [machine(launched_at=10.0), machine(2, launched_at=10.0)]
    for moment in (0.0, 20.0, 25.0, 26.0):
        world.cluster.step(moment)
    before = {node.metadata.name: node.status.node_info.boot_id for node in world.nodes()}
    home = world.pod("web").spec.node_name
    number = 1 if home.endswith("-1") else 2
    assert len(set(before.values())) == 2
    world.machines = [machine(one, launched_at=10.0, reboots=int(one == number)) for one in (1, 2)]
    for moment in (30.0, 89.0):
        world.cluster.step(moment)
        ready = {node.metadata.name: is_ready(node.status) for node in world.nodes()}
        assert [name for name in before if not ready[name]] == [home]
    world.cluster.step(90.0)
    after = {node.metadata.name: node.status.node_info.boot_id for node in world.nodes()}
    assert [name for name in before if after[name] != before[name]] == [home]
    assert all(is_ready(node.status) and not node.spec.taints for node in world.nodes())
    assert world.pod("web").spec.node_name == home


def test_nothing_is_written_while_nothing_happens() -> None:
    world = World()
    world.server.create("pods", pod_object("web", "500m", "1Gi", metadata={}))
    world.machines = [machine()]
    for now in (10.0, 20.0, 30.0):
        world.cluster.step(now)
    settled = world.server.resource_version
    for now in (40.0, 50.0):
        world.cluster.step(now)
    assert world.server.resource_version == settled


def test_a_machine_may_never_join_and_another_join_late() -> None:
    delays = {"i-1": None, "i-2": 60.0}
    world = World(joins=lambda item: delays[item.id])
    world.machines = [machine(1), machine(2)]
    world.cluster.step(59.0)
    assert world.nodes() == []
    world.cluster.step(3600.0)
    assert [node.metadata.name for node in world.nodes()] == ["ip-10-0-0-2"]


def test_daemon_sets_run_where_they_belong() -> None:
    world = World()
    template = {"metadata": {"labels": {"app": "agent"}}, "spec": pod_object("x", "100m", "1Gi", metadata={})["spec"]}
    world.server.create("daemonsets", {"metadata": {"name": "agent"}, "spec": {"template": template}})
    arm_only = {**template, "spec": {**template["spec"], "nodeSelector": {"kubernetes.io/arch": "arm64"}}}
    world.server.create("daemonsets", {"metadata": {"name": "arm"}, "spec": {"template": arm_only}})
    told = render.al2023(msgspec.structs.replace(BOOT, taints=(UNREGISTERED,)))
    world.machines = [machine(1), machine(2, user_data=told)]
    for now in (10.0, 20.0, 30.0):
        world.cluster.step(now)
    assert world.pod("agent-ip-10-0-0-1").spec.node_name == "ip-10-0-0-1"
    assert world.pod("agent-ip-10-0-0-1").metadata.owner_references[0].kind == "DaemonSet"
    assert len(world.server.list("pods").items) == 1
    world.server.patch("nodes", "ip-10-0-0-2", {"spec": {"taints": []}})
    world.cluster.step(40.0)
    assert world.pod("agent-ip-10-0-0-2").spec.node_name == "ip-10-0-0-2"


@pytest.mark.parametrize("recreate", [True, False])
def test_pods_of_replica_sets_come_back(recreate: bool) -> None:
    world = World(recreate_pods=recreate)
    for kind in ("ReplicaSet", "StatefulSet"):
        owner = {"kind": kind, "name": kind.lower(), "uid": "u", "controller": True}
        world.server.create(
            "pods",
            pod_object(
                f"{kind.lower()}-0", "500m", "1Gi", metadata={"ownerReferences": [owner], "labels": {"app": "web"}}
            ),
        )
    world.server.create("pods", pod_object("bare", "500m", "1Gi", metadata={}))
    world.machines = [machine()]
    for now in (10.0, 20.0, 30.0):
        world.cluster.step(now)
    uids = {item["metadata"]["uid"] for item in world.server.list("pods").items}
    for name in ("replicaset-0", "statefulset-0", "bare"):
        world.server.evict(name)
        assert world.pod(name).metadata.deletion_timestamp
    for now in (40.0, 50.0):
        world.cluster.step(now)
    items = world.server.list("pods").items
    assert not uids & {item["metadata"]["uid"] for item in items}
    if not recreate:
        assert items == []
        return
    names = sorted(item["metadata"]["name"] for item in items)
    assert names[0].startswith("replicaset-")
    assert names[1] == "statefulset-0"
    assert {item["spec"]["nodeName"] for item in items} == {"ip-10-0-0-1"}
    assert all(item["metadata"]["labels"] == {"app": "web"} for item in items)


def test_the_runner_steps_clusters_and_hands_over_their_failure() -> None:
    stepped = Event()

    def machines() -> list[Machine]:
        stepped.set()
        return []

    server = ApiServer(FakeClock())
    runner = Runner([PolledCluster(server, ample, machines)], FakeClock(), step_s=0.001).start()
    assert stepped.wait(10.0)
    runner.stop()

    def broken() -> list[Machine]:
        raise RuntimeError("no instances")

    failing = Runner([PolledCluster(server, ample, broken)], FakeClock(), step_s=0.0).start()
    failing._thread.join(10.0)
    with pytest.raises(RuntimeError, match="no instances"):
        failing.stop()


@pytest.mark.parametrize("family", sorted(RENDERERS))
def test_user_data_registers_the_node_as_it_says(family: str) -> None:
    told = registration(RENDERERS[family](msgspec.structs.replace(BOOT, family=family)))
    assert told.family == family
    assert told.cluster == "dev"
    assert told.labels == BOOT.labels
    assert set(told.taints) == set(BOOT.taints)
    assert told.kubelet == {
        "kubeReserved": {"cpu": "100m", "memory": "300Mi"},
        "evictionHard": {"memory.available": "5%"},
        "maxPods": 58,
    } | ({"clusterDNS": told.kubelet["clusterDNS"]} if "clusterDNS" in told.kubelet else {})


def test_users_own_node_config_is_merged_first() -> None:
    custom = """apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  kubelet:
    config: {maxPods: 10, podsPerCore: 5}
    flags: ["--node-labels=team=db,extra=1"]
"""
    told = registration(render.al2023(msgspec.structs.replace(BOOT, custom=custom)))
    assert (told.kubelet["maxPods"], told.kubelet["podsPerCore"]) == (58, 5)
    assert told.labels == {**BOOT.labels, "extra": "1"}


@pytest.mark.parametrize("quote", ["", '"', "'"])
def test_quotes_around_the_value_of_a_flag_do_not_count(quote: str) -> None:
    flag = json.dumps(f"--node-labels={quote}testing/cluster=unspecified,team=a{quote}")
    text = f"apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec: {{kubelet: {{flags: [{flag}]}}}}"
    assert registration(text).labels == {"testing/cluster": "unspecified", "team": "a"}


@pytest.mark.parametrize(
    ("script", "pages"),
    [
        ("sudo sysctl -w vm.nr_hugepages=2048\necho vm.nr_hugepages=2048 >> /etc/sysctl.conf", 2048),
        ("sysctl -w vm.nr_hugepages=1\nsysctl -w vm.nr_hugepages=12", 12),
        ("cat /proc/sys/vm/nr_hugepages", 0),
        ("# sysctl -w vm.nr_hugepages=2048", 0),
    ],
)
@pytest.mark.parametrize("family", ["AL2023", "AL2"])
def test_a_script_of_the_user_data_sets_huge_pages_aside(family: str, script: str, pages: int) -> None:
    boot = msgspec.structs.replace(BOOT, family=family, custom=f"#!/bin/bash\n{script}\n")
    told = registration(RENDERERS[family](boot))
    assert (told.family, told.huge_pages) == (family, pages)
    assert registration(f"#!/bin/bash\n{script}").huge_pages == pages


def test_user_data_no_boot_script_understands_registers_nothing() -> None:
    assert registration("#!/bin/bash\necho hello") == NodeRegistration()
    assert registration("") == NodeRegistration()


def test_a_machine_with_broken_user_data_never_joins() -> None:
    server = ApiServer(FakeClock())
    broken = [machine(1, user_data="[settings"), machine(2, user_data="kind: [node.eks.aws/v1alpha1")]
    cluster = PolledCluster(server, ample, lambda: broken)
    for now in (10.0, 20.0):
        cluster.step(now)
    assert server.list("nodes").items == []
    assert sorted(cluster.broken) == ["i-1", "i-2"]


class TestHardware:
    def test_a_node_reports_less_than_ec2_states(self) -> None:
        found = CatalogHardware(Catalog(region="eu-west-1", types=(TYPE,)))(machine(), NodeRegistration("AL2023"))
        assert found.capacity["memory"] == 8192 * 2**20 * 96 // 100 // 2**20 * 2**20
        assert (found.capacity["cpu"], found.capacity["pods"]) == (2000, 29)
        assert found.allocatable["cpu"] == 2000 - 70
        assert found.allocatable["memory"] == found.capacity["memory"] - (255 + 11 * 29 + 100) * 2**20
        assert found.architecture == "amd64"

    def test_the_truth_may_be_told_per_type_and_image(self) -> None:
        hardware = CatalogHardware(
            Catalog(region="eu-west-1", types=(TYPE,)), lambda kind, ami: 5 * GIB if ami == "ami-small" else 7 * GIB
        )
        assert hardware(machine(), NodeRegistration("AL2023")).capacity["memory"] == 7 * GIB
        assert hardware(machine(ami="ami-small"), NodeRegistration("AL2023")).capacity["memory"] == 5 * GIB

    def test_kubelet_settings_of_the_user_data_count(self) -> None:
        told = registration(render.al2023(BOOT))
        found = CatalogHardware(Catalog(region="eu-west-1", types=(TYPE,)))(machine(), told)
        assert found.capacity["pods"] == 58
        assert found.allocatable["cpu"] == 1900
        evicted = -(-found.capacity["memory"] * 5 // 100)
        assert found.allocatable["memory"] == found.capacity["memory"] - 300 * 2**20 - evicted

    def test_memory_set_aside_as_huge_pages_is_no_memory_of_pods(self) -> None:
        hardware = CatalogHardware(Catalog(region="eu-west-1", types=(TYPE,)))
        plain = hardware(machine(), NodeRegistration("AL2023"))
        paged = hardware(machine(), NodeRegistration("AL2023", huge_pages=1024))
        assert paged.capacity == plain.capacity | {"hugepages-2Mi": 2 * GIB}
        assert paged.allocatable["hugepages-2Mi"] == 2 * GIB
        assert paged.allocatable["memory"] == plain.allocatable["memory"] - 2 * GIB

    def test_an_unknown_type_never_joins(self) -> None:
        server = ApiServer(FakeClock())
        hardware = CatalogHardware(Catalog(region="eu-west-1", types=()))
        cluster = PolledCluster(server, hardware, lambda: [machine()])
        cluster.step(10.0)
        assert "m5.large" in cluster.broken["i-1"]
