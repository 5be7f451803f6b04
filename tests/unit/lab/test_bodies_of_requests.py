"""Bodies of requests against Kubernetes' types: unknown fields, wrong values, and objects in protobuf."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shiplap.errors import ClusterError
from shiplap_lab.api_server.bodies.api_types import declared_fields, json_fields, mistakes_of
from shiplap_lab.api_server.bodies.field_checks import check_fields
from shiplap_lab.api_server.bodies.protobuf_bodies import decoded_protobuf
from tests.builders.pods import pod_object
from tests.builders.workloads import workload_object
from tools import api_types

STRICT = {"fieldValidation": "Strict"}
POOL = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "a"}}


def with_container(**fields: Any) -> dict[str, Any]:
    body = workload_object()
    body["spec"]["template"]["spec"]["containers"][0] |= fields
    return body


def test_the_types_are_those_of_kubernetes() -> None:
    assert api_types.FILE.read_text(encoding="utf-8") == api_types.written(), "run python tools/api_types.py"


def test_fields_that_json_writes_in_their_holder_are_the_holders() -> None:
    assert {"name", "persistentVolumeClaim", "emptyDir"} <= json_fields("Volume").keys()
    assert [field.name for field in declared_fields("Volume")] == ["name", "+VolumeSource"]
    assert json_fields("Container")["ports"].keys == ("containerPort", "protocol")
    assert (json_fields("PodSpec")["tolerations"].merge, json_fields("ObjectMeta")["finalizers"].merge) == (None, "")


@pytest.mark.parametrize(
    ("body", "unknown"),
    [
        (workload_object(), []),
        (workload_object(replica=3), ["spec.replica"]),
        (with_container(imagee="x"), ["spec.template.spec.containers[0].imagee"]),
        (with_container(env=[{"name": "A", "valu": "b"}]), ["spec.template.spec.containers[0].env[0].valu"]),
        ({**workload_object(), "sepc": {}, "metadata": {"lables": {}}}, ["sepc", "metadata.lables"]),
        (workload_object(strategy={"rollingUpdate": {"maxSurges": 1}}), ["spec.strategy.rollingUpdate.maxSurges"]),
    ],
)
def test_unknown_fields_are_named_by_their_paths(body: dict[str, Any], unknown: list[str]) -> None:
    found = mistakes_of("Deployment", body)
    assert (sorted(found.unknown), found.wrong) == (sorted(unknown), [])
    check_fields("deployments", body, {})
    if unknown:
        with pytest.raises(ClusterError, match="strict decoding error: unknown field") as caught:
            check_fields("deployments", body, STRICT)
        assert (caught.value.status, all(f'"{name}"' in str(caught.value) for name in unknown)) == (400, True)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (workload_object(replicas="three"), "unmarshal string into Go struct field spec.replicas of type int"),
        (workload_object(paused="yes"), "spec.paused of type bool"),
        (workload_object(replicas=2**70), "spec.replicas of type int"),
        (workload_object(template=[]), "spec.template of type PodTemplateSpec"),
        (workload_object(selector={"matchLabels": ["a"]}), "spec.selector.matchLabels of type map[string]string"),
        (
            workload_object(selector={"matchLabels": {"a": 1}}),
            "field spec.selector.matchLabels.a of type string",
        ),
        (with_container(command="sleep"), "containers[0].command of type []string"),
        (with_container(ports=[80]), "containers[0].ports[0] of type ContainerPort"),
        (with_container(resources={"requests": {"cpu": "much"}}), "requests.cpu: quantities must match"),
        (with_container(resources={"requests": {"cpu": [1]}}), "requests.cpu of type Quantity"),
        (workload_object(strategy={"rollingUpdate": {"maxSurge": 1.5}}), "maxSurge of type IntOrString"),
        ({**workload_object(), "metadata": {"creationTimestamp": "soon"}}, "'soon' is no time such as"),
        ({**workload_object(), "metadata": {"ownerReferences": [{"uid": 3}]}}, "ownerReferences[0].uid of type string"),
    ],
)
def test_values_of_another_type_are_refused_in_any_case(body: dict[str, Any], words: str) -> None:
    with pytest.raises(ClusterError) as caught:
        check_fields("deployments", body, {})
    assert (caught.value.status, words in str(caught.value)) == (400, True), str(caught.value)


@pytest.mark.parametrize(
    "resources",
    [{"cpu": 1}, {"cpu": 0.5}, {"cpu": "100m", "memory": "1Gi"}, {"cpu": "1e3", "memory": "1E", "a": "5k"}, None],
)
def test_quantities_of_all_forms_are_accepted(resources: Any) -> None:
    check_fields("deployments", with_container(resources={"requests": resources}), STRICT)


def test_directives_of_a_patch_are_no_fields() -> None:
    containers = [{"name": "a", "$patch": "delete"}]
    patch = {"spec": {"$retainKeys": ["a"], "template": {"spec": {"containers": containers}}}}
    check_fields("deployments", patch, STRICT, whole=False)


def test_karpenters_kinds_are_checked_as_manifests_are() -> None:
    with pytest.raises(ClusterError) as caught:
        check_fields("nodepools", {**POOL, "spec": {"wait": 1, "template": {"spec": {}}}}, STRICT)
    assert 'unknown field "spec.wait", did you mean weight?' in str(caught.value)
    check_fields("nodepools", {**POOL, "spec": {"wait": 1}}, {})
    check_fields("nodepools", {"spec": {"weight": 1}}, STRICT, whole=False)
    check_fields("nodeclaims", {"metadata": {"name": "a"}, "spec": {"anything": 1}}, STRICT)


# What kubectl writes: an envelope with the kind and the object's own fields by number.


def varint(number: int) -> bytes:
    number &= 2**64 - 1
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*written, number])


def entry(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def encoded(kind: str, item: dict[str, Any]) -> bytes:
    return b"".join(
        entry(field.number, part)
        for field in declared_fields(kind)
        if field.number
        for part in parts(field.kind, field.holds, item if field.is_inline else item.get(field.name))
    )


def parts(kind: str, holds: str, value: Any) -> list[int | bytes]:
    if value is None:
        return []
    if holds == "list":
        return [part for each in value for part in parts(kind, "", each)]
    if holds == "map":
        return [entry(1, key.encode()) + entry(2, parts(kind, "", each)[0]) for key, each in value.items()]
    match kind:
        case "int" | "bool":
            return [int(value)]
        case "string":
            return [value.encode()]
        case "Quantity":
            return [entry(1, value.encode())]
        case "IntOrString":
            return [entry(1, 0) + entry(2, value) if isinstance(value, int) else entry(1, 1) + entry(3, value.encode())]
        case "Time":
            return [entry(1, 1_700_000_000)]
    return [encoded(kind, value)]


def envelope(kind: str, version: str, raw: bytes) -> bytes:
    return b"k8s\x00" + entry(1, entry(1, version.encode()) + entry(2, kind.encode())) + entry(2, raw)


def test_an_object_in_protobuf_is_the_same_as_in_json() -> None:
    body = with_container(
        command=["sleep", "1"], volumeMounts=[{"name": "data", "mountPath": "/data", "readOnly": True}]
    )
    body["spec"]["strategy"] = {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": "25%"}}
    body["spec"]["template"]["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "a"}}]
    body["spec"]["template"]["spec"]["securityContext"] = {"runAsUser": -5}
    body["metadata"]["creationTimestamp"] = "2023-11-14T22:13:20Z"
    assert decoded_protobuf(envelope("Deployment", "apps/v1", encoded("Deployment", body))) == body


def test_what_nobody_has_set_is_left_out() -> None:
    """Go writes empty texts, and a time without seconds."""
    metadata = entry(1, b"first") + entry(3, b"") + entry(8, b"")
    unknown = entry(99, 7) + varint(98 << 3 | 5) + b"four" + varint(97 << 3 | 1) + b"eight---"
    pod = decoded_protobuf(envelope("Pod", "v1", entry(1, metadata) + unknown))
    assert pod == {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "first"}}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"k8s\x00",
        envelope("Widget", "v1", b""),
        envelope("Pod", "v1", entry(1, 5)),
        envelope("Pod", "v1", entry(1, entry(1, b"\xff"))),
        envelope("Pod", "v1", entry(1, b"abc"))[:-1],
        envelope("Pod", "v1", b"\x80" * 20),
        envelope("Pod", "v1", varint(1 << 3 | 3)),
    ],
)
def test_what_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(ClusterError) as caught:
        decoded_protobuf(body)
    assert caught.value.status == 400


@given(st.binary(max_size=80), st.sampled_from(["Pod", "Deployment", "DeleteOptions"]))
def test_any_bytes_are_an_object_or_refused(raw: bytes, kind: str) -> None:
    try:
        decoded = decoded_protobuf(envelope(kind, "v1", raw))
    except ClusterError as error:
        status = error.status
    else:
        status = 200 if decoded["kind"] == kind else 0
    assert status in (200, 400)


def test_a_pod_needs_containers() -> None:
    with pytest.raises(ClusterError) as caught:
        check_fields("pods", {**pod_object("a"), "spec": {}}, {})
    assert caught.value.status == 422
