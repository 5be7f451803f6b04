"""Objects larger than any controller writes are set aside alone, and what they take of their nodes still counts."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import (
    MOST_ENTRIES,
    MOST_LABELS,
    MOST_NAMES,
    MOST_PARTS,
    CustomObject,
    DaemonSet,
    Node,
    Pod,
)
from shiplap.kubernetes.pod_disruption_budgets import PodDisruptionBudget
from shiplap.kubernetes.pod_requests import pod_requests
from shiplap.kubernetes.reading import MOST_KEPT_BYTES, Page, Reader
from tests.builders.nodes import node_object
from tests.builders.pods import pod_object

RULE = {"key": "a", "operator": "Exists"}
AFFINITY_TERM = {"topologyKey": "zone"}
NODE_TERM = {"matchExpressions": [RULE]}
WEIGHTED = {"weight": 1, "podAffinityTerm": AFFINITY_TERM}
CONTAINER = {"name": "c"}
REQUIRED, PREFERRED = (f"{word}DuringSchedulingIgnoredDuringExecution" for word in ("required", "preferred"))

LISTS: list[tuple[str, Any, int]] = [
    ("metadata.ownerReferences", {"kind": "ReplicaSet"}, MOST_ENTRIES),
    ("metadata.finalizers", "f", MOST_ENTRIES),
    ("spec.tolerations", RULE, MOST_PARTS),
    ("spec.containers", CONTAINER, MOST_PARTS),
    ("spec.initContainers", CONTAINER, MOST_PARTS),
    ("spec.volumes", {"name": "v"}, MOST_NAMES),
    ("spec.schedulingGates", {"name": "g"}, MOST_ENTRIES),
    ("spec.resourceClaims", {"name": "r"}, MOST_ENTRIES),
    (
        "spec.topologySpreadConstraints",
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"},
        MOST_ENTRIES,
    ),
    (f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms", NODE_TERM, MOST_ENTRIES),
    (f"spec.affinity.nodeAffinity.{PREFERRED}", {"weight": 1, "preference": NODE_TERM}, MOST_ENTRIES),
    (f"spec.affinity.podAffinity.{REQUIRED}", AFFINITY_TERM, MOST_ENTRIES),
    (f"spec.affinity.podAntiAffinity.{REQUIRED}", AFFINITY_TERM, MOST_ENTRIES),
    (f"spec.affinity.podAffinity.{PREFERRED}", WEIGHTED, MOST_ENTRIES),
    (f"spec.affinity.podAntiAffinity.{PREFERRED}", WEIGHTED, MOST_ENTRIES),
    ("status.conditions", {"type": "Ready"}, MOST_ENTRIES),
    ("status.containerStatuses", CONTAINER, MOST_PARTS),
]

MAPS = [
    ("metadata.labels", MOST_LABELS),
    ("spec.nodeSelector", MOST_ENTRIES),
    ("spec.overhead", MOST_ENTRIES),
    ("status.allocatedResources", MOST_ENTRIES),
]


def put(item: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    inner = item
    *steps, last = path.split(".")
    for step in steps:
        inner = inner.setdefault(step, {})
    inner[last] = value
    return item


def page_of(kind: type[Any], *items: Any) -> Page[Any]:
    return Reader(kind).page(msgspec.json.encode({"metadata": {}, "items": items}))


def waiting(name: str = "odd") -> dict[str, Any]:
    return pod_object(name, "500m", waits=True, metadata={"uid": f"uid-{name}"})


@pytest.mark.parametrize(("path", "entry", "most"), LISTS, ids=[path for path, _, _ in LISTS])
def test_a_list_has_a_most_length_and_only_its_pod_is_set_aside(path: str, entry: Any, most: int) -> None:
    held = page_of(Pod, put(waiting(), path, [entry] * most), waiting("good"))
    assert [pod.metadata.name for pod in held.items] == ["odd", "good"]
    beyond = page_of(Pod, put(waiting(), path, [entry] * (most + 1)), waiting("good"))
    assert [pod.metadata.name for pod in beyond.items] == ["good"]
    (told,) = beyond.unreadable
    assert (told.name, told.uid, told.waits) == ("odd", "uid-odd", True)
    assert f"length <= {most}" in told.reason
    assert path in told.reason


@pytest.mark.parametrize(("path", "most"), MAPS)
def test_a_map_has_a_most_length_and_only_its_pod_is_set_aside(path: str, most: int) -> None:
    held = page_of(Pod, put(waiting(), path, {f"k{place}": "1" for place in range(most)}), waiting("good"))
    assert len(held.items) == 2
    beyond = page_of(Pod, put(waiting(), path, {f"k{place}": "1" for place in range(most + 1)}), waiting("good"))
    assert [pod.metadata.name for pod in beyond.items] == ["good"]
    assert path in beyond.unreadable[0].reason


def test_what_is_read_of_a_pod_has_a_most_size_whatever_it_consists_of() -> None:
    rule = {"key": "a", "operator": "In", "values": ["x" * 60] * (MOST_KEPT_BYTES // 60)}
    path = f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms"
    page = page_of(Pod, put(waiting(), path, [{"matchExpressions": [rule]}]), waiting("good"))
    assert [pod.metadata.name for pod in page.items] == ["good"]
    assert f"more than {MOST_KEPT_BYTES} bytes" in page.unreadable[0].reason


def test_what_nobody_reads_of_a_pod_has_any_size() -> None:
    odd = put(waiting(), "metadata.annotations", {f"note-{place}": "x" * 99 for place in range(2_000)})
    odd["metadata"]["annotations"][labels.DO_NOT_DISRUPT] = "true"
    odd["metadata"]["managedFields"] = [{"fieldsV1": {f"f:{place}": {} for place in range(20_000)}}]
    odd["spec"]["containers"][0]["env"] = [{"name": f"E{place}", "value": "x" * 99} for place in range(9_000)]
    page = page_of(Pod, odd, waiting("good"))
    assert page.unreadable == ()
    assert page.items[0].metadata.annotations == {labels.DO_NOT_DISRUPT: "true"}


def test_a_bound_pod_that_is_too_large_takes_of_its_node_what_it_requests() -> None:
    odd = pod_object("odd", "1500m", "2Gi", node="n1", phase="Running")
    page = page_of(Pod, put(odd, "spec.tolerations", [RULE] * (MOST_PARTS + 1)))
    (stand_in,) = page.items
    assert pod_requests(stand_in) == {"cpu": 1500, "memory": 2 * 2**30, "pods": 1}
    assert stand_in.metadata.annotations == {labels.DO_NOT_DISRUPT: "true"}
    assert not page.unreadable[0].waits


def test_nothing_is_free_beside_a_bound_pod_with_more_containers_than_are_read() -> None:
    odd = put(pod_object("odd", node="n1", phase="Running"), "spec.containers", [CONTAINER] * (MOST_PARTS + 1))
    (stand_in,) = page_of(Pod, odd).items
    with pytest.raises(ValueError, match="not a quantity"):
        pod_requests(stand_in)


def test_a_node_that_is_too_large_stays_and_takes_no_pods() -> None:
    odd = node_object("odd", labels={f"l{place}": "x" for place in range(MOST_LABELS + 1)}, providerID="aws:///a/i-1")
    page = page_of(Node, odd, node_object("good"))
    assert [node.metadata.name for node in page.items] == ["odd", "good"]
    assert page.items[0].spec.unschedulable
    assert page.items[0].spec.provider_id == "aws:///a/i-1"


def test_a_daemon_set_that_is_too_large_still_takes_its_share_of_every_node() -> None:
    template = pod_object("odd", "100m")
    put(template, f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms", [NODE_TERM] * (MOST_ENTRIES + 1))
    odd = {"metadata": {"name": "odd", "namespace": "shop"}, "spec": {"template": template}}
    page = page_of(DaemonSet, odd)
    (stand_in,) = page.items
    spec = stand_in.spec.template.spec
    assert pod_requests(Pod(spec=spec))["cpu"] == 100
    assert spec.affinity is None
    assert [toleration.operator for toleration in spec.tolerations] == ["Exists"]
    assert page.unreadable[0].name == "odd"


def test_a_budget_that_is_too_large_is_set_aside_alone() -> None:
    def budget(name: str, many: int) -> dict[str, Any]:
        selector = {"matchExpressions": [RULE] * many}
        return {"metadata": {"name": name}, "spec": {"maxUnavailable": 1, "selector": selector}}

    page = page_of(PodDisruptionBudget, budget("odd", MOST_ENTRIES + 1), budget("good", 1))
    assert [item.metadata.name for item in page.items] == ["good"]
    assert page.unreadable[0].name == "odd"


@pytest.mark.parametrize("field", ["name", "namespace", "uid", "creationTimestamp"])
def test_words_about_a_hostile_answer_are_short(field: str) -> None:
    odd = put(waiting(), f"metadata.{field}", "1" * 200_000)
    page = page_of(Pod, odd, waiting("good"))
    assert [pod.metadata.name for pod in page.items] == ["good"]
    assert len(page.unreadable[0].text) < 800


def test_a_large_page_is_read_like_its_objects_one_by_one() -> None:
    padding = {"padding": "x" * 2**20}
    items = [put(waiting(f"p{number}"), "metadata.managedFields", [padding]) for number in range(6)]
    body = msgspec.json.encode({"metadata": {"resourceVersion": "7", "continue": "next"}, "items": items})
    page = Reader(Pod).page(body)
    assert (page.version, page.token, page.unreadable) == ("7", "next", ())
    assert page.items == tuple(Reader(Pod).one(msgspec.json.encode(item)).item for item in items)


def test_manifests_and_definitions_have_any_size() -> None:
    """`kubectl apply` writes each of them into an annotation once more."""
    applied = {"metadata": {"name": "large", "annotations": {"last-applied": "x" * 2 * MOST_KEPT_BYTES}}}
    for kind in (CustomObject, dict[str, Any]):
        read = Reader(kind, "object", any_size=True).one(msgspec.json.encode(applied))  # type: ignore[var-annotated]
        assert read.item is not None
        assert read.unreadable is None
