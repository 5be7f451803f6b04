"""Each rule of a NodePool, by an input that keeps it and one that breaks it."""

from __future__ import annotations

from typing import Any

import pytest

from shiplap.manifests.files.documents import Document
from shiplap.manifests.files.loading import check_documents
from shiplap.manifests.shiplap_annotations import DISRUPTION_TIME_ZONE as ZONE
from shiplap.manifests.shiplap_annotations import REBALANCE, REBALANCE_POLICIES
from tests.unit.manifests.manifest_samples import ABSENT, NODE_POOL, changed, fields_of, problems_of

CLAIM = "spec.template.spec"
LABELS = "spec.template.metadata.labels"
TENANCY = "karpenter.k8s.aws/instance-tenancy"
REQUIREMENTS = f"{CLAIM}.requirements"
ARCH = "kubernetes.io/arch"


def in_(key: str, *values: str, **more: Any) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": list(values), **more}


def test_the_sample_is_valid() -> None:
    assert problems_of(NODE_POOL) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec.weight", 1),
        ("spec.weight", 100),
        ("spec.replicas", 0),
        ("spec.limits", {"cpu": "100", "memory": "1000Gi", "nodes": 5, "example.com/gpu": "4"}),
        ("spec.disruption", {}),
        ("spec.disruption.consolidateAfter", "Never"),
        ("spec.disruption.consolidateAfter", "1h30m10s"),
        ("spec.disruption.consolidationPolicy", "WhenEmpty"),
        ("spec.disruption.consolidationPolicy", "WhenEmptyOrUnderutilized"),
        ("spec.disruption.consolidationPolicy", "Balanced"),
        ("spec.disruption.budgets", [{"nodes": "0"}, {"nodes": "100%", "reasons": ["Empty", "Drifted"]}]),
        ("spec.disruption.budgets", [{"nodes": "10", "schedule": "@daily", "duration": "10m"}]),
        ("spec.disruption.budgets", [{"schedule": "0 9 * * mon-fri", "duration": "1h30m0s"}]),
        (f"{CLAIM}.expireAfter", "Never"),
        (f"{CLAIM}.expireAfter", "24h"),
        (f"{CLAIM}.terminationGracePeriod", "48h"),
        (
            f"{CLAIM}.taints",
            [{"key": "a.b/c", "effect": "NoSchedule", "value": "d"}, {"key": "e", "effect": "NoExecute"}],
        ),
        (f"{CLAIM}.startupTaints", [{"key": "e", "effect": "PreferNoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}]),
        (LABELS, {"team": "a", "kops.k8s.io/x": "y", "node-restriction.kubernetes.io/z": ""}),
        (LABELS, {"karpenter.sh/capacity-type": "spot"}),
        ("spec.template.metadata.annotations", {"any.thing/x": "text of any kind"}),
        *(("metadata.annotations", {ZONE: zone}) for zone in ("UTC", "Europe/Berlin", "America/Argentina/Salta")),
        ("metadata.annotations", {"kubectl.kubernetes.io/last-applied-configuration": "{}"}),
        ("status", {"nodes": 3, "conditions": []}),
        (REQUIREMENTS, []),
        (REQUIREMENTS, [in_("karpenter.sh/capacity-type", "spot", "gold")]),
        (REQUIREMENTS, [in_("karpenter.sh/capacity-type", "spot", "*")]),
        (REQUIREMENTS, [in_(TENANCY, "dedicated", "host")]),
        (REQUIREMENTS, [in_("beta.kubernetes.io/arch", "amd64")]),
        (REQUIREMENTS, [in_("karpenter.k8s.aws/instance-family", "c7i-flex", "c*", "*", minValues=5)]),
        (REQUIREMENTS, [in_("node.kubernetes.io/instance-type", "a", "b", minValues=2)]),
        (
            REQUIREMENTS,
            [{"key": "integer", "operator": operator, "values": ["8"]} for operator in ("Gt", "Lt", "Gte", "Lte")],
        ),
        (REQUIREMENTS, [{"key": "kops.k8s.io/x", "operator": "Exists", "minValues": 50}]),
        (
            REQUIREMENTS,
            [{"key": ARCH, "operator": "NotIn", "values": ["arm64"]}, {"key": "x", "operator": "DoesNotExist"}],
        ),
        *(("metadata.annotations", {REBALANCE: policy}) for policy in REBALANCE_POLICIES),
    ],
)
def test_accepted(path: str, value: Any) -> None:
    assert problems_of(changed(NODE_POOL, path, value)) == []


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        ("metadata.name", ABSENT, "metadata.name"),
        ("metadata.name", "Upper", "metadata.name"),
        ("metadata.name", "a" * 254, "metadata.name"),
        ("metadata.lables", {}, "metadata.lables"),
        ("spec.wieght", 1, "spec.wieght"),
        ("spec.weight", 0, "spec.weight"),
        ("spec.weight", 101, "spec.weight"),
        ("spec.weight", "10", "spec.weight"),
        ("spec.weight", 1.5, "spec.weight"),
        ("spec.weight", True, "spec.weight"),
        ("spec.replicas", -1, "spec.replicas"),
        ("spec.limits", {"cpu": "ten"}, "spec.limits.cpu"),
        ("spec.limits", {"cpu": "-1"}, "spec.limits.cpu"),
        ("spec.limits", {"cpu": True}, "spec.limits.cpu"),
        ("spec.limits", ["cpu"], "spec.limits"),
        ("spec.disruption.consolidateAfter", "-5m", "spec.disruption.consolidateAfter"),
        ("spec.disruption.consolidateAfter", "1hr", "spec.disruption.consolidateAfter"),
        ("spec.disruption.consolidateAfter", "never", "spec.disruption.consolidateAfter"),
        ("spec.disruption.consolidateAfter", 30, "spec.disruption.consolidateAfter"),
        *(
            ("spec.disruption.consolidationPolicy", policy, "spec.disruption.consolidationPolicy")
            for policy in ("1", "0", "10", "balanced", "whenempty", "", "WhenUnderutilized", "foo")
        ),
        ("spec.disruption.budgets", [{"nodes": "1000a%"}], "spec.disruption.budgets[0].nodes"),
        ("spec.disruption.budgets", [{"nodes": "101%"}], "spec.disruption.budgets[0].nodes"),
        ("spec.disruption.budgets", [{"nodes": "-1"}], "spec.disruption.budgets[0].nodes"),
        ("spec.disruption.budgets", [{"nodes": 5}], "spec.disruption.budgets[0].nodes"),
        ("spec.disruption.budgets", [{"schedule": "@daily"}], "spec.disruption.budgets[0]"),
        ("spec.disruption.budgets", [{"duration": "1h"}], "spec.disruption.budgets[0]"),
        (
            "spec.disruption.budgets",
            [{"schedule": "@wrongly", "duration": "1h"}],
            "spec.disruption.budgets[0].schedule",
        ),
        (
            "spec.disruption.budgets",
            [{"schedule": "@daily", "duration": "30s"}],
            "spec.disruption.budgets[0].duration",
        ),
        ("spec.disruption.budgets", [{"reasons": ["Expired"]}], "spec.disruption.budgets[0].reasons[0]"),
        ("spec.disruption.budgets", [{"reasons": ["Empty", "Empty"]}], "spec.disruption.budgets[0].reasons"),
        ("spec.disruption.budgets", [{}] * 51, "spec.disruption.budgets"),
        (f"{CLAIM}.expireAfter", "30d", f"{CLAIM}.expireAfter"),
        (f"{CLAIM}.terminationGracePeriod", "Never", f"{CLAIM}.terminationGracePeriod"),
        (f"{CLAIM}.taints", [{"key": "a", "effect": "No"}], f"{CLAIM}.taints[0].effect"),
        (f"{CLAIM}.taints", [{"key": "", "effect": "NoSchedule"}], f"{CLAIM}.taints[0].key"),
        (f"{CLAIM}.taints", [{"key": "a", "effect": "NoSchedule", "value": "b c"}], f"{CLAIM}.taints[0].value"),
        (f"{CLAIM}.taints", [{"key": "a", "effect": "NoSchedule", "vale": "b"}], f"{CLAIM}.taints[0].vale"),
        (f"{CLAIM}.taints", [{"key": "a", "effect": "NoExecute"}] * 2, f"{CLAIM}.taints[1]"),
        (f"{CLAIM}.nodeClassRef.name", "", f"{CLAIM}.nodeClassRef.name"),
        (f"{CLAIM}.nodeClassRef.name", ABSENT, f"{CLAIM}.nodeClassRef.name"),
        (f"{CLAIM}.nodeClassRef.kind", "", f"{CLAIM}.nodeClassRef.kind"),
        (f"{CLAIM}.nodeClassRef.kind", ABSENT, f"{CLAIM}.nodeClassRef.kind"),
        (f"{CLAIM}.nodeClassRef.kind", "AKSNodeClass", f"{CLAIM}.nodeClassRef.kind"),
        (f"{CLAIM}.nodeClassRef.group", "", f"{CLAIM}.nodeClassRef.group"),
        (f"{CLAIM}.nodeClassRef.group", ABSENT, f"{CLAIM}.nodeClassRef.group"),
        (f"{CLAIM}.nodeClassRef.group", "karpenter.k8s.aws/v1", f"{CLAIM}.nodeClassRef.group"),
        (f"{CLAIM}.nodeClassRef", ABSENT, f"{CLAIM}.nodeClassRef"),
        (LABELS, {"karpenter.sh/nodepool": "a"}, f"{LABELS}[karpenter.sh/nodepool]"),
        (LABELS, {"karpenter.sh/other": "a"}, f"{LABELS}[karpenter.sh/other]"),
        (LABELS, {"sub.karpenter.sh/x": "a"}, f"{LABELS}[sub.karpenter.sh/x]"),
        (LABELS, {"kubernetes.io/hostname": "a"}, f"{LABELS}[kubernetes.io/hostname]"),
        (LABELS, {"team": "a" * 64}, f"{LABELS}.team"),
        (LABELS, {"not a key": "a"}, f"{LABELS}.not a key"),
        (LABELS, {f"k{number}": "v" for number in range(101)}, LABELS),
        (REQUIREMENTS, ABSENT, REQUIREMENTS),
        (REQUIREMENTS, [in_(ARCH)], f"{REQUIREMENTS}[0].values"),
        (REQUIREMENTS, [in_(ARCH, "*", "amd64")], f"{REQUIREMENTS}[0].values"),
        (REQUIREMENTS, [in_(ARCH, "*", "*")], f"{REQUIREMENTS}[0].values"),
        (REQUIREMENTS, [in_(ARCH, "am d*")], f"{REQUIREMENTS}[0].values[0]"),
        (REQUIREMENTS, [in_(ARCH, "amd64", "a/b")], f"{REQUIREMENTS}[0].values[1]"),
        (REQUIREMENTS, [{"key": ARCH, "operator": "NotIn", "values": ["a*"]}], f"{REQUIREMENTS}[0].values"),
        (REQUIREMENTS, [{"key": ARCH, "operator": "Gt", "values": ["*"]}], f"{REQUIREMENTS}[0].values"),
        (REQUIREMENTS, [{"key": ARCH, "operator": "Gt", "values": ["a"]}], f"{REQUIREMENTS}[0].values"),
        (REQUIREMENTS, [{"key": ARCH, "operator": "Lt", "values": ["1", "2"]}], f"{REQUIREMENTS}[0].values"),
        (REQUIREMENTS, [{"key": ARCH, "operator": "Gte", "values": ["-1"]}], f"{REQUIREMENTS}[0].values"),
        (REQUIREMENTS, [{"key": ARCH, "operator": "Lte"}], f"{REQUIREMENTS}[0].values"),
        (REQUIREMENTS, [{"key": ARCH, "operator": "Exists", "values": ["a"]}], f"{REQUIREMENTS}[0].values"),
        (REQUIREMENTS, [{"key": ARCH, "operator": "DoesNotExist", "values": ["a"]}], f"{REQUIREMENTS}[0].values"),
        (REQUIREMENTS, [{"key": ARCH, "operator": "in", "values": ["a"]}], f"{REQUIREMENTS}[0].operator"),
        (REQUIREMENTS, [{"key": ARCH, "values": ["a"]}], f"{REQUIREMENTS}[0].operator"),
        (REQUIREMENTS, [in_("a/b/c", "x")], f"{REQUIREMENTS}[0].key"),
        (REQUIREMENTS, [in_("", "x")], f"{REQUIREMENTS}[0].key"),
        (REQUIREMENTS, [in_("karpenter.sh/nodepool", "x")], f"{REQUIREMENTS}[0].key"),
        (REQUIREMENTS, [in_("kubernetes.io/hostname", "x")], f"{REQUIREMENTS}[0].key"),
        (REQUIREMENTS, [in_("karpenter.k8s.aws/instance-pods", "x")], f"{REQUIREMENTS}[0].key"),
        *(
            (REQUIREMENTS, [in_(ARCH, "a", minValues=count)], f"{REQUIREMENTS}[0].minValues")
            for count in (0, -1, 2, 51)
        ),
        (REQUIREMENTS, [in_(ARCH, "a", "a", minValues=2)], f"{REQUIREMENTS}[0].minValues"),
        (REQUIREMENTS, [in_("karpenter.sh/capacity-type", "gold")], f"{REQUIREMENTS}[0].values"),
        (REQUIREMENTS, [in_(TENANCY, "host")], f"{REQUIREMENTS}[0].values"),
        (
            REQUIREMENTS,
            [in_("karpenter.sh/capacity-type", "spot", "gold", minValues=2)],
            f"{REQUIREMENTS}[0].values",
        ),
        (REQUIREMENTS, [in_(f"k{number}", "v") for number in range(101)], REQUIREMENTS),
        (REQUIREMENTS, [in_(ARCH, "a", weight=3)], f"{REQUIREMENTS}[0].weight"),
        (
            "metadata.annotations",
            {"shiplap.dev/allocation-strategy": "cheapest"},
            "metadata.annotations[shiplap.dev/allocation-strategy]",
        ),
        ("metadata.annotations", {"shiplap.dev/placement": "bind"}, "metadata.annotations[shiplap.dev/placement]"),
        *(
            ("metadata.annotations", {REBALANCE: policy}, f"metadata.annotations[{REBALANCE}]")
            for policy in ("", "drain", "Replace")
        ),
        *(
            ("metadata.annotations", {ZONE: zone}, f"metadata.annotations[{ZONE}]")
            for zone in ("", "Mars/Olympus", "CEST", "+02:00", "../etc/passwd", "Europe", "localtime", "x\0")
        ),
        (
            "spec.template.metadata.annotations",
            {"shiplap.dev/spot-ratio": "0.5"},
            "spec.template.metadata.annotations[shiplap.dev/spot-ratio]",
        ),
    ],
)
def test_refused(path: str, value: Any, field: str) -> None:
    assert fields_of(changed(NODE_POOL, path, value)) == [field]


