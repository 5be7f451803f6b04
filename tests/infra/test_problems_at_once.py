"""All mistakes of a shiplap.yaml and its manifests are told at once: no kind of them hides another kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from shiplap.errors import InvalidManifests
from shiplap_cdk.install_document import inspect_install, read

OTHER = """\
  - name: second
    manifests: others
"""


def told(folder: Path, text: str) -> list[tuple[str, str, int]]:
    """File, field and line of every problem."""
    (folder / "shiplap.yaml").write_text(text)
    found = inspect_install(folder / "shiplap.yaml")
    assert found.install is None
    with pytest.raises(InvalidManifests) as raised:
        read(folder / "shiplap.yaml")
    assert list(map(str, raised.value.problems)) == list(map(str, found.problems))
    return [(Path(item.source).name, item.field, item.line) for item in found.problems]


def spoil(folder: Path, name: str, *changes: tuple[str, str]) -> None:
    """Write a cluster's manifests with mistakes."""
    text = (folder / "manifests" / "nodes.yaml").read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    (folder / name).mkdir(exist_ok=True)
    (folder / name / "nodes.yaml").write_text(text)


def test_shape_bounds_rules_and_manifests_of_every_cluster(folder: Path) -> None:
    spoil(
        folder,
        "others",
        ("arn:aws:ssm", "arn:aws-cn:ssm"),
        ("operator: In, values: [on-demand]", "operator: Inn, values: [on-demand]"),
    )
    spoil(folder, "manifests", ("  role: edge-nodes", "  role: 'not a role'\n  colour: red"))
    found = told(
        folder,
        "region: eu-west-1\nlogRetentionDays: ten\nalarmTopic: arn:aws:sns:us-east-1:123456789012:a\nclusters:\n"
        "  - name: first\n    manifests: manifests\n    joinTimeoutSeconds: 15m\n    token: abc\n"
        + OTHER
        + "    reservedENIs: -1\n    disruption: {settleSeconds: -1}\n"
        + OTHER,
    )
    assert found == [
        ("shiplap.yaml", "logRetentionDays", 2),
        ("shiplap.yaml", "alarmTopic", 3),
        ("shiplap.yaml", "clusters[0].joinTimeoutSeconds", 7),
        ("shiplap.yaml", "clusters[0].token", 8),
        ("shiplap.yaml", "clusters[1].reservedENIs", 11),
        ("shiplap.yaml", "clusters[1].disruption.settleSeconds", 12),
        ("shiplap.yaml", "clusters[2].name", 13),
        ("nodes.yaml", "spec.role", 10),
        ("nodes.yaml", "spec.colour", 11),
        ("nodes.yaml", "spec.amiSelectorTerms[1].ssmParameter", 9),
        ("nodes.yaml", "spec.template.spec.requirements[0].operator", 30),
    ]


def test_a_cluster_that_lacks_its_name_is_judged_for_the_rest(folder: Path) -> None:
    found = told(folder, "clusters:\n  - manifests: nowhere\n    accces: entry\n    endpoint: there\n")
    assert [field for _, field, _ in found] == [
        "region",
        "clusters[0].name",
        "clusters[0].manifests",
        "clusters[0].accces",
        "clusters[0].endpoint",
    ]


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        ("vpc: {subnets: [subnet-00000001]}", ["clusters[0].vpc.securityGroups"]),
        ("claimRules: [{namespace: a}]", ["clusters[0].claimRules[0].namespace"]),
        ("claimRules: [1, {namespaces: ['?']}]", ["clusters[0].claimRules[0]"]),
        (
            "repairPolicies: [{status: 'Nope'}]",
            [f"clusters[0].repairPolicies[0].{key}" for key in ("status", "condition")],
        ),
        ("manifests: [a]", ["clusters[0].manifests"]),
    ],
)
def test_what_follows_from_a_mistake_is_not_told_beside_it(folder: Path, line: str, fields: list[str]) -> None:
    first = "  - name: first\n" + ("" if line.startswith("manifests") else "    manifests: manifests\n")
    assert [field for _, field, _ in told(folder, f"region: eu-west-1\nclusters:\n{first}    {line}\n")] == fields


@pytest.mark.parametrize("clusters", ["production", "{name: a}", "[production]", "[[]]", "[null]", "5"])
def test_clusters_of_the_wrong_kind_hide_nothing_of_the_install(folder: Path, clusters: str) -> None:
    found = told(folder, f"region: nowhere-1\nname: Two Words\nclusters: {clusters}\n")
    assert [(field.partition("[")[0], line) for _, field, line in found] == [
        ("region", 1),
        ("name", 2),
        ("clusters", 3),
    ]


def test_manifests_of_two_clusters_are_judged_once(folder: Path) -> None:
    spoil(folder, "others", ("  role: edge-nodes", "  role: edge-nodes\n  rolle: a"))
    text = "region: eu-west-1\nclusters:\n" + OTHER + OTHER.replace("second", "third")
    assert told(folder, text) == [("nodes.yaml", "spec.rolle", 11)]


@pytest.mark.parametrize(
    ("images", "line"),
    [("amiSelectorTerms: [{id: ami-01234567}]", 4), ("amiSelectorTerms: [{alias: ubuntu@latest}]", 8)],
    ids=["no family", "unknown family"],
)
def test_an_image_without_a_known_family_hides_no_other_mistake(folder: Path, images: str, line: int) -> None:
    whole = "apiVersion: karpenter.k8s.aws/v1\nkind: EC2NodeClass\nmetadata: {name: a}\nspec:\n"
    terms = "  subnetSelectorTerms: [{id: subnet-00000001}]\n  securityGroupSelectorTerms: [{id: sg-00000001}]\n"
    (folder / "others").mkdir()
    (folder / "others" / "nodes.yaml").write_text(f"{whole}  role: nodes\n{terms}  {images}\n  colour: red\n")
    found = told(folder, "region: eu-west-1\nclusters:\n" + OTHER)
    assert [(name, number) for name, _, number in found] == [("nodes.yaml", line), ("nodes.yaml", 9)]


def test_a_path_that_no_file_system_has_is_a_mistake_of_its_field(folder: Path) -> None:
    found = told(folder, f"region: eu-west-1\nclusters:\n  - name: a\n    manifests: {'m' * 5000}\n")
    assert found == [("shiplap.yaml", "clusters[0].manifests", 4)]
