"""The table of what AWS lacks in partitions and Regions, of all that the stack would use, and how it names EC2 there.

Each row names its source. The stack leaves out what it can do without, and says so at synth. What shiplap.yaml asks for
and AWS lacks is refused. A feature of which no public page says that a partition has it counts as lacking there: the
isolated partitions and the European Sovereign Cloud publish less than others.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

import msgspec

from shiplap.regions import dns_suffix, partition_of


class Feature(StrEnum):
    """A feature of AWS that some partition or Region lacks."""

    MAPPING_TAGS = "tags of event source mappings"
    RECURSIVE_LOOP = "RecursiveLoop of functions"
    SNAP_START = "SnapStart for Python"
    TRACING = "X-Ray traces of functions"
    SAVINGS_PLANS_API = "the API of Savings Plans"


LEFT_OUT = {
    Feature.MAPPING_TAGS: "nothing depends on it, since a mapping costs nothing",
    Feature.RECURSIVE_LOOP: "if Lambda detects loops there after all, the alarm on recursion says so",
}
"""What the stack can do without, and what follows from it. Anything else is refused where it is asked for."""


class MissingFeature(msgspec.Struct, frozen=True):
    """A feature that is missing in places, each a partition or a Region, by a source."""

    feature: Feature
    places: frozenset[str]
    source: str


_GOVCLOUD = "https://docs.aws.amazon.com/govcloud-us/latest/UserGuide/govcloud-lambda.html"
_CHINA = "https://docs.amazonaws.cn/en_us/aws/latest/userguide/lambda.html"
_SNAP_START = "https://docs.aws.amazon.com/lambda/latest/dg/snapstart.html: in commercial Regions, with exceptions"
_ROADMAP = "https://github.com/aws/aws-lambda-roadmap/issues/18: in commercial Regions, with exceptions"
_ENDPOINTS = "botocore's endpoints.json, service savingsplans"
_SILENT = "no public page says that it is there"

_UNDOCUMENTED = frozenset({"aws-iso", "aws-iso-b", "aws-iso-e", "aws-iso-f", "aws-eusc"})
"""Partitions for which AWS publishes no list of what Lambda lacks."""

GAPS = (
    # GovCloud and China were seen to refuse the property: aws-cdk issues 31965 and 31532.
    MissingFeature(Feature.MAPPING_TAGS, frozenset({"aws-us-gov"}), _GOVCLOUD),
    MissingFeature(Feature.MAPPING_TAGS, frozenset({"aws-cn"}), _CHINA),
    MissingFeature(Feature.MAPPING_TAGS, _UNDOCUMENTED, _SILENT),
    MissingFeature(Feature.RECURSIVE_LOOP, frozenset({"aws-us-gov", "mx-central-1", "ap-southeast-6"}), _ROADMAP),
    MissingFeature(Feature.RECURSIVE_LOOP, frozenset({"aws-cn"}), _CHINA),
    MissingFeature(Feature.RECURSIVE_LOOP, _UNDOCUMENTED, _SILENT),
    MissingFeature(Feature.SNAP_START, frozenset({"aws-us-gov"}), _GOVCLOUD),
    MissingFeature(Feature.SNAP_START, frozenset({"aws-cn"}), _CHINA),
    MissingFeature(Feature.SNAP_START, frozenset({"ap-southeast-6", "ap-east-2"}) | _UNDOCUMENTED, _SNAP_START),
    # GovCloud's page lists no gap of X-Ray. The others have its endpoints in botocore's data.
    MissingFeature(Feature.TRACING, frozenset({"aws-cn"}), _CHINA),
    MissingFeature(
        Feature.SAVINGS_PLANS_API, frozenset({"aws-us-gov", "aws-iso", "aws-iso-b", "aws-eusc"}), _ENDPOINTS
    ),
)


_OWN_NAME_OF_EC2 = frozenset({"aws-cn", "aws-iso", "aws-iso-b"})
"""Partitions in which EC2, as a service principal, also has a name in the partition's domain.

China: https://github.com/terraform-aws-modules/terraform-aws-eks/pull/3422, where a role is passed under either name.
Isolated partitions: the table of https://github.com/eksctl-io/eksctl, pkg/apis/eksctl.io/v1alpha5/partitions.go.
"""


def ec2_principals(region: str) -> tuple[str, ...]:
    """The names of EC2 as a service principal: what takes the role of a node, and what a role is passed to."""
    own = (f"ec2.{dns_suffix(region)}",) if partition_of(region) in _OWN_NAME_OF_EC2 else ()
    return ("ec2.amazonaws.com", *own)


def gap(region: str, feature: Feature) -> MissingFeature | None:
    """The row that says that a Region, or its partition, lacks a feature."""
    places = {region, partition_of(region)}
    return next((row for row in GAPS if row.feature == feature and row.places & places), None)


def left_out(region: str) -> Iterator[tuple[Feature, str]]:
    """Each feature that the stack does without in a Region, with a line that says so."""
    for feature, consequence in LEFT_OUT.items():
        if row := gap(region, feature):
            yield feature, f"left out: {feature}, which {region} lacks ({row.source}); {consequence}"
