"""The Region of a node, by what nodes of EKS, of other installers and of other clouds say."""

from __future__ import annotations

import pytest

from shiplap.kubernetes.objects import Node, NodeSpec, ObjectMeta
from shiplap_cli.inputs.cluster_inputs import region_of, regions_of


def node(provider_id: str = "", **labels: str) -> Node:
    marks = {name.replace("__", "/").replace("_", "."): value for name, value in labels.items()}
    return Node(metadata=ObjectMeta(name="n", labels=marks), spec=NodeSpec(provider_id=provider_id))


@pytest.mark.parametrize(
    ("given", "region"),
    [
        (node(topology_kubernetes_io__region="eu-west-1"), "eu-west-1"),
        (node(topology_kubernetes_io__region="eu-west-1", topology_kubernetes_io__zone="us-east-1a"), "eu-west-1"),
        (Node(metadata=ObjectMeta(labels={"failure-domain.beta.kubernetes.io/region": "ap-south-2"})), "ap-south-2"),
        (node(topology_kubernetes_io__zone="eu-central-1b"), "eu-central-1"),
        (Node(metadata=ObjectMeta(labels={"failure-domain.beta.kubernetes.io/zone": "sa-east-1c"})), "sa-east-1"),
        (Node(metadata=ObjectMeta(labels={"topology.ebs.csi.aws.com/zone": "eu-north-1c"})), "eu-north-1"),
        (node(topology_kubernetes_io__zone="us-west-2-lax-1a"), "us-west-2"),
        (node(topology_kubernetes_io__zone="us-east-1-wl1-bos-wlz-1"), "us-east-1"),
        (node(topology_kubernetes_io__zone="us-gov-west-1a"), "us-gov-west-1"),
        (node("aws:///eu-west-3a/i-0123456789abcdef0"), "eu-west-3"),
        (node("aws:///eu-west-3a/0123456789-abcdef/fargate-ip-10-0-0-1.eu-west-3.compute.internal"), "eu-west-3"),
        (node("aws:///eu-west-3a/i-1", topology_kubernetes_io__zone="somewhere"), "eu-west-3"),
        (node("gce://project/europe-west4-a/instance"), ""),
        (node("kind://docker/kind/kind-worker"), ""),
        (node("aws:///"), ""),
        (node(topology_kubernetes_io__zone="us-central1-a"), ""),
        (node(), ""),
    ],
)
def test_a_node_says_its_region(given: Node, region: str) -> None:
    assert region_of(given) == region


def test_the_region_of_most_nodes_is_first_and_names_break_ties() -> None:
    def at(region: str) -> Node:
        return node(topology_kubernetes_io__region=region)

    assert regions_of([at("us-east-1"), at("eu-west-1"), node(), at("eu-west-1")]) == ("eu-west-1", "us-east-1")
    assert regions_of([at("us-east-1"), at("eu-west-1")]) == ("eu-west-1", "us-east-1")
    assert regions_of([node()]) == ()
