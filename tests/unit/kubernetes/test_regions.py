"""The Region of a node, by what nodes of EKS, of other installers and of other clouds say."""

from __future__ import annotations

import pytest

from shiplap.kubernetes.objects import Node
from shiplap_cli.inputs.cluster_inputs import region_of, regions_of
from tests.builders.nodes import node


@pytest.mark.parametrize(
    ("given", "region"),
    [
        (node(region="eu-west-1"), "eu-west-1"),
        (node(region="eu-west-1", zone="us-east-1a"), "eu-west-1"),
        (node(labels={"failure-domain.beta.kubernetes.io/region": "ap-south-2"}), "ap-south-2"),
        (node(zone="eu-central-1b"), "eu-central-1"),
        (node(labels={"failure-domain.beta.kubernetes.io/zone": "sa-east-1c"}), "sa-east-1"),
        (node(labels={"topology.ebs.csi.aws.com/zone": "eu-north-1c"}), "eu-north-1"),
        (node(zone="us-west-2-lax-1a"), "us-west-2"),
        (node(zone="us-east-1-wl1-bos-wlz-1"), "us-east-1"),
        (node(zone="us-gov-west-1a"), "us-gov-west-1"),
        (node(provider_id="aws:///eu-west-3a/i-0123456789abcdef0"), "eu-west-3"),
        (
            node(provider_id="aws:///eu-west-3a/0123456789-abcdef/fargate-ip-10-0-0-1.eu-west-3.compute.internal"),
            "eu-west-3",
        ),
        (node(provider_id="aws:///eu-west-3a/i-1", zone="somewhere"), "eu-west-3"),
        (node(provider_id="gce://project/europe-west4-a/instance"), ""),
        (node(provider_id="kind://docker/kind/kind-worker"), ""),
        (node(provider_id="aws:///"), ""),
        (node(zone="us-central1-a"), ""),
        (node(), ""),
    ],
)
def test_a_node_says_its_region(given: Node, region: str) -> None:
    assert region_of(given) == region


def test_the_region_of_most_nodes_is_first_and_names_break_ties() -> None:
    us, eu = node(region="us-east-1"), node(region="eu-west-1")
    assert regions_of([us, eu, node(), eu]) == ("eu-west-1", "us-east-1")
    assert regions_of([us, eu]) == ("eu-west-1", "us-east-1")
    assert regions_of([node()]) == ()