def test_a_very_long_key_is_refused() -> None:
    key = ".".join(["a" * 63] * 4)[:253] + "/" + "b" * 63
    assert fields_of(changed(NODE_POOL, REQUIREMENTS, [in_(key, "x")])) == [f"{REQUIREMENTS}[0].key"]


def test_a_budget_has_at_most_fifty_reasons() -> None:
    pool = changed(NODE_POOL, "spec.disruption.budgets", [{"reasons": ["Empty"] * 51}])
    assert "spec.disruption.budgets[0].reasons" in fields_of(pool)


def test_a_taint_without_effect_is_refused() -> None:
    pool = changed(NODE_POOL, f"{CLAIM}.taints", [{"key": "a", "efect": "NoSchedule"}])
    assert fields_of(pool) == [f"{CLAIM}.taints[0].efect", f"{CLAIM}.taints[0].effect"]


def test_taints_and_startup_taints_share_their_names() -> None:
    taint = {"key": "a", "effect": "NoSchedule"}
    pool = changed(changed(NODE_POOL, f"{CLAIM}.taints", [taint]), f"{CLAIM}.startupTaints", [taint])
    assert fields_of(pool) == [f"{CLAIM}.startupTaints[0]"]


def test_a_static_pool_takes_no_weight_and_limits_only_nodes() -> None:
    static = changed(NODE_POOL, "spec.replicas", 3)
    assert fields_of(changed(static, "spec.limits", {"nodes": "5"})) == []
    assert fields_of(changed(static, "spec.limits", {"cpu": "5"})) == ["spec.limits.cpu"]
    assert fields_of(changed(static, "spec.weight", 5)) == ["spec.weight"]


