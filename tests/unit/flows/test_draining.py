"""Tests the pods that must leave a node that goes, and the time at which each of them may."""

from __future__ import annotations

import msgspec
import pytest

from shiplap.flows.lifecycle.drain import may_leave, must_leave, overstays
from shiplap.kubernetes.objects import Pod
from shiplap.kubernetes.timestamps import rfc3339
from tests.builders.pods import pod

NOW = 1_700_000_000.0
END = NOW + 120


def leaving(pods: list[Pod], after_s: float, *, promised: tuple[str, ...] = (), deadline_at: float = END) -> list[str]:
    found = may_leave(pods, promised, NOW + after_s, started_at=NOW, deadline_at=deadline_at)
    return [item.metadata.name for item in found]


@pytest.mark.parametrize(
    ("item", "leaves"),
    [
        (pod("plain"), True),
        (pod("replica", owner="owner", owner_kind="ReplicaSet"), True),
        (pod("daemon", owner="owner"), True),
        (pod("tolerant daemon", owner="owner", tolerations=[{"operator": "Exists"}]), False),
        (pod("static", owner="owner", owner_kind="Node"), False),
        (pod("tolerant", tolerations=[{"key": "karpenter.sh/disrupted", "operator": "Exists"}]), False),
        (pod("tolerates all", tolerations=[{"operator": "Exists"}]), False),
        (pod("tolerates others", tolerations=[{"key": "gpu", "operator": "Exists"}]), True),
        (pod("ending", metadata={"deletionTimestamp": rfc3339(NOW - 59)}), True),
        (pod("stuck", metadata={"deletionTimestamp": rfc3339(NOW - 60)}), False),
    ],
    ids=lambda value: value.metadata.name if isinstance(value, Pod) else str(value),
)
def test_a_node_is_empty_without_these(item: Pod, leaves: bool) -> None:
    assert must_leave(item, NOW) == leaves


def test_a_pod_leaves_after_its_head_start_unless_a_node_is_on_its_way() -> None:
    pods = [pod("b"), pod("a"), pod("waits")]
    assert leaving(pods, 9.9) == []
    assert leaving(pods, 10, promised=("uid-waits",)) == ["a", "b"]


@pytest.mark.parametrize(("grace_s", "last_s"), [(None, 80), (30, 80), (0, 110), (110, 0), (600, 0)])
def test_no_pod_waits_longer_than_its_grace_period_allows(grace_s: int | None, last_s: float) -> None:
    pods = [pod("a", spec={"terminationGracePeriodSeconds": grace_s})]
    if last_s:
        assert leaving(pods, last_s - 0.5, promised=("uid-a",)) == []
    assert leaving(pods, last_s, promised=("uid-a",)) == ["a"]


def test_critical_pods_leave_last() -> None:
    critical = pod("dns", spec={"priorityClassName": "system-cluster-critical"})
    assert leaving([critical, pod("web")], 20) == ["web"]
    assert leaving([critical], 20) == ["dns"]
    assert leaving([critical, pod("web")], 80) == ["web", "dns"]


@pytest.mark.parametrize("name", ["system-cluster-critical", "system-node-critical"])
def test_pods_of_both_critical_classes_leave_and_after_the_others(name: str) -> None:
    critical, daemon = pod("critical", spec={"priorityClassName": name}), pod("daemon", owner="owner")
    assert must_leave(critical, NOW)
    assert leaving([critical, daemon], 20) == ["daemon"]
    assert leaving([critical], 20) == ["critical"]
    assert leaving([critical, pod("other", spec={"priorityClassName": "mine"})], 20) == ["other"]


def test_a_pod_that_must_not_be_disrupted_leaves_only_at_the_last_moment() -> None:
    pods = [pod("a", annotations={"karpenter.sh/do-not-disrupt": "true"})]
    assert leaving(pods, 79) == []
    assert leaving(pods, 80) == ["a"]
    assert leaving(pods, 1_000_000, deadline_at=0.0) == []


def test_without_a_deadline_a_pod_waits_for_its_node_however_long() -> None:
    assert leaving([pod("a")], 1_000_000, promised=("uid-a",), deadline_at=0.0) == []
    assert leaving([pod("a")], 10, deadline_at=0.0) == ["a"]


def test_a_pod_is_asked_to_leave_once() -> None:
    assert leaving([pod("a", metadata={"deletionTimestamp": rfc3339(NOW + 30)})], 100) == []


def test_each_group_leaves_when_the_one_before_it_is_gone() -> None:
    plain, daemon = pod("plain"), pod("daemon", owner="owner")
    critical = pod("critical", spec={"priorityClassName": "system-node-critical"})
    last = pod("last", owner="owner", spec={"priorityClassName": "system-node-critical"})
    order = []
    left = [last, critical, daemon, plain]
    while left:
        (name,) = leaving(left, 20)
        order.append(name)
        ending = pod(name, metadata={"deletionTimestamp": rfc3339(NOW + 50)})
        others = [item for item in left if item.metadata.name != name]
        if name == "plain":
            assert leaving([ending, *others], 20) == []  # it has not ended yet
        left = others
    assert order == ["plain", "daemon", "critical", "last"]


def test_a_pod_may_be_protected_for_a_while() -> None:
    item = pod("a", annotations={"karpenter.sh/do-not-disrupt": "30s"})
    started = msgspec.structs.replace(item, status=msgspec.convert({"startTime": rfc3339(NOW)}, type(item.status)))
    assert leaving([started], 29) == []
    assert leaving([started], 30) == ["a"]


def test_a_pod_overstays_when_it_was_given_more_time_than_its_node_has() -> None:
    def ending(at: float) -> Pod:
        return pod("a", metadata={"deletionTimestamp": rfc3339(at)})

    assert overstays(ending(END + 1), END)
    assert not overstays(ending(END), END)
    assert not overstays(ending(END + 1), 0.0)
    assert not overstays(pod("a"), END)
