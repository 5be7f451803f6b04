"""Tests the pairing of claims and Nodes, where names are used again."""

from __future__ import annotations

import pytest

from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Node
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap.scheduling.model.planned_pods import leaving, pair
from tests.builders.claims import node_claim, with_fields
from tests.builders.nodes import node

CLAIM = node_claim(name="c", cluster="c", node_pool="p", node_class="d", state=ClaimState.INITIALIZED)


@pytest.mark.parametrize(
    ("found", "of"),
    [
        (node("n", instance_id="i-1"), with_fields(CLAIM, name="a", instance_id="i-1", node_name="n")),
        (node("n"), with_fields(CLAIM, name="a", instance_id="i-1", node_name="n")),
        (node("n", labels={labels.NODE_CLAIM: "a"}), with_fields(CLAIM, name="a", instance_id="i-1")),
        (node("n", instance_id="i-1"), with_fields(CLAIM, name="a", instance_id="i-1")),
        (node("m", instance_id="i-1"), with_fields(CLAIM, name="a", instance_id="i-1", node_name="n")),
    ],
)
def test_a_node_is_found_by_name_label_or_instance(found: Node, of: NodeClaim) -> None:
    assert pair([found], [of]) == ({found.metadata.name: of}, [])


@pytest.mark.parametrize("label", ["", "old"])
def test_a_node_of_the_same_name_but_of_another_instance_is_not_the_claims(label: str) -> None:
    """Not even when it carries the claim's label: a kubelet takes over the Node it finds under its name."""
    newcomer = node("ip-10-0-0-4", instance_id="i-2", labels={labels.NODE_CLAIM: label})
    old = with_fields(CLAIM, name="old", instance_id="i-1", node_name="ip-10-0-0-4", state=ClaimState.DRAINING)
    new = with_fields(CLAIM, name="young", instance_id="i-2", state=ClaimState.LAUNCHED)
    paired, waiting = pair([newcomer], [old, new])
    assert paired == {"ip-10-0-0-4": new}
    assert waiting == [old]
    assert leaving([newcomer], paired) == frozenset()