def test_ordered_lists_must_not_multiply_without_end() -> None:
    lists = [in_(key, *(f"v{number}" for number in range(9)), "*") for key in ("a", "b", "c")]
    assert fields_of(changed(NODE_POOL, REQUIREMENTS, lists[:2])) == []
    assert fields_of(changed(NODE_POOL, REQUIREMENTS, lists)) == [REQUIREMENTS]


@pytest.mark.parametrize(
    ("lengths", "tiers"), [((100,), 0), ((10, 10), 0), ((101,), 101), ((2, 51), 102), ((3, 5, 7), 105)]
)
def test_it_is_said_how_many_tiers_ordered_lists_make_and_how_many_may_be(lengths: tuple[int, ...], tiers: int) -> None:
    """A list without order beside them counts for none."""
    ordered = [in_(f"key-{n}", *(f"v{at}" for at in range(n - 1)), "*") for n in lengths]
    said = problems_of(changed(NODE_POOL, REQUIREMENTS, [in_(ARCH, "amd64", "arm64"), *ordered]))
    reason = f"the ordered lists multiply to {tiers} tiers, at most 100 are allowed"
    assert said == ([(REQUIREMENTS, reason)] if tiers else [])


def test_a_misspelt_label_of_instance_types_is_recognised() -> None:
    pool = changed(NODE_POOL, REQUIREMENTS, [in_("karpenter.k8s.aws/instance-famly", "c5")])
    assert problems_of(pool) == [
        (
            f"{REQUIREMENTS}[0].key",
            "no instance type has the label karpenter.k8s.aws/instance-famly, "
            "did you mean karpenter.k8s.aws/instance-family?",
        )
    ]


