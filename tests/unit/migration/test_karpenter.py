"""Karpenter's own objects on their way to Shiplap."""

from __future__ import annotations

from typing import Any

import pytest

from shiplap.manifests.files.documents import Document, read_text
from shiplap.manifests.files.loading import check_documents
from shiplap_cli.commands.migrate.karpenter import migrate
from shiplap_cli.commands.migrate.migration import migrate as migrate_all
from shiplap_cli.commands.migrate.migration_findings import FormerKind, MatchQuality, MigrationDraft, Naming

CLASS = """
apiVersion: karpenter.k8s.aws/{version}
kind: EC2NodeClass
metadata: {{name: default}}
spec:
  role: node
  {more}
  subnetSelectorTerms: [{{tags: {{a: b}}}}]
  securityGroupSelectorTerms: [{{tags: {{a: b}}}}]
"""
POOL = """
apiVersion: karpenter.sh/v1beta1
kind: NodePool
metadata:
  name: {name}
  uid: "1"
  annotations: {{karpenter.sh/nodepool-hash: "2", team: a}}
spec:
  weight: 10
  limits: {{cpu: "1000"}}
  template:
    spec:
      nodeClassRef: {{apiVersion: karpenter.k8s.aws/v1beta1, kind: EC2NodeClass, name: default}}
      requirements: [{{key: karpenter.sh/capacity-type, operator: In, values: [spot]}}]
      {claim}
  disruption: {disruption}
status: {{resources: {{cpu: "3"}}}}
"""
POOL_V1 = """
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements: []
"""


def pool(name: str = "default", claim: str = "", disruption: str = "{}") -> str:
    return POOL.format(name=name, claim=claim, disruption=disruption)


def node_class(more: str = "amiFamily: AL2023", version: str = "v1beta1") -> str:
    return CLASS.format(more=more, version=version)


def moved(*texts: str, taint: bool = False) -> MigrationDraft:
    documents = [document for text in texts for document in read_text("cluster", text)]
    return migrate(documents, Naming(taint=taint))


def body(draft: MigrationDraft, kind: str, name: str = "") -> dict[str, Any]:
    (found,) = (
        item for item in draft.manifests if item["kind"] == kind and (not name or item["metadata"]["name"] == name)
    )
    return found


def problems(draft: MigrationDraft) -> list[str]:
    documents = [
        Document("draft", n, 0, f"{item['kind']}/{item['metadata']['name']}", item)
        for n, item in enumerate(draft.manifests)
    ]
    return [str(problem) for problem in check_documents(documents).problems]


def test_v1_is_taken_as_it_is_under_another_name() -> None:
    draft = moved(POOL_V1, node_class("amiSelectorTerms: [{alias: al2023@latest}]", "v1"))
    assert problems(draft) == []
    assert body(draft, "NodePool")["metadata"] == {"name": "default-shiplap"}
    assert {finding.match for finding in draft.findings} == {MatchQuality.EXACT}
    assert [(former.origin, former.name, former.becomes) for former in draft.formers] == [
        (FormerKind.NODE_POOL, "default", "default-shiplap")
    ]


