"""Tests the times at which NodeClaims of users are read, and the NodeClaims deleted because no launch is possible."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from shiplap.flows.live_settings import ManifestState
from shiplap.flows.schedule import standalone_launches as module
from shiplap.manifests.validation.standalone_objects import standalone_objects
from shiplap.settings import ClusterSettings
from tests.integration.flows.stage import Stage

LIVE = ClusterSettings(name="demo", region="eu-west-1", live_manifests=True)


@pytest.mark.parametrize(
    ("settings", "suspended", "reads"),
    [
        (LIVE, "", True),
        (replace(LIVE, live_manifests=False), "", False),
        (replace(LIVE, paused=True), "", False),
        (LIVE, "its manifests cannot be read", False),
    ],
    ids=["live", "from files", "paused", "suspended"],
)
def test_they_are_read_where_manifests_are_live_and_the_cluster_is_in_service(
    settings: ClusterSettings, suspended: str, reads: bool
) -> None:
    asked: list[str] = []

    def node_claim_objects() -> tuple[object, ...]:
        asked.append("read")
        return ()

    context = replace(Stage().context, cluster=SimpleNamespace(node_claim_objects=node_claim_objects))
    known: Any = SimpleNamespace(objects=lambda _: ())
    state = ManifestState(suspended)
    assert module.with_standalone_claims(state, settings, context, known) == state
    assert bool(asked) is reads


def test_each_that_nothing_can_be_launched_for_is_deleted_whatever_became_of_those_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One has a plan; one waits for its EC2NodeClass, and one below a ceiling."""
    told: list[tuple[Any, ...]] = []
    cluster: Any = SimpleNamespace(
        publish=lambda event: told.append((event.involved_object.namespace, event.involved_object.name, event.reason)),
        delete_node_claim=lambda item: told.append((item["metadata"]["name"], item["metadata"]["uid"])),
    )
    names = ("planned", "too-early", "waits", "futile-1", "futile-2")
    items = [
        SimpleNamespace(
            claim=name,
            name=name,
            uid=f"uid-{name}",
            node_class="unready" if name == "too-early" else "ready",
            created_at=1000.0,
        )
        for name in names
    ]
    catalogs = [
        SimpleNamespace(node_class="unready", not_ready="no subnet"),
        SimpleNamespace(node_class="ready", not_ready=""),
    ]
    snapshot: Any = SimpleNamespace(cluster="demo", catalogs=catalogs, standalone_claims=items, now=1000.0)
    monkeypatch.setattr(
        module, "plan_standalone", lambda _, item: (item if item.name == "waits" else None, "no type is large enough")
    )
    stage = Stage()
    module.delete_unplanned(snapshot, ["planned"], replace(stage.context, cluster=cluster))
    assert told == [
        ("", "futile-1", "LaunchFailed"),
        ("futile-1", "uid-futile-1"),
        ("", "futile-2", "LaunchFailed"),
        ("futile-2", "uid-futile-2"),
    ]
    assert stage.meter.counts == {"NodeClaimsRefused": 2.0}


def test_only_the_status_of_its_own_node_class_makes_a_node_claim_futile() -> None:
    """A NodePool of the same name and another EC2NodeClass are not ready, either."""

    def unready(kind: str, name: str) -> dict[str, Any]:
        conditions = [{"type": "Ready", "status": "False", "message": f"{kind} {name} fails"}]
        return {"kind": kind, "metadata": {"name": name}, "status": {"conditions": conditions}}

    def futile(*objects: dict[str, Any]) -> list[str]:
        reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
        claim = {"metadata": {"name": "mine", "uid": "u"}, "spec": {"nodeClassRef": reference, "requirements": []}}
        return [item.reason for item in standalone_objects([claim], {"default"}, objects, 2000.0).futile]

    assert futile(unready("NodePool", "default"), unready("EC2NodeClass", "other")) == []
    assert futile(unready("NodePool", "default"), unready("EC2NodeClass", "default")) == [
        "EC2NodeClass default is not ready: EC2NodeClass default fails"
    ]
