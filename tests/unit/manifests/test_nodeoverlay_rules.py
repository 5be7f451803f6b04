"""Each rule of a NodeOverlay, by an input that keeps it and one that breaks it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.manifests.manifest_samples import ABSENT, NODE_OVERLAY, changed, fields_of, problems_of

REQUIREMENTS = "spec.requirements"
TYPE = "node.kubernetes.io/instance-type"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec.weight", 1),
        ("spec.weight", 10000),
        ("spec.price", "42"),
        ("spec.price", "42.5"),
        *(
            ("spec.priceAdjustment", text)
            for text in "+1% -1% -100% +100.102% +298% +43 -43 +34.43 -34.43 +.5".split()  # noqa: SIM905
        ),
        ("spec.capacity", {"example.com/gpu": "4", "memory": "253755Mi", "cpu": "32", "pods": 110}),
        (REQUIREMENTS, [{"key": "karpenter.sh/nodepool", "operator": "In", "values": ["a"]}]),
        (REQUIREMENTS, [{"key": "karpenter.k8s.aws/instance-cpu", "operator": "Gte", "values": ["0"]}]),
        (REQUIREMENTS, []),
    ],
)
def test_accepted(path: str, value: Any) -> None:
    assert problems_of(changed(NODE_OVERLAY, path, value)) == []


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        ("spec.weight", 0, "spec.weight"),
        ("spec.weight", 10001, "spec.weight"),
        *(
            ("spec.price", text, "spec.price")
            for text in [
                "+42",
                "-.42",
                ".5",
                "42.",
                "42%",
                "3,14",
                "1e10",
                "0x42",
                "cheap",
                "4 2",
                "42.0.0",
                "-",
                ".",
                "",
            ]
        ),
        ("spec.price", 42, "spec.price"),
        *(
            ("spec.priceAdjustment", text, "spec.priceAdjustment")
            for text in ["1", "1.3", "1%", "-100.0%", "-101.1%", "-101%", "+", "%", "+-1", "+1.%", ""]
        ),
        ("spec.capacity", {"memory": "much"}, "spec.capacity.memory"),
        ("spec.capacity", {"memory": "-1"}, "spec.capacity.memory"),
        ("spec.capcity", {}, "spec.capcity"),
        (REQUIREMENTS, ABSENT, REQUIREMENTS),
        (REQUIREMENTS, [{"key": TYPE, "operator": "In", "values": []}], f"{REQUIREMENTS}[0].values"),
        (REQUIREMENTS, [{"key": TYPE, "operator": "NotIn"}], f"{REQUIREMENTS}[0].values"),
        (REQUIREMENTS, [{"key": TYPE, "operator": "In", "values": ["m5.*"]}], f"{REQUIREMENTS}[0].values"),
        (REQUIREMENTS, [{"key": "a", "operator": "Lt", "values": ["-1"]}], f"{REQUIREMENTS}[0].values"),
        (REQUIREMENTS, [{"key": "a", "operator": "Exists", "minValues": 1}], f"{REQUIREMENTS}[0].minValues"),
        ("metadata.annotations", {"shiplap.dev/x": "y"}, "metadata.annotations[shiplap.dev/x]"),
        ("metadata.name", "a_b", "metadata.name"),
    ],
)
def test_refused(path: str, value: Any, field: str) -> None:
    assert fields_of(changed(NODE_OVERLAY, path, value)) == [field]


def test_price_and_adjustment_exclude_each_other() -> None:
    assert fields_of(changed(changed(NODE_OVERLAY, "spec.price", "1"), "spec.priceAdjustment", "+1")) == ["spec"]


def test_another_version_is_refused() -> None:
    assert problems_of(changed(NODE_OVERLAY, "apiVersion", "karpenter.sh/v1")) == [
        ("apiVersion", "karpenter.sh/v1 is not read; write it as karpenter.sh/v1alpha1")
    ]