def test_v1beta1_becomes_v1() -> None:
    draft = moved(pool(disruption="{consolidationPolicy: WhenUnderutilized, expireAfter: 100h}"), node_class())
    assert problems(draft) == []
    written = body(draft, "NodePool")
    assert written["apiVersion"] == "karpenter.sh/v1"
    assert written["metadata"] == {"name": "default-shiplap", "annotations": {"team": "a"}}
    assert "status" not in written
    claim = written["spec"]["template"]["spec"]
    assert claim["nodeClassRef"] == {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    assert claim["expireAfter"] == "100h"
    assert written["spec"]["disruption"] == {
        "consolidationPolicy": "WhenEmptyOrUnderutilized",
        "consolidateAfter": "0s",
    }
    spec = body(draft, "EC2NodeClass")["spec"]
    assert spec["amiSelectorTerms"] == [{"alias": "al2023@latest"}]
    assert "amiFamily" not in spec
    assert spec["metadataOptions"] == {"httpPutResponseHopLimit": 2}
    assert draft.formers[0].cpu_limit == "1000"


def test_what_is_written_out_in_v1beta1_stays() -> None:
    draft = moved(
        pool(disruption="{consolidationPolicy: WhenEmpty, consolidateAfter: 30s}"),
        node_class(
            "amiFamily: AL2\n  amiSelectorTerms: [{id: ami-1}]\n  metadataOptions: {httpPutResponseHopLimit: 1}"
        ),
    )
    assert body(draft, "NodePool")["spec"]["disruption"] == {
        "consolidationPolicy": "WhenEmpty",
        "consolidateAfter": "30s",
    }
    spec = body(draft, "EC2NodeClass")["spec"]
    assert (spec["amiFamily"], spec["metadataOptions"]) == ("AL2", {"httpPutResponseHopLimit": 1})


@pytest.mark.parametrize(
    ("more", "version", "images"),
    [
        ("amiFamily: AL2", "v1beta1", [{"alias": "al2023@latest"}]),
        ("amiSelectorTerms: [{alias: al2@latest}]", "v1", [{"alias": "al2@latest"}]),
    ],
)
def test_images_that_no_supported_kubernetes_has_do_not_map(
    more: str, version: str, images: list[dict[str, str]]
) -> None:
    draft = moved(POOL_V1, node_class(more, version))
    assert body(draft, "EC2NodeClass")["spec"]["amiSelectorTerms"] == images
    (lost,) = (finding for finding in draft.findings if finding.match is MatchQuality.NONE)
    assert "Kubernetes 1.32 and older only" in lost.note


def test_an_instance_profile_asks_for_its_role() -> None:
    draft = moved(POOL_V1, node_class("instanceProfile: of-nodes", "v1"))
    (asked,) = (finding for finding in draft.findings if finding.match is MatchQuality.APPROXIMATE)
    assert "nodeRoles in shiplap.yaml" in asked.becomes
    assert "--instance-profile-name of-nodes" in asked.note


def test_kubelet_settings_move_to_the_node_class() -> None:
    draft = moved(pool(claim="kubelet: {maxPods: 50}"), node_class())
    assert body(draft, "EC2NodeClass")["spec"]["kubelet"] == {"maxPods": 50}
    assert "kubelet" not in body(draft, "NodePool")["spec"]["template"]["spec"]
    assert problems(draft) == []


def test_pools_with_other_kubelet_settings_get_a_node_class_of_their_own() -> None:
    draft = moved(pool("a", "kubelet: {maxPods: 50}"), pool("b", "kubelet: {maxPods: 20}"), pool("c"), node_class())
    names = {
        item["metadata"]["name"]: item["spec"].get("kubelet") for item in draft.manifests if "role" in item["spec"]
    }
    assert names == {"default": None, "default-a": {"maxPods": 50}, "default-b": {"maxPods": 20}}
    used = {
        item["metadata"]["name"]: item["spec"]["template"]["spec"]["nodeClassRef"]["name"]
        for item in draft.manifests
        if item["kind"] == "NodePool"
    }
    assert used == {"a-shiplap": "default-a", "b-shiplap": "default-b", "c-shiplap": "default"}


def test_kubelet_settings_that_the_conversion_webhook_kept_in_an_annotation() -> None:
    annotated = POOL_V1.replace(
        "{name: default}",
        "{name: default, annotations: {compatibility.karpenter.sh/v1beta1-kubelet-conversion: '{\"maxPods\": 9}'}}",
        1,
    )
    draft = moved(annotated, node_class())
    assert body(draft, "EC2NodeClass")["spec"]["kubelet"] == {"maxPods": 9}
    assert "annotations" not in body(draft, "NodePool")["metadata"]


def test_an_annotation_that_is_no_json_is_told() -> None:
    annotated = POOL_V1.replace(
        "{name: default}",
        "{name: default, annotations: {compatibility.karpenter.sh/v1beta1-kubelet-conversion: '{'}}",
        1,
    )
    (lost,) = (finding for finding in moved(annotated, node_class()).findings if finding.match is MatchQuality.NONE)
    assert "is not JSON" in lost.note


def test_kubelet_settings_without_the_node_class_are_told() -> None:
    (lost,) = (f for f in moved(pool(claim="kubelet: {maxPods: 50}")).findings if f.match is MatchQuality.NONE)
    assert lost.field == "spec.template.spec.kubelet"


@pytest.mark.parametrize(("terms", "match"), [("amiSelectorTerms: [{id: ami-1}]", "approximate"), ("", "not mapped")])
def test_ubuntu_boots_with_the_user_data_of_al2(terms: str, match: str) -> None:
    draft = moved(pool(), node_class(f"amiFamily: Ubuntu\n  {terms}"))
    spec = body(draft, "EC2NodeClass")["spec"]
    assert spec["amiFamily"] == "AL2"
    assert spec["blockDeviceMappings"][0]["deviceName"] == "/dev/sda1"
    assert [f.match for f in draft.findings if f.field == "spec.amiFamily"] == [match]


def test_the_taint_comes_beside_those_there_are() -> None:
    draft = moved(pool(claim="taints: [{key: a, effect: NoSchedule}]"), node_class(), taint=True)
    assert [t["key"] for t in body(draft, "NodePool")["spec"]["template"]["spec"]["taints"]] == [
        "a",
        "shiplap.dev/migration",
    ]


def test_overlays_follow_the_pools_new_name() -> None:
    overlay = """
apiVersion: karpenter.sh/v1alpha1
kind: NodeOverlay
metadata: {name: cheap}
spec:
  price: "0.1"
  requirements: [{key: karpenter.sh/nodepool, operator: In, values: [default, other]}]
"""
    draft = moved(pool(), node_class(), overlay)
    assert body(draft, "NodeOverlay")["spec"]["requirements"][0]["values"] == ["default-shiplap", "other"]


@pytest.mark.parametrize(
    "text",
    [
        "apiVersion: karpenter.sh/v1alpha5\nkind: Provisioner\nmetadata: {name: a}",
        "apiVersion: karpenter.k8s.aws/v1alpha1\nkind: AWSNodeTemplate\nmetadata: {name: a}",
    ],
)
def test_older_versions_are_named(text: str) -> None:
    (finding,) = moved(text).findings
    assert finding.match is MatchQuality.NONE
    assert "karpenter-convert" in finding.note


def test_node_claims_are_passed_over() -> None:
    draft = moved("apiVersion: karpenter.sh/v1\nkind: NodeClaim\nmetadata: {name: a}")
    assert (draft.manifests, draft.findings) == ((), ())


@pytest.mark.parametrize(
    "damage",
    ["nodeClassRef: none", "taints: none", "kubelet: [1]", "requirements: 5"],
)
def test_what_has_the_wrong_shape_is_left_to_validation(damage: str) -> None:
    field = damage.partition(":")[0]
    lines = [line for line in pool().splitlines() if not line.strip().startswith(f"{field}:")]
    text = "\n".join(lines).replace("    spec:\n", f"    spec:\n      {damage}\n", 1)
    assert problems(moved(text, node_class(), taint=True))


@pytest.mark.parametrize(
    ("text", "field", "words"),
    [
        (
            pool(claim="kubelet: {maxPods: 9}"),
            "spec.template.spec.kubelet",
            "moved to spec.kubelet of the EC2NodeClass",
        ),
        (
            pool(disruption="{expireAfter: 9h}"),
            "spec.disruption.expireAfter",
            "moved to spec.template.spec.expireAfter",
        ),
        (pool(claim="resources: {}"), "spec.template.spec.resources", "no such field any more"),
    ],
)
def test_what_v1_has_elsewhere_says_where(text: str, field: str, words: str) -> None:
    """Somebody has changed the version alone."""
    written = text.replace("karpenter.sh/v1beta1", "karpenter.sh/v1").replace(
        "apiVersion: karpenter.k8s.aws/v1beta1", "group: karpenter.k8s.aws"
    )
    documents = list(read_text("file", written))
    found = migrate_all(documents, Naming(taint=False)).findings
    assert [words in item.note for item in found if item.field == field] == [True]


def test_a_pool_that_shiplap_refuses_is_not_exact() -> None:
    broken = pool("bad", claim="kubelet: {maxPods: 9}").replace("karpenter.sh/v1beta1", "karpenter.sh/v1")
    documents = [*read_text("file", broken), *read_text("file", pool("good"))]
    found = migrate_all(documents, Naming(taint=False)).findings
    whole = {item.becomes or item.source: item.match for item in found if item.field == "NodePool"}
    assert whole == {
        "NodePool/bad-shiplap": MatchQuality.NONE,
        "NodePool/good-shiplap": MatchQuality.EXACT,
    }


def test_a_pool_of_auto_mode_is_left_out_and_its_neighbour_is_not() -> None:
    of_auto = POOL.format(name="auto", claim="", disruption="{}").replace("karpenter.sh/v1beta1", "karpenter.sh/v1")
    of_auto = of_auto.replace(
        "{apiVersion: karpenter.k8s.aws/v1beta1, kind: EC2NodeClass", "{group: eks.amazonaws.com, kind: NodeClass"
    )
    text = "---".join(
        [of_auto, POOL.format(name="own", claim="", disruption="{}"), CLASS.format(version="v1", more="")]
    )
    draft = migrate(read_text("a.yaml", text), Naming("-new", taint=True))
    assert [body["metadata"]["name"] for body in draft.manifests if body["kind"] == "NodePool"] == ["own-new"]
    assert [former.name for former in draft.formers] == ["own"]
    (left,) = [item for item in draft.findings if item.match is MatchQuality.NONE]
    assert (left.source, "EKS Auto Mode" in left.note) == ("NodePool/auto", True)
