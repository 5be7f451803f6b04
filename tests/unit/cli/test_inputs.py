"""Files that stand for a cluster: what is read, what is passed over, and how a mistake is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shiplap.errors import InvalidInput
from shiplap.instances.catalog.type_catalog import LearnedCapacity, Observation
from shiplap.manifests.nodeclaim import ClaimState
from shiplap_cli.inputs.catalog_file import DEFAULT_PODS, read_catalog_file
from shiplap_cli.inputs.cluster_files import read_cluster_state, read_scheduler_config
from shiplap_cli.inputs.instance_supply import learned_for_unknown_ami

POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": []}}

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
TERM = {"matchExpressions": [{"key": "a", "operator": "Is"}]}

SPREAD = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}


def of_spec(**spec: Any) -> dict[str, Any]:
    return {**POD, "spec": spec}


def write(folder: Path, name: str, content: Any) -> Path:
    file = folder / name
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return file


def test_lists_documents_and_other_kinds(tmp_path: Path) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
    listed = {"kind": "List", "apiVersion": "v1", "items": [POD, node, {"kind": "ConfigMap", "apiVersion": "v1"}]}
    text = "apiVersion: v1\nkind: Pod\nmetadata: {name: b, creationTimestamp: null}\nspec: {nodeSelector: null}\n---\n"
    state = read_cluster_state([write(tmp_path, "list.json", listed), write(tmp_path, "pods.yaml", text)])
    assert [pod.metadata.name for pod in state.view.pods] == ["a", "b"]
    assert [item.metadata.name for item in state.view.nodes] == ["n"]


def test_classes_fill_in_what_an_api_server_would(tmp_path: Path) -> None:
    runtime = {
        "kind": "RuntimeClass",
        "metadata": {"name": "vm"},
        "overhead": {"podFixed": {"cpu": "250m"}},
        "scheduling": {"nodeSelector": {"kvm": "yes"}, "tolerations": [{"key": "kvm", "operator": "Exists"}]},
    }
    important = {"kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000}
    shape = {"runtimeClassName": "vm", "priorityClassName": "high", "nodeSelector": {"a": "b"}}
    admitted = of_spec(overhead={"cpu": "1"}, priority=7, **shape) | {"metadata": {"name": "admitted"}}
    template = {"template": {"spec": {"runtimeClassName": "vm"}}}
    daemon = {"kind": "DaemonSet", "metadata": {"name": "d"}, "spec": template}
    unknown = of_spec(runtimeClassName="other", priorityClassName="other") | {"metadata": {"name": "unknown"}}
    items = [of_spec(**shape), admitted, unknown, daemon, runtime, important]
    view = read_cluster_state([write(tmp_path, "all.json", {"kind": "List", "items": items})]).view
    fresh, kept, plain = (pod.spec for pod in view.pods)
    assert (fresh.overhead, fresh.priority, fresh.node_selector) == ({"cpu": "250m"}, 1000, {"kvm": "yes", "a": "b"})
    assert [entry.key for entry in fresh.tolerations] == ["kvm"]
    assert (kept.overhead, kept.priority, kept.node_selector, kept.tolerations) == ({"cpu": "1"}, 7, {"a": "b"}, ())
    assert (plain.overhead, plain.priority) == ({}, 0)
    assert view.daemon_sets[0].spec.template.spec.overhead == {"cpu": "250m"}


def test_an_overhead_that_is_no_amount_is_refused(tmp_path: Path) -> None:
    runtime = {"kind": "RuntimeClass", "metadata": {"name": "vm"}, "overhead": {"podFixed": {"cpu": "much"}}}
    with pytest.raises(InvalidInput, match="podFixed"):
        read_cluster_state([write(tmp_path, "vm.json", runtime)])


def test_storage_objects_are_read(tmp_path: Path) -> None:
    storage = [
        {"kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": {"storageClassName": "fast"}},
        {"kind": "PersistentVolume", "metadata": {"name": "v"}, "spec": {"csi": {"driver": "ebs.csi.aws.com"}}},
        {"kind": "StorageClass", "metadata": {"name": "fast"}, "volumeBindingMode": "WaitForFirstConsumer"},
        {"kind": "CSINode", "metadata": {"name": "n"}, "spec": {"drivers": None}},
        {"kind": "CSIDriver", "metadata": {"name": "d"}, "spec": {"preventPodSchedulingIfMissing": True}},
    ]
    view = read_cluster_state([write(tmp_path, "storage.json", {"kind": "List", "items": storage})]).view
    assert [item.spec.storage_class_name for item in view.persistent_volume_claims] == ["fast"]
    assert [item.spec.csi and item.spec.csi.driver for item in view.persistent_volumes] == ["ebs.csi.aws.com"]
    assert [item.volume_binding_mode for item in view.storage_classes] == ["WaitForFirstConsumer"]
    assert [item.metadata.name for item in view.csi_nodes] == ["n"]
    assert [(item.metadata.name, item.spec.prevent_pod_scheduling_if_missing) for item in view.csi_drivers] == [
        ("d", True)
    ]


def test_what_is_around_pods_is_read(tmp_path: Path) -> None:
    around = [
        {"kind": "Namespace", "metadata": {"name": "web", "labels": {"team": "a"}}},
        {"kind": "Service", "metadata": {"name": "s"}, "spec": {"selector": {"app": "web"}}},
        {"kind": "ReplicaSet", "metadata": {"name": "r"}, "spec": {"selector": {"matchLabels": {"app": "web"}}}},
        {"kind": "StatefulSet", "metadata": {"name": "s"}, "spec": {"selector": {"matchLabels": {"app": "db"}}}},
        {"kind": "ReplicationController", "metadata": {"name": "c"}, "spec": {"selector": {"app": "old"}}},
    ]
    view = read_cluster_state([write(tmp_path, "around.json", {"kind": "List", "items": around})]).view
    assert [item.metadata.labels for item in view.namespaces] == [{"team": "a"}]
    assert [item.spec.selector for item in view.services] == [{"app": "web"}]
    selectors = [item.spec.selector for item in (*view.replica_sets, *view.stateful_sets)]
    assert [selector and selector.match_labels for selector in selectors] == [{"app": "web"}, {"app": "db"}]
    assert [item.spec.selector for item in view.replication_controllers] == [{"app": "old"}]


DEFAULTS = """\
podTopologySpread:
  defaultConstraints:
    - {maxSkew: 2, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: ScheduleAnyway}