def test_all_problems_are_named_at_once() -> None:
    spoilt = changed(changed(NODE_POOL, "spec.weight", 0), f"{CLAIM}.expireAfter", "soon")
    assert sorted(fields_of(changed(spoilt, "spec.unknown", 1))) == [
        "spec.template.spec.expireAfter",
        "spec.unknown",
        "spec.weight",
    ]


def test_defaults() -> None:
    report = check_documents([Document("given", 0, 1, "NodePool/default", NODE_POOL)])
    spec = report.manifests.node_pools[0].spec
    assert spec.disruption.consolidate_after == "0s"
    assert spec.disruption.consolidation_policy == "WhenEmptyOrUnderutilized"
    assert [budget.nodes for budget in spec.disruption.budgets] == ["10%"]
    assert spec.template.spec.expire_after == "720h"
    assert spec.template.spec.termination_grace_period is None
    assert spec.weight == 0


@pytest.mark.parametrize(
    ("label", "requirement", "refused"),
    [
        (("team", "a"), in_("team", "b"), True),
        (("team", "a"), in_("team", "a", "b"), False),
        (("team", "a"), in_("team", "b", "a*"), False),
        (("team", "a"), in_("team", "b*"), True),
        (("team", "a"), in_("team", "b", "*"), False),
        (("team", "a"), {"key": "team", "operator": "NotIn", "values": ["a"]}, True),
        (("team", "a"), {"key": "team", "operator": "NotIn", "values": ["b"]}, False),
        (("team", "a"), {"key": "team", "operator": "Exists"}, False),
        (("team", "a"), {"key": "team", "operator": "DoesNotExist"}, True),
        (("speed", "5"), {"key": "speed", "operator": "Gt", "values": ["5"]}, True),
        (("speed", "5"), {"key": "speed", "operator": "Gte", "values": ["5"]}, False),
        (("speed", "fast"), {"key": "speed", "operator": "Lt", "values": ["5"]}, True),
        ((ARCH, "arm64"), in_("beta.kubernetes.io/arch", "amd64"), True),
        (("team", "a"), in_("other", "b"), False),
    ],
    ids=str,
)
def test_a_label_of_the_template_that_a_requirement_forbids(
    label: tuple[str, str], requirement: dict[str, Any], *, refused: bool
) -> None:
    key, value = label
    pool = changed(changed(NODE_POOL, LABELS, {key: value}), REQUIREMENTS, [requirement])
    found = problems_of(pool)
    assert bool(found) is refused
    assert all("requirements[0]" in reason for _, reason in found)


def test_a_requirement_that_is_wrong_itself_is_not_blamed_twice() -> None:
    pool = changed(changed(NODE_POOL, LABELS, {"team": "a"}), REQUIREMENTS, [{"key": "team", "operator": "Gt"}])
    assert fields_of(pool) == [f"{REQUIREMENTS}[0].values"]
