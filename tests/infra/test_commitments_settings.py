"""The key `commitments` of shiplap.yaml."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from shiplap.errors import InvalidManifests
from shiplap.policies.commitments.commitment_settings import CommitmentSettings
from shiplap.settings import ClusterSettings
from tests.infra.written_installs import WRITTEN, refusal, written

COMMITMENTS = """\
commitments:
  countedBy: eu-west-1/shiplap
  share: 80%
  written:
    - {dollarsPerHour: 4.5, discount: 28%, family: m7g, end: 2027-06-30}
"""


def test_commitments_are_told_to_every_cluster(folder: Path) -> None:
    assert written(folder, WRITTEN).settings().clusters[0].policy(CommitmentSettings) is None

    (cluster,) = written(folder, WRITTEN + COMMITMENTS).settings().clusters

    counted = cluster.policy(CommitmentSettings)
    assert counted is not None
    (plan,) = counted.written
    assert (counted.share, plan.dollars_per_hour, plan.family) == ("80%", 4.5, "m7g")
    assert msgspec.json.decode(msgspec.json.encode(cluster), type=ClusterSettings) == cluster


@pytest.mark.parametrize(
    ("before", "after", "field", "fix"),
    [
        ("eu-west-1/shiplap", "eu-west-1/other", "commitments.countedBy", "leave `commitments` out here"),
        ("80%", "'0.8'", "commitments.share", "such as 80%"),
        ("28%", "'28'", "commitments.written[0].discount", "such as 28%"),
        ("4.5", "0", "commitments.written[0].dollarsPerHour", "above 0"),
        ("2027-06-30", "soon", "commitments.written[0].end", "not a date"),
    ],
)
def test_mistakes_in_commitments_are_told_with_the_fix(
    folder: Path, before: str, after: str, field: str, fix: str
) -> None:
    error = refusal(folder, WRITTEN + COMMITMENTS.replace(before, after))
    assert field in str(error)
    assert fix in str(error)


def test_a_discount_of_a_node_pool_is_refused_beside_commitments(folder: Path) -> None:
    manifest = folder / "manifests" / "nodes.yaml"
    text = manifest.read_text()
    place = text.index("name:", text.index("kind: NodePool"))
    note = 'annotations: {shiplap.dev/on-demand-discount: "0.28"}\n  '
    manifest.write_text(text[:place] + note + text[place:])
    assert written(folder, WRITTEN).clusters

    error = refusal(folder, WRITTEN + COMMITMENTS)

    assert "on-demand-discount" in str(error)
    assert "remove this annotation" in str(error)


def in_region(region: str) -> str:
    return WRITTEN.replace("eu-west-1", region) + f"commitments: {{countedBy: {region}/shiplap, share: 80%}}\n"


def test_a_share_is_refused_where_savings_plans_cannot_be_asked_for(folder: Path) -> None:
    manifest = folder / "manifests" / "nodes.yaml"
    manifest.write_text(manifest.read_text().replace("arn:aws:", "arn:aws-us-gov:"))
    with pytest.raises(InvalidManifests) as caught:
        written(folder, in_region("us-gov-east-1"))
    (problem,) = map(str, caught.value.problems)
    assert "commitments.share: us-gov-east-1 lacks " in problem
    assert "endpoints.json" in problem
    assert problem.endswith(": leave it out")


@pytest.mark.parametrize(("region", "partition"), [("cn-north-1", "aws-cn"), ("us-east-2", "aws")])
def test_a_share_is_taken_where_savings_plans_can_be_asked_for(folder: Path, region: str, partition: str) -> None:
    manifest = folder / "manifests" / "nodes.yaml"
    manifest.write_text(manifest.read_text().replace("arn:aws:", f"arn:{partition}:"))
    assert written(folder, in_region(region)).document.region == region
