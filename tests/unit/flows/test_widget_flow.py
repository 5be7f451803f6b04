"""Tests the widget's answers to CloudWatch: a description, the clusters, or the reason why there is nothing to see."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from shiplap.errors import StoreError
from shiplap.flows.context import FlowContext
from shiplap.flows.widget.widget import DESCRIPTION, widget
from shiplap.kubernetes.compact_pods import SnapshotHeader, encode_pods
from shiplap.kubernetes.objects import Container, ObjectMeta, Pod, PodSpec, ResourceRequirements
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap.settings import ClusterSettings, Settings
from shiplap_lab.fakes.signals import FakeClock
from shiplap_lab.fakes.state import FakeState
from shiplap_lab.fakes.stores import FakeSnapshots
from tests.builders.claims import changes, node_claim

ARN = "arn:aws:lambda:eu-west-1:123456789012:function:shiplap-widget:live"
SETTINGS = Settings(
    (ClusterSettings(name="east", region="eu-west-1"), ClusterSettings(name="west", region="eu-west-1"))
)
# The fields of CloudWatch's documentation, "Details about custom widgets".
CONTEXT = {
    "dashboardName": "shiplap-eu-west-1",
    "widgetId": "widget-16",
    "accountId": "123456789012",
    "locale": "en",
    "timezone": {"label": "UTC", "offsetISO": "+00:00", "offsetInMinutes": 0},
    "period": 300,
    "isAutoPeriod": True,
    "timeRange": {"mode": "relative", "start": 1627236199729, "end": 1627322599729, "relativeStart": 86400012},
    "theme": "dark",
    "linkCharts": True,
    "title": "Nodes",
    "forms": {"all": {}},
    "params": {"cluster": "east"},
    "width": 588,
    "height": 369,
}


class Broken(FakeState):
    """Cannot be read for one cluster."""

    def claims(self, cluster: str) -> tuple[NodeClaim, ...]:
        if cluster == "west":
            raise StoreError("read table state: AccessDeniedException: not authorized to perform dynamodb:Query")
        return super().claims(cluster)


@pytest.fixture
def state() -> FakeState:
    known = Broken()
    for pool in ("web", "batch"):
        claim = node_claim(cluster="east", name=f"{pool}-1", node_pool=pool, node_class="default", hourly=0.2)
        known.commit("east", known.read("east", 0.0).epoch, [claim])
    return known


def ask(state: FakeState, settings: Settings = SETTINGS, **event: Any) -> str:
    return widget({"widgetContext": CONTEXT, **event}, settings, contexts(state), ARN)


def contexts(state: FakeState, snapshots: FakeSnapshots | None = None) -> Callable[[ClusterSettings], FlowContext]:
    """Every cluster has the same ports."""
    known = SimpleNamespace(state=state, clock=FakeClock(), snapshots=snapshots)
    return lambda _: cast("FlowContext", known)


def test_it_describes_itself(state: FakeState) -> None:
    assert ask(state, describe=True) == DESCRIPTION
    assert "cluster:" in DESCRIPTION


def test_all_clusters_are_drawn_and_one_that_cannot_be_read_says_why(state: FakeState) -> None:
    made = ask(state)
    assert "web-1" in made
    assert "batch-1" in made
    assert "not authorized to perform dynamodb:Query" in made
    assert "#586af0" in made  # the dark theme's


def test_parameters_choose_a_cluster_and_a_pool(state: FakeState) -> None:
    made = ask(state, cluster="east", pool="web")
    assert "web-1" in made
    assert "batch-1" not in made
    assert "not authorized" not in made


def test_what_cannot_be_shown_is_explained(state: FakeState) -> None:
    assert "its clusters are: east, west" in ask(state, cluster="<north>")
    assert "<north>" not in ask(state, cluster="<north>")
    assert "cannot be read: Expected `str`, got `int` - at `$.cluster`" in ask(state, cluster=7)
    assert "cannot be read" in widget({"widgetContext": "none"}, SETTINGS, contexts(state), ARN)


def test_a_paused_cluster_says_so(state: FakeState) -> None:
    paused = Settings((ClusterSettings(name="east", region="eu-west-1", paused=True),))
    made = ask(state, paused)
    assert "Paused" in made
    assert "<cwdb-action" not in made


def test_it_draws_without_anything_from_cloudwatch(state: FakeState) -> None:
    assert "web-1" in widget({}, SETTINGS, contexts(state), ARN)
    assert "no clusters" in widget({}, Settings(), contexts(state), ARN)


def test_a_theme_that_is_not_known_is_drawn_as_light(state: FakeState) -> None:
    light, dark, other = (ask(state, widgetContext={"theme": theme}) for theme in ("light", "dark", "sepia"))
    assert light == other != dark


def test_boxes_are_as_large_as_the_place_allows(state: FakeState) -> None:
    high, low = (ask(state, cluster="east", widgetContext={"height": height}) for height in (2000, 100))
    assert high != low
    assert ask(state, widgetContext={}) == widget({}, SETTINGS, contexts(state), ARN)


def snapshot(*, complete: bool = True, cluster: str = "east", age_s: float = 90.0) -> FakeSnapshots:
    container = Container(resources=ResourceRequirements(requests={"cpu": "750m", "memory": "1Gi"}))
    pod = Pod(ObjectMeta(name="api-1", namespace="shop", uid="u1"), PodSpec(node_name="ip-1", containers=(container,)))
    standing = SnapshotHeader(
        cluster=cluster,
        version="7",
        taken_at=FakeClock().now() - age_s,
        listed_at=0.0,
        kept_since=0.0,
        complete=complete,
    )
    made = FakeSnapshots()
    made.save("east", encode_pods([pod] if complete else [], standing), 0.0)
    return made


def test_pods_are_drawn_where_a_snapshot_of_them_is_kept(state: FakeState) -> None:
    (claim, *_) = state.claims("east")
    for to in (ClaimState.LAUNCHING, ClaimState.LAUNCHED, ClaimState.REGISTERED):
        room = {"cpu": 2000, "memory": 8 * 2**30, "pods": 29}
        claim = state.advance(claim, to, **changes(claim, node_name="ip-1", allocatable=room))
    made = widget({"cluster": "east"}, SETTINGS, contexts(state, snapshot()), ARN)
    assert "shop/api-1" in made
    assert "Pods as of 1 min ago." in made
    just_now = widget({"cluster": "east"}, SETTINGS, contexts(state, snapshot(age_s=-30)), ARN)
    assert "Pods as of 0 s ago." in just_now, "the other function's clock is ahead"
    for known in (snapshot(complete=False), snapshot(cluster="west"), FakeSnapshots(), None):
        made = widget({"cluster": "east"}, SETTINGS, contexts(state, known), ARN)
        assert "shop/api-1" not in made
        assert "launched for request" in made


def test_a_snapshot_that_cannot_be_read_is_said(state: FakeState) -> None:
    broken = FakeSnapshots()
    broken.save("east", b"rubbish", 0.0)
    made = widget({"cluster": "east"}, SETTINGS, contexts(state, broken), ARN)
    assert "snapshot cannot be read" in made
    assert "web-1" in made
