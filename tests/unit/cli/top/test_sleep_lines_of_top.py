"""The lines of `shiplap top` about sleep."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from shiplap.errors import AwsError, StoreError
from shiplap.manifests.custom_resources import Manifests, NodePool
from shiplap.policies.policy_settings import chosen
from shiplap.policies.sleep.sleep_settings import SleepSettings, WindowSettings
from shiplap.policies.sleep.sleep_state import SleepNotes, sleep_digest
from shiplap.settings import ClusterSettings
from shiplap_cli.commands.top.followed_install import lines_source
from shiplap_cli.inputs.cluster_events import SourceProblem
from shiplap_cli.installs.followed_resources import FollowedResources
from shiplap_cli.policies import sleep_top
from shiplap_cli.policies.sleep_top import lines_reader
from shiplap_lab.fakes.faults import Faults
from shiplap_lab.fakes.state import FakeJoins
from shiplap_lab.policies.sleep_fakes import FakeSleep

NOW = datetime(2026, 11, 29, tzinfo=UTC).timestamp()
SLEEP = SleepSettings(("dev",), 5, (WindowSettings("daily 22:00-06:00 UTC"),))
POOL = msgspec.convert(
    {"metadata": {"name": "dev"}, "spec": {"template": {"spec": {"nodeClassRef": {"name": "default"}}}}}, NodePool
)


def reading(store: FakeSleep) -> list[str]:
    install: Any = SimpleNamespace(joins=FakeJoins)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sleep_top, "sleep_notes", lambda _: store)
        return list(lines_reader(FollowedResources(lambda: (install, "prod")), lambda: NOW)())


def asleep(**fields: Any) -> ClusterSettings:
    return ClusterSettings(
        name="prod",
        region="eu-west-1",
        policies=chosen(SLEEP),
        manifests=Manifests(node_pools=(POOL,)),
        **fields,
    )


def slept(faults: Faults | None = None) -> FakeSleep:
    store = FakeSleep(faults)
    store.save("prod", SleepNotes(sleep_digest(SLEEP, (POOL,)), {"0": 1}), NOW)
    return store


def test_what_sleeps_until_when_and_how_many_nodes_may_leave(settings: list[ClusterSettings | AwsError]) -> None:
    settings.append(asleep())
    assert reading(slept()) == [
        "sleep: NodePool dev until 2026-11-29T06:00:00Z, woken 6 min before",
        "sleep: 5 more nodes may leave",
    ]


def test_nothing_is_looked_up_where_nothing_has_slept(settings: list[ClusterSettings | AwsError]) -> None:
    settings.append(AwsError("not authorized"))
    assert reading(FakeSleep()) == []


def test_nothing_is_said_where_nothing_may_sleep_now_or_pools_are_read_from_the_cluster(
    settings: list[ClusterSettings | AwsError],
) -> None:
    assert reading(slept()) == []
    settings.append(asleep(live_manifests=True))
    assert reading(slept()) == []


@pytest.mark.parametrize("unread", ["settings", "notes"])
def test_what_cannot_be_read_is_said(settings: list[ClusterSettings | AwsError], unread: str) -> None:
    settings.append(AwsError("not authorized") if unread == "settings" else asleep())
    faults = Faults()
    if unread == "notes":
        faults.on("before", "sleep.read", StoreError("not authorized"))
    store, shown = slept(faults), list[Any]()
    lines_source("sleep", sleep_top.UNSEEN, lambda: reading(store)).poll_once(shown.append)
    assert shown == [SourceProblem("sleep", "what sleeps is not seen: not authorized")]