"""


def test_a_scheduler_configuration(tmp_path: Path) -> None:
    (constraint,) = read_scheduler_config(write(tmp_path, "config.yaml", DEFAULTS)).pod_topology_spread.constraints()
    assert (constraint.max_skew, constraint.when_unsatisfiable) == (2, "ScheduleAnyway")
    assert constraint.label_selector is None


WRONG_DEFAULTS = {
    "a selector": (DEFAULTS.replace("maxSkew", "labelSelector: {}, maxSkew"), "defaultConstraints", "labelSelector"),
    "label keys": (DEFAULTS.replace("maxSkew", "matchLabelKeys: [a], maxSkew"), "defaultConstraints", "matchLabelKeys"),
    "a field of its own": ("percentage: 5\n", "", "percentage"),
    "twice": (DEFAULTS + DEFAULTS.splitlines(keepends=True)[-1], "defaultConstraints[1]", "there twice"),
    "no skew": (DEFAULTS.replace("2", "0"), "maxSkew", "from 1 to"),
    "no key": (DEFAULTS.replace("topology.kubernetes.io/zone", "''"), "topologyKey", "must not be empty"),
    "no such word": (DEFAULTS.replace("ScheduleAnyway", "Perhaps"), "whenUnsatisfiable", "Perhaps"),
    "domains of a soft one": (DEFAULTS.replace("maxSkew", "minDomains: 2, maxSkew"), "minDomains", "DoNotSchedule"),
    "no domains": (DEFAULTS.replace("maxSkew", "minDomains: 0, maxSkew"), "minDomains", "from 1 to"),
    "both": (DEFAULTS + "  defaultingType: System\n", "defaultConstraints", "must be empty"),
    "two documents": (DEFAULTS + "---\n" + DEFAULTS, "", "found 2"),
}


@pytest.mark.parametrize(("text", "field", "reason"), WRONG_DEFAULTS.values(), ids=WRONG_DEFAULTS.keys())
def test_a_wrong_scheduler_configuration(tmp_path: Path, text: str, field: str, reason: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_scheduler_config(write(tmp_path, "config.yaml", text))
    assert field in caught.value.field
    assert reason in str(caught.value)


def test_a_malformed_storage_object_is_named(tmp_path: Path) -> None:
    wrong = {"kind": "StorageClass", "metadata": {"name": "fast"}, "allowedTopologies": "everywhere"}
    with pytest.raises(InvalidInput) as caught:
        read_cluster_state([write(tmp_path, "class.json", wrong)])
    assert (caught.value.document, caught.value.field) == ("StorageClass/fast", "allowedTopologies")


def test_node_claims_become_claims_in_flight(tmp_path: Path) -> None:
    claim = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {
            "name": "default-abc",
            "labels": {
                "karpenter.sh/nodepool": "default",
                "node.kubernetes.io/instance-type": "m5.large",
                "topology.kubernetes.io/zone": "us-east-1a",
                "karpenter.sh/capacity-type": "spot",
            },
        },
        "spec": {
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "requirements": [
                {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.large", "m5.xlarge"]}
            ],
            "resources": {"requests": {"cpu": "1"}},
        },
        "status": {
            "providerID": "aws:///us-east-1a/i-1",
            "imageID": "ami-1",
            "allocatable": {"cpu": "1930m", "pods": "29"},
            "conditions": [{"type": "Launched", "status": "True"}, {"type": "Registered", "status": "Unknown"}],
        },
    }
    (record,) = read_cluster_state([write(tmp_path, "claim.json", claim)]).claims
    assert record.state is ClaimState.LAUNCHED
    assert (record.known_instance.type, record.known_instance.zone, record.known_instance.capacity_type) == (
        "m5.large",
        "us-east-1a",
        "spot",
    )
    assert record.instance_id == "i-1"
    assert record.plan.instance_types == ("m5.large", "m5.xlarge")
    assert record.plan.allocatable == {"cpu": 1930, "pods": 29}


def test_promises_of_a_claim_come_from_nominations(tmp_path: Path) -> None:
    claim = {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": "c"}, "spec": {}}
    pod = {**POD, "status": {"nominatedNodeName": "c"}}
    (record,) = read_cluster_state([write(tmp_path, "all.json", {"kind": "List", "items": [claim, pod]})]).claims
    assert record.state is ClaimState.PLANNED
    assert [entry.name for entry in record.plan.pods] == ["a"]


WRONG: dict[str, tuple[Any, tuple[str, ...]]] = {
    "no kind": ({"metadata": {"name": "a"}}, ("kind is missing",)),
    "no name": ({**POD, "metadata": {"generateName": "a-"}}, ("metadata.name", "is missing")),
    "wrong type": ({**POD, "spec": {"nodeName": 3}}, ("Pod/a", "spec.nodeName", "Expected str, got int")),
    "quantity": (
        {**POD, "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "many"}}}]}},
        ("Pod/a", "spec.containers", "cpu: 'many' is not a quantity"),
    ),
    "node quantity": (
        {"kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": {"memory": "8GB"}}},
        ("Node/n", "status.allocatable", "memory"),
    ),
    "claim requirement": (
        {"kind": "NodeClaim", "metadata": {"name": "c"}, "spec": {"requirements": [{"key": "k", "operator": "In"}]}},
        ("NodeClaim/c", "spec.requirements", "at least one value"),
    ),
    "negative": (of_spec(containers=[{"resources": {"requests": {"cpu": "-1"}}}]), ("requests", "not be negative")),
    "a number beyond 64 bits": (
        of_spec(initContainers=[{"resources": {"limits": {"cpu": 10**30}}}]),
        ("spec.initContainers[0].resources.limits", "64 bits", "written with a suffix"),
    ),
    "pod-level": (of_spec(resources={"requests": {"cpu": "x"}}), ("spec.resources.requests", "not a quantity")),
    "amount of a status": (
        {**POD, "status": {"containerStatuses": [{"name": "c", "allocatedResources": {"cpu": 2**70}}]}},
        ("status.containerStatuses[0].allocatedResources", "64 bits", "written with a suffix"),
    ),
    "skew": (of_spec(topologySpreadConstraints=[{**SPREAD, "maxSkew": 2**40}]), ("[0].maxSkew", "from 1 to")),
    "a skew beyond 64 bits": (
        of_spec(topologySpreadConstraints=[{**SPREAD, "maxSkew": 2**70}]),
        ("[0].maxSkew", "64 bits"),
    ),
    "domains": (of_spec(topologySpreadConstraints=[{**SPREAD, "minDomains": 0}]), ("[0].minDomains", "from 1 to")),
    "spread": (of_spec(topologySpreadConstraints=[{**SPREAD, "whenUnsatisfiable": "Never"}]), ("'Never' is none of",)),
    "policy": (of_spec(topologySpreadConstraints=[{**SPREAD, "nodeTaintsPolicy": "x"}]), ("nodeTaintsPolicy", "Honor")),
    "weight": (
        of_spec(
            affinity={"podAntiAffinity": {PREFERRED: [{"weight": 2**40, "podAffinityTerm": {"topologyKey": "z"}}]}}
        ),
        (f"spec.affinity.podAntiAffinity.{PREFERRED}[0].weight", "from 1 to 100"),
    ),
    "grace": (of_spec(terminationGracePeriodSeconds=2**70), ("terminationGracePeriodSeconds", "64 bits")),
    "container port": (of_spec(containers=[{"ports": [{"containerPort": -1}]}]), ("ports[0].containerPort", "65535")),
    "priority": (of_spec(priority=2**31), ("spec.priority", "32 bits")),
    "host port": (of_spec(containers=[{"ports": [{"hostPort": 65536}]}]), ("ports[0].hostPort", "65535")),
    "host port of an init container": (
        of_spec(initContainers=[{"ports": [{"hostPort": 65536}]}]),
        ("initContainers[0].ports[0].hostPort", "65535"),
    ),
    "toleration": (of_spec(tolerations=[{"operator": "Is"}]), ("tolerations[0].operator", "'Is'")),
    "no term": (of_spec(affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": []}}}), ("at least one term",)),
    "operator": (
        of_spec(affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [TERM]}}}),
        ("nodeSelectorTerms[0].matchExpressions[0]", "unknown operator 'Is'"),
    ),
    "operator of a preference": (
        of_spec(affinity={"nodeAffinity": {PREFERRED: [{"weight": 1, "preference": TERM}]}}),
        (f"{PREFERRED}[0].preference.matchExpressions[0]", "unknown operator 'Is'"),
    ),
    "creation": ({"kind": "Node", "metadata": {"name": "n", "creationTimestamp": "now"}}, ("creationTimestamp",)),
    "time of an event": ({"kind": "Event", "metadata": {"name": "e"}, "eventTime": "now"}, ("eventTime", "a time")),
    "daemon set": (
        {
            "kind": "DaemonSet",
            "metadata": {"name": "d"},
            "spec": {"template": {"spec": {"containers": [{"resources": {"requests": {"cpu": "x"}}}]}}},
        },
        ("DaemonSet/d", "spec.template.spec.containers[0].resources.requests", "not a quantity"),
    ),
    "twice": ({"kind": "List", "items": [POD, POD]}, ("Pod/a", "is there twice")),
    "not an object": ("[1, 2]", ("expected a mapping",)),
    "not YAML": ("a: [", ("state",)),
}


@pytest.mark.parametrize(("content", "words"), WRONG.values(), ids=WRONG.keys())
def test_mistakes_are_named_by_file_object_and_field(tmp_path: Path, content: Any, words: tuple[str, ...]) -> None:
    file = write(tmp_path, "state.yaml", content)
    with pytest.raises(InvalidInput) as caught:
        read_cluster_state([file])
    message = str(caught.value)
    assert message.startswith(str(file))
    for word in words:
        assert word in message


def test_items_of_a_list_are_named_by_their_own_lines(tmp_path: Path) -> None:
    text = "kind: List\nitems:\n- kind: Pod\n  metadata: {name: a}\n- kind: Pod\n  metadata: {name: a}\n- name: b\n"
    file = write(tmp_path, "state.yaml", text)
    with pytest.raises(InvalidInput, match=rf"state.yaml:5: Pod/a: is there twice, first in {file} line 3"):
        read_cluster_state([file])
    file.write_text(text.replace("name: a", "name: x", 1))
    with pytest.raises(InvalidInput, match=r"state.yaml:7: document 3: kind is missing"):
        read_cluster_state([file])


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="nothing-there"):
        read_cluster_state([tmp_path / "nothing-there.yaml"])


TYPE: dict[str, Any] = {
    "name": "t",
    "capacity": {"cpu": "4", "memory": "8Gi"},
    "overhead": {"cpu": "100m"},
    "requirements": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}],
    "offerings": [{"zone": "z1", "capacityType": "spot", "price": 1.5, "available": False, "reservationId": "r"}],
}


@pytest.mark.parametrize("name", ["catalog.json", "catalog.yaml"])
def test_a_catalogue_is_taken_as_given(tmp_path: Path, name: str) -> None:
    (item,) = read_catalog_file(write(tmp_path, name, {"instanceTypes": [TYPE]}))
    assert item.capacity == {"cpu": 4000, "memory": 8 * 2**30, "pods": DEFAULT_PODS}
    assert item.allocatable["cpu"] == 3900
    assert item.verified
    assert item.sources == {"cpu": "catalog", "memory": "catalog", "pods": "catalog"}
    assert [entry.values for entry in item.requirements] == [frozenset({"amd64"})]
    (offering,) = item.offerings
    assert (offering.zone, offering.price, offering.available) == ("z1", 1.5, False)
    assert offering.reservation_id == "r"


NO_PRICE = "{zone: z, capacityType: spot, price: .nan}"


def offered(**changes: Any) -> dict[str, Any]:
    return {"instanceTypes": [{**TYPE, "offerings": [{**TYPE["offerings"][0], **changes}]}]}


WRONG_CATALOGUES: dict[str, tuple[Any, tuple[str, ...]]] = {
    "no types": ({"types": []}, ("unknown field `types`".replace("`", ""),)),
    "unknown field": ({"instanceTypes": [{**TYPE, "colour": "red"}]}, ("instanceTypes", "colour")),
    "no price": ({"instanceTypes": [{**TYPE, "offerings": [{"zone": "z", "capacityType": "spot"}]}]}, ("price",)),
    "quantity": ({"instanceTypes": [{**TYPE, "capacity": {"cpu": "x"}}]}, ("instanceTypes[0].capacity", "cpu")),
    "operator": (
        {"instanceTypes": [{**TYPE, "requirements": [{"key": "k", "operator": "Like", "values": ["v"]}]}]},
        ("instanceTypes[0].requirements[0]", "unknown operator"),
    ),
    "negative": ({"instanceTypes": [{**TYPE, "capacity": {"cpu": "-4"}}]}, ("instanceTypes[0].capacity", "negative")),
    "no name": ({"instanceTypes": [{**TYPE, "name": ""}]}, ("instanceTypes[0].name", "is empty")),
    "no zone": (offered(zone=""), ("instanceTypes[0].offerings[0].zone", "is empty")),
    "capacity type": (
        offered(capacityType="free"),
        ("offerings[0].capacityType", "'free'", "spot, on-demand, reserved"),
    ),
    "price": (offered(price=-1), ("offerings[0].price", "0 or more")),
    "price that is no number": (f"instanceTypes: [{{name: t, capacity: {{}}, offerings: [{NO_PRICE}]}}]", ("price",)),
    "reservation": (offered(reservationCapacity=-1), ("offerings[0].reservationCapacity", "0 or more")),
    "twice": ({"instanceTypes": [TYPE, TYPE]}, ("instanceTypes[1].name", "t is there twice")),
}


@pytest.mark.parametrize(("content", "words"), WRONG_CATALOGUES.values(), ids=WRONG_CATALOGUES.keys())
def test_mistakes_in_a_catalogue_are_named(tmp_path: Path, content: Any, words: tuple[str, ...]) -> None:
    file = write(tmp_path, "catalog.json", content)
    with pytest.raises(InvalidInput) as caught:
        read_catalog_file(file)
    for word in (str(file), *words):
        assert word in str(caught.value)


def test_a_mistake_in_a_catalogue_has_its_line(tmp_path: Path) -> None:
    text = "instanceTypes:\n- name: t\n  capacity:\n    cpu: many\n"
    with pytest.raises(InvalidInput, match=r"catalog.yaml:3: .*instanceTypes\[0\].capacity: cpu: 'many' is not a"):
        read_catalog_file(write(tmp_path, "catalog.yaml", text))


def test_a_catalogue_is_one_document(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="one document"):
        read_catalog_file(write(tmp_path, "catalog.yaml", "instanceTypes: []\n---\ninstanceTypes: []\n"))


def learned(ami: str, seen_at: float) -> LearnedCapacity:
    observation = Observation(ami, "t", "k", {}, {}, seen_at, "c", "n")
    return LearnedCapacity(ami, "t", "k", (observation,), 1)


def test_learned_capacity_without_a_resolved_ami() -> None:
    entries = [learned("ami-1", 1.0), learned("ami-2", 2.0)]
    (latest,) = learned_for_unknown_ami(entries, [])
    assert (latest.ami, latest.recent[0].observed_at) == ("", 2.0)
    (named,) = learned_for_unknown_ami(entries, ["ami-1"])
    assert named.recent[0].observed_at == 1.0
    assert learned_for_unknown_ami(entries, ["ami-3"]) == ()
