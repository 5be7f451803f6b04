"""Pods sleep by namespace, or because no awake NodePool takes them; in doubt they are awake."""

from __future__ import annotations

from typing import Any

import pytest

from shiplap.kubernetes.objects import Pod
from shiplap.manifests.custom_resources import NodePool
from shiplap.policies.sleep.sleep_state import SleepingScope, SleepState
from shiplap.policies.sleep.sleeping_pods import SleepingPods
from tests.builders.pods import pod
from tests.builders.pools import pool, rule

UNTIL = 1_800_000_000


def scope(name: str, kind: str = "NodePool", *, rehearsal: bool = False, until: int = UNTIL) -> SleepingScope:
    return SleepingScope(kind, name, UNTIL - 3600, until, until - 300, rehearsal)


def asleep(item: Pod, pools: list[NodePool], *scopes: SleepingScope) -> bool:
    sleepers = SleepingPods(SleepState(scopes=scopes), pools)
    assert bool(sleepers.reason(item)) != bool(sleepers.awake_because(item))
    return bool(sleepers.reason(item))


def test_a_pod_sleeps_with_the_only_pool_that_takes_it() -> None:
    dev, prod = (
        pool("dev", taints=[{"key": "env", "value": "dev", "effect": "NoSchedule"}]),
        pool("prod", taints=[{"key": "env", "value": "prod", "effect": "NoSchedule"}]),
    )
    of_dev = pod("a", tolerations=[{"key": "env", "value": "dev"}])

    assert asleep(of_dev, [dev, prod], scope("dev"))
    assert not asleep(of_dev, [dev, prod], scope("prod"))
    assert not asleep(of_dev, [dev, prod], scope("dev", rehearsal=True))
    assert SleepingPods(SleepState(scopes=(scope("dev"),)), [dev]).reason(of_dev) == (
        "NodePool dev sleeps until 2027-01-15T08:00:00Z"
    )


def test_a_pod_sleeps_until_the_first_of_its_pools_is_awake() -> None:
    scopes = (scope("dev", until=UNTIL + 7200), scope("test", until=UNTIL), scope("web", until=UNTIL + 3600))
    sleepers = SleepingPods(SleepState(scopes=scopes), [pool(item.name) for item in scopes])
    assert sleepers.reason(pod("a")) == "NodePools dev, test, web sleep until 2027-01-15T08:00:00Z"


def test_a_pod_that_an_awake_pool_takes_is_awake() -> None:
    pools = [pool("dev"), pool("prod")]
    sleepers = SleepingPods(SleepState(scopes=(scope("dev"),)), pools)

    assert not asleep(pod("a"), pools, scope("dev"))
    assert sleepers.awake_because(pod("a")) == "pod default/a could run on NodePool prod, which is awake"
    assert asleep(pod("a"), pools, scope("dev"), scope("prod"))
    assert asleep(pod("a", selector={"karpenter.sh/nodepool": "dev"}), pools, scope("dev"))
    required = pod("a", requires=[[rule("karpenter.sh/nodepool", "In", "dev")]])
    assert asleep(required, pools, scope("dev"))
    either = pod("a", requires=[[rule("karpenter.sh/nodepool", "In", "dev")], [rule("x", "DoesNotExist")]])
    assert not asleep(either, pools, scope("dev"))


def test_requirements_with_globs_do_not_put_pods_to_sleep() -> None:
    dev = pool("dev")
    prod = pool("prod", rule("node.kubernetes.io/instance-type", "In", "m7*"))
    wants = pod("a", selector={"node.kubernetes.io/instance-type": "c7g.large"})

    assert not asleep(wants, [dev, prod], scope("dev"))


def test_a_pod_that_no_pool_takes_is_awake() -> None:
    assert not asleep(pod("a", selector={"team": "x"}), [pool("dev")], scope("dev"))


@pytest.mark.parametrize("closed", [{"replicas": 2}, {"deleting": True}], ids=["static", "deleted"])
def test_a_pool_that_launches_nothing_for_pods_neither_wakes_them_nor_lets_them_sleep(closed: dict[str, Any]) -> None:
    assert not asleep(pod("a"), [pool("dev", **closed)], scope("dev"))
    assert asleep(pod("a"), [pool("dev"), pool("prod", **closed)], scope("dev"))
    assert not asleep(pod("a"), [pool("dev"), pool("prod", **closed), pool("test")], scope("dev"))


def test_namespaces_sleep_wherever_their_pods_run() -> None:
    pools = [pool("dev"), pool("prod")]

    assert asleep(pod("a", namespace="ci"), pools, scope("ci", "Namespace"))
    assert not asleep(pod("a", namespace="web"), pools, scope("ci", "Namespace"))
    assert asleep(pod("a", namespace="web"), pools, scope("ci", "Namespace"), scope("dev"), scope("prod"))


@pytest.mark.parametrize(
    "critical", [{"priority": 2_000_000_000}, {"priorityClassName": "system-node-critical"}], ids=["value", "class"]
)
def test_system_critical_pods_never_sleep(critical: dict[str, Any]) -> None:
    item = pod("a", namespace="ci", spec=critical)

    assert not asleep(item, [pool("dev")], scope("dev"), scope("ci", "Namespace"))
    assert asleep(pod("a", priority=1_000_000_000), [pool("dev")], scope("dev"))


def test_a_pod_that_cannot_be_read_is_awake() -> None:
    assert not asleep(pod("a", requires=[[rule("x", "Near", "y")]]), [pool("dev")], scope("dev"))


def test_a_taint_that_only_prefers_other_pods_keeps_none_from_an_awake_pool() -> None:
    shy = pool("shy", taints=[{"key": "env", "value": "dev", "effect": "PreferNoSchedule"}])
    assert not asleep(pod("a"), [pool("dev"), shy], scope("dev"))
    assert asleep(pod("a"), [shy], scope("shy"))
