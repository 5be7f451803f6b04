"""Manifests as an API server stores them."""

from __future__ import annotations

from typing import Any

import msgspec

from shiplap.kubernetes.objects import RawObject
from shiplap.manifests.live.allowed_resources import AllowedResources
from shiplap.manifests.live.live_manifests import SETTLED_S, LiveManifests
from shiplap.manifests.validation.live_objects import check_live_object, live_manifests, own_objects
from tests.unit.manifests.manifest_samples import EC2_NODE_CLASS, NODE_OVERLAY, NODE_POOL, changed

ALLOWED = AllowedResources(node_roles=("node",))
AUTO_MODE = {"group": "eks.amazonaws.com", "kind": "NodeClass", "name": "default"}


def stored(data: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    """As an API server returns it."""
    noted = {"uid": f"uid-{data['metadata']['name']}", "resourceVersion": "1", "generation": 1, **metadata}
    return {**data, "metadata": {**data["metadata"], **noted}, "status": {"conditions": []}}


def read(*objects: RawObject) -> LiveManifests:
    return live_manifests(check_live_object(item, ALLOWED) for item in own_objects(objects))


def names(live: LiveManifests) -> list[str]:
    found = live.manifests
    return [item.metadata.name for item in (*found.node_pools, *found.node_classes, *found.node_overlays)]


def test_one_that_is_wrong_affects_no_other() -> None:
    wrong = changed(NODE_POOL, "metadata.name", "wrong")
    wrong = changed(wrong, "spec.template.spec.expireAfter", "soon")
    live = read(stored(wrong), stored(NODE_POOL), stored(EC2_NODE_CLASS), stored(NODE_OVERLAY))
    assert names(live) == ["default", "default", "measured"]
    (refused,) = live.refused
    assert (refused.kind, refused.name) == ("NodePool", "wrong")
    assert refused.reasons[0].startswith("spec.template.spec.expireAfter: ")


def test_odd_objects_are_refused_and_named() -> None:
    odd: list[dict[str, Any]] = [
        {"apiVersion": "karpenter.sh/v1", "kind": "NodePool"},
        {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": None, "spec": []},
        {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "a", "annotations": 3}, "spec": 1},
        {"kind": "NodePool", "metadata": {"name": "b"}},
        {},
    ]
    live = read(*odd, stored(NODE_POOL))
    assert names(live) == ["default"]
    assert len(live.refused) == len(odd)


def test_node_pools_of_other_providers_are_passed_over() -> None:
    pools = [changed(NODE_POOL, "metadata.name", name) for name in ("general-purpose", "system")]
    auto_mode = [stored(changed(pool, "spec.template.spec.nodeClassRef", AUTO_MODE)) for pool in pools]
    live = read(*auto_mode, stored(NODE_POOL))
    assert names(live) == ["default"]
    assert live.refused == ()
    assert [item.name for item in live.observed] == ["default"]


def test_nothing_is_made_from_what_is_being_deleted() -> None:
    live = read(stored(NODE_POOL, deletionTimestamp="2026-01-01T00:00:00Z"), stored(EC2_NODE_CLASS))
    assert names(live) == ["default"]
    assert live.manifests.node_pools == ()
    assert [(item.kind, item.is_deleted) for item in live.observed] == [("EC2NodeClass", False), ("NodePool", True)]


def test_what_clients_note_is_not_kept() -> None:
    secret = "a secret of a user"
    applied = {"kubectl.kubernetes.io/last-applied-configuration": secret, "team": "a"}
    live = read(stored(EC2_NODE_CLASS, annotations=applied, managedFields=[{"manager": "kubectl"}]))
    assert live.manifests.node_classes[0].metadata.annotations == {"team": "a"}
    assert secret not in msgspec.json.encode(live).decode()


class TestAges:
    def test_a_spec_settles_a_minute_after_it_was_first_seen(self) -> None:
        live = read(stored(NODE_POOL), stored(EC2_NODE_CLASS))
        known = live.with_ages(LiveManifests(), 1000.0)
        assert known.unsettled_pools(1000.0 + SETTLED_S - 1) == ("default",)
        assert known.unsettled_pools(1000.0 + SETTLED_S) == ()

    def test_an_edit_of_the_node_class_begins_anew_and_a_status_does_not(self) -> None:
        known = read(stored(NODE_POOL), stored(EC2_NODE_CLASS)).with_ages(LiveManifests(), 1000.0)
        written = {**stored(EC2_NODE_CLASS, resourceVersion="7"), "status": {"amis": [{"id": "ami-1"}]}}
        hashed = stored(NODE_POOL, annotations={"karpenter.sh/nodepool-hash": "17"})
        assert read(hashed, written).with_ages(known, 2000.0).unsettled_pools(2000.0) == ()
        edited = stored(changed(EC2_NODE_CLASS, "spec.detailedMonitoring", True), generation=2)
        assert read(stored(NODE_POOL), edited).with_ages(known, 2000.0).unsettled_pools(2000.0) == ("default",)

    def test_an_edit_that_nobody_saw_before_it_was_taken_back_begins_anew(self) -> None:
        """Two reads may both fall into the half minutes of a label that comes and goes."""
        known = read(stored(NODE_POOL, generation=3)).with_ages(LiveManifests(), 1000.0)
        again = read(stored(NODE_POOL, generation=5))
        assert not again.says_the_same(known)
        assert again.with_ages(known, 2000.0).unsettled_pools(2000.0) == ("default",)

    def test_one_created_again_under_its_name_is_new(self) -> None:
        known = read(stored(NODE_POOL)).with_ages(LiveManifests(), 1000.0)
        again = read(stored(NODE_POOL, uid="another"))
        assert not again.says_the_same(known)
        assert again.with_ages(known, 2000.0).unsettled_pools(2000.0) == ("default",)

    def test_it_is_stored_and_read_again(self) -> None:
        known = read(stored(NODE_POOL), stored(EC2_NODE_CLASS)).with_ages(LiveManifests(), 1000.0)
        assert msgspec.json.decode(msgspec.json.encode(known), type=LiveManifests) == known
