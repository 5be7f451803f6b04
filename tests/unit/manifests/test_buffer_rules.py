"""Each rule of a CapacityBuffer, and manifests of the core group beside it."""

from __future__ import annotations

from typing import Any

import pytest

from shiplap.manifests.files.documents import Document
from shiplap.manifests.files.loading import check_documents
from tests.unit.manifests.manifest_samples import ABSENT, changed, problems_of

BUFFER: dict[str, Any] = {
    "apiVersion": "autoscaling.x-k8s.io/v1beta1",
    "kind": "CapacityBuffer",
    "metadata": {"name": "spare", "namespace": "web"},
    "spec": {"podTemplateRef": {"name": "small"}, "replicas": 2},
}
SCALABLE = {"scalableRef": {"apiGroup": "apps", "kind": "Deployment", "name": "web"}}
TEMPLATE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "PodTemplate",
    "metadata": {"name": "small", "namespace": "web"},
    "template": {"spec": {"containers": [{"name": "main", "image": "web"}]}},
}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec", {"podTemplateRef": {"name": "small"}, "limits": {"cpu": "4"}}),
        ("spec", {**SCALABLE, "percentage": 20}),
        ("spec", {**SCALABLE, "replicas": 0}),
        ("spec.provisioningStrategy", "buffer.x-k8s.io/active-capacity"),
    ],
)
def test_accepted(path: str, value: Any) -> None:
    assert problems_of(changed(BUFFER, path, value)) == []


@pytest.mark.parametrize(
    ("path", "value", "field", "reason"),
    [
        ("spec", {"replicas": 1}, "spec", "exactly one of podTemplateRef and scalableRef must be set"),
        ("spec.scalableRef", SCALABLE["scalableRef"], "spec", "exactly one of podTemplateRef and scalableRef must be"),
        ("spec.replicas", ABSENT, "spec", "podTemplateRef needs replicas or limits"),
        ("spec.replicas", -1, "spec.replicas", "must not be negative, is -1"),
        ("spec.percentage", 10, "spec.percentage", "a pod template has no replicas"),
        ("spec.limits", {"cpu": "much"}, "spec.limits.cpu", "much"),
        ("spec.provisioningStrategy", "else", "spec.provisioningStrategy", "must be buffer.x-k8s.io/active-capacity"),
        ("spec", {"scalableRef": {"kind": "Job", "name": "x"}}, "spec.scalableRef", "must be one of Deployment"),
        ("apiVersion", "autoscaling.x-k8s.io/v1alpha1", "apiVersion", "write it as autoscaling.x-k8s.io/v1beta1"),
        ("spec.extra", 1, "spec.extra", "unknown field"),
    ],
)
def test_refused(path: str, value: Any, field: str, reason: str) -> None:
    (found,) = problems_of(changed(BUFFER, path, value))
    assert found[0] == field
    assert reason in found[1]


@pytest.mark.parametrize(
    ("container", "field", "reason"),
    [
        ({"resources": {"requests": {"cpu": "much"}}}, "template.spec.containers[0].resources.requests.cpu", "much"),
        ({"resources": {"limits": {"cpu": "-1"}}}, "template.spec.containers[0].resources.limits.cpu", "negative"),
        ({"resources": 1}, "template", "containers"),
    ],
)
def test_a_pod_template_that_no_buffer_could_use_is_refused(container: dict[str, Any], field: str, reason: str) -> None:
    (found,) = problems_of(changed(TEMPLATE, "template.spec.containers", [container]))
    assert found[0] == field
    assert reason in found[1]


def test_pod_templates_are_read_and_other_core_objects_are_not() -> None:
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {}}
    elsewhere = changed(BUFFER, "metadata.namespace", "batch")
    objects = [BUFFER, elsewhere, TEMPLATE, config]
    report = check_documents([Document("given", place, 1, "", data) for place, data in enumerate(objects)])
    assert report.problems == ()
    assert (report.checked, len(report.skipped)) == (3, 1)
    assert [item.metadata.namespace for item in report.manifests.capacity_buffers] == ["batch", "web"]
    assert report.manifests.pod_templates[0].template == TEMPLATE["template"]
    twice = check_documents([Document("given", place, 1, "", data) for place, data in enumerate([BUFFER, BUFFER])])
    assert "already one of this name" in twice.problems[0].reason
