"""Server-side apply: what merges, what a manager takes back, and whose fields are whose."""

from __future__ import annotations

from typing import Any

import pytest

from shiplap.errors import ObjectConflict
from shiplap_lab.api_server.bodies.server_side_apply import applied

KIND = "Deployment"


def config(*containers: dict[str, Any], labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    template = {"spec": {"containers": list(containers)}} if containers else {}
    metadata: dict[str, Any] = {"name": "web", **({"labels": labels} if labels else {})}
    body = {**spec, **({"template": template} if template else {})}
    return {"apiVersion": "apps/v1", "kind": KIND, "metadata": metadata, "spec": body}


def apply(
    live: dict[str, Any] | None, body: dict[str, Any], manager: str = "a", *, force: bool = False
) -> dict[str, Any]:
    return applied(live, body, KIND, manager, force=force)


def containers(item: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = item["spec"]["template"]["spec"]["containers"]
    return found


def test_an_object_remembers_who_applied_which_field() -> None:
    ports = [{"containerPort": 80}]
    made = apply(None, config({"name": "main", "ports": ports}, labels={"a": "b"}, replicas=3))
    (entry,) = made["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"], entry["fieldsType"]) == ("a", "Apply", "FieldsV1")
    fields = entry["fieldsV1"]
    assert fields["f:metadata"] == {"f:labels": {"f:a": {}}}
    assert fields["f:spec"]["f:replicas"] == {}
    (container,) = fields["f:spec"]["f:template"]["f:spec"]["f:containers"].items()
    assert container[0] == 'k:{"name":"main"}'
    assert 'k:{"containerPort":80,"protocol":"TCP"}' in container[1]["f:ports"]


def test_lists_merge_by_their_keys_and_what_a_manager_leaves_out_goes() -> None:
    first = apply(None, config({"name": "main", "image": "a", "command": ["x"]}, {"name": "side"}, replicas=3))
    scaled = {**first, "spec": {**first["spec"], "paused": True}}  # by another request
    second = apply(scaled, config({"name": "main", "image": "b"}, {"name": "new"}))
    assert [(each["name"], each.get("image"), each.get("command")) for each in containers(second)] == [
        ("main", "b", None),
        ("new", None, None),
    ]
    assert (second["spec"]["paused"], "replicas" in second["spec"]) == (True, False)
    assert len(second["metadata"]["managedFields"]) == 1


def test_two_managers_share_an_object() -> None:
    both = apply(apply(None, config({"name": "main"}, labels={"a": "1"})), config({"name": "side"}, replicas=2), "b")
    assert [each["name"] for each in containers(both)] == ["main", "side"]
    fewer = apply(both, config(labels={"a": "1"}))
    assert [each["name"] for each in containers(fewer)] == ["side"]
    assert fewer["spec"]["replicas"] == 2


def test_another_value_of_the_same_field_conflicts_unless_it_is_taken_over() -> None:
    live = apply(None, config({"name": "main", "image": "a"}, replicas=3))
    with pytest.raises(ObjectConflict) as caught:
        apply(live, config({"name": "main", "image": "b"}, replicas=3), "b")
    assert caught.value.status == 409
    assert 'conflict with "a": .spec.template.spec.containers[name="main"].image' in str(caught.value)
    taken = apply(live, config({"name": "main", "image": "b"}, replicas=3), "b", force=True)
    assert containers(taken)[0]["image"] == "b"
    again = apply(taken, config({"name": "main"}, replicas=3))
    assert containers(again)[0]["image"] == "b"  # it is no longer a's to take away


def test_sets_join_and_untyped_lists_are_replaced() -> None:
    first = applied(None, {"metadata": {"finalizers": ["f"]}, "spec": {"list": [1]}}, "Widget", "a", force=False)
    second = applied(first, {"spec": {"list": [2]}}, "Widget", "b", force=True)
    assert (second["spec"]["list"], second["metadata"]["finalizers"]) == ([2], ["f"])
    typed = apply(None, {**config(), "metadata": {"finalizers": ["f"]}})
    joined = apply(typed, {**config(), "metadata": {"finalizers": ["g"]}}, "b")
    assert joined["metadata"]["finalizers"] == ["f", "g"]
    assert apply(joined, config())["metadata"]["finalizers"] == ["g"]


@pytest.mark.parametrize(
    "told",
    [
        [{}],
        [{"manager": "b"}],
        [{"manager": "b", "operation": "Apply", "fieldsV1": ["f:spec"]}],
        [{"manager": "b", "operation": "Apply", "fieldsV1": {"f:spec": "all"}}],
        [{"manager": "b", "operation": "Apply", "fieldsV1": {"f:spec": {"k:main": {}}}}],
        [{"manager": "b", "operation": "Apply", "fieldsV1": {"f:spec": {"k:[1]": {}}}}],
        [{"manager": "b", "operation": "Apply", "fieldsV1": {"spec": {}}}],
        None,
    ],
)
def test_managers_that_nobody_can_have_recorded_are_forgotten(told: Any) -> None:
    live = config(replicas=3) | {"metadata": {"name": "web", "managedFields": told}}
    assert [each["manager"] for each in apply(live, config(replicas=4))["metadata"]["managedFields"]] == ["a"]
