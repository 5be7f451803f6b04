"""Tests the reports to the judge of a simulation about pods that functions have deleted."""

from __future__ import annotations

from typing import Any, cast

import pytest

from shiplap.errors import ClusterUnreachable
from shiplap.kubernetes.objects import Pod
from shiplap_lab.fakes.cluster import ApiServer
from shiplap_lab.fakes.faults import Faults
from shiplap_lab.fakes.signals import FakeClock
from shiplap_lab.virtual_time.checked_fakes import CheckedCluster
from shiplap_lab.virtual_time.fault_injector import FaultInjector
from tests.builders.pods import pod_object


class Told:
    """A cluster with one running pod, and what is told of its deletion: whether it was asked to end before, forced."""

    def __init__(self) -> None:
        self.faults, self.server = Faults(), ApiServer(FakeClock())
        self.cluster = CheckedCluster(self.server, cast(FaultInjector, self.faults))
        self.told: list[tuple[bool, bool]] = []
        self.cluster.on_delete.append(self._note)
        self.server.create("nodes", {"metadata": {"name": "n"}, "spec": {}, "status": {}})
        self.server.create("pods", pod_object("p", node="n", phase="Running"))
        (self.pod,) = self.cluster.pods_on("n")

    def _note(self, pod: dict[str, Any], forced: bool) -> None:
        self.told.append(("deletionTimestamp" in pod["metadata"], forced))


@pytest.mark.parametrize("forced", [False, True])
def test_a_pod_that_others_delete_before_the_request_comes(*, forced: bool) -> None:
    """Its budget does not bound that: the API server lets a pod go that is going."""
    told = Told()
    asks = "cluster.delete_pod" if forced else "cluster.evict"
    told.faults.on("before", asks, lambda: told.server.delete("pods", "p", "default", grace_s=30))
    _end(told.cluster, told.pod, forced=forced)
    assert told.told == [(True, forced)]


@pytest.mark.parametrize("forced", [False, True])
def test_a_deletion_whose_answer_is_lost(*, forced: bool) -> None:
    told = Told()
    told.faults.on("after", "cluster.delete_pod" if forced else "cluster.evict", ClusterUnreachable("reset"))
    with pytest.raises(ClusterUnreachable):
        _end(told.cluster, told.pod, forced=forced)
    assert told.told == [(False, forced)]


def _end(cluster: CheckedCluster, pod: Pod, *, forced: bool) -> None:
    if forced:
        cluster.delete_pod(pod, 30)
    else:
        cluster.evict(pod)
