"""A client of ProvisioningRequests in a run of the simulation, such as Kueue is one, and the judge of gangs.

The client makes its requests, starts their pods once they are provisioned, and makes another request where one has
failed or its capacity is lost. It reads and writes the cluster as anybody does, and no function knows of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from math import inf
from random import Random
from typing import Any

import msgspec
from msgspec.structs import replace

from shiplap_lab.faults.fault import Fault
from shiplap_lab.judge import raw_json
from shiplap_lab.judge.gangs_rules import GangJudge, held
from shiplap_lab.policies.policy_plays import PlayedCluster, PolicyRun, PolicyWorld
from shiplap_lab.scenarios.scenario import PodGroup, Scenario, ScenarioRequest
from shiplap_lab.scenarios.workload import pod_object

_LOOK_S = 10.0
_OVER = ("Failed", "CapacityRevoked")
_ATOMIC, _CHECK = (f"{kind}.autoscaling.x-k8s.io" for kind in ("best-effort-atomic-scale-up", "check-capacity"))
_CONSUMES = "autoscaling.x-k8s.io/consume-provisioning-request"


class _Job(msgspec.Struct):
    """A job of the client, which asks for capacity before it starts. Moments in epoch seconds."""

    cluster: PlayedCluster
    request: ScenarioRequest
    group: PodGroup
    at: float
    """When the next request is made."""
    attempt: int = 0
    is_asked: bool = False
    starts_at: float = inf
    ends_at: float = inf
    is_done: bool = False

    @property
    def name(self) -> str:
        """The name of its request now: each attempt has another one."""
        return f"{self.request.name}-{self.attempt}"


class GangRun(PolicyRun):
    """One run of a scenario with gangs, or without."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self._scenario, self._seed = scenario, seed
        self._jobs: list[_Job] = []
        self._judge: GangJudge | None = None

    def begin(self, world: PolicyWorld) -> None:
        """Seat the judge, and let the client have its jobs."""
        self._world = world
        if self._scenario.gangs != "whole":
            return
        limits = {
            (cluster.name, pool.metadata.name): raw_json.amount(pool.spec.limits["cpu"])
            for install in world.installs
            for cluster in install.settings.clusters
            for pool in cluster.manifests.node_pools
            if "cpu" in pool.spec.limits
        }
        self._judge = GangJudge(world.judge, limits, world.apart_s)
        for name, cluster in world.clusters.items():
            cluster.server.on_write(partial(self._judge.object_written, name))
            self._jobs += self._jobs_of(cluster)
        for install in world.installs:
            name = install.settings.clusters[0].install
            install.state.on_claim.append(partial(self._judge.claim_written, name))
            install.state.on_restore.append(partial(self._judge.restored, name))

    def _jobs_of(self, cluster: PlayedCluster) -> Iterator[_Job]:
        groups = {group.name: group for group in self._scenario.groups}
        for request in self._scenario.provisioning_requests:
            chance = Random(f"{self._seed}:{cluster.name}:{request.name}")  # noqa: S311 - repeatable chance
            at = self._world.now() + 60 * (request.at + chance.uniform(0, 3))
            yield _Job(cluster, request, groups[request.group], at)

    def look(self) -> None:
        """Let the client do what is due, and the judge see how long things last."""
        if self._judge is None:
            return
        self._judge.tick(0.0 if self._world.is_disturbed() else _LOOK_S)
        for job in self._jobs:
            if not job.is_done:
                self._go_on(job)

    def is_under_way(self) -> bool:
        """Return True while a job of the client is not over."""
        return not all(job.is_done for job in self._jobs)

    def unmet(self) -> str:
        """Return the jobs of the client that have not come to their end."""
        return ", ".join(f"request {job.name} has not come to its end" for job in self._jobs if not job.is_done)

    def _go_on(self, job: _Job) -> None:
        now, request = self._world.now(), job.request
        if not job.is_asked:
            if now >= job.at:
                self._ask(job)
            return
        found = job.cluster.server.get("provisioningrequests", job.name, job.group.namespace)
        if request.deleted_after and now >= job.at + 60 * request.deleted_after:
            self._end(job)
        elif any(held(found, kind) for kind in _OVER):
            self._end(job, again=job.attempt < request.attempts)
        elif request.consumed_after < 0:
            if held(found, "BookingExpired"):
                self._end(job)
        elif now >= job.ends_at:
            self._end(job)
        elif held(found, "Provisioned") and job.starts_at == inf:
            job.starts_at = now + 60 * request.consumed_after
        if now >= job.starts_at and job.ends_at == inf:
            job.ends_at = now + 60 * request.runs
            self._scale(job, request.count)

    def _ask(self, job: _Job) -> None:
        job.attempt, job.is_asked = job.attempt + 1, True
        request, server, namespace = job.request, job.cluster.server, job.group.namespace
        body = pod_object(job.group, job.name)
        labels = body["metadata"]["labels"]
        template = {"metadata": {"labels": labels}, "spec": body["spec"]}
        server.create("podtemplates", {"metadata": {"name": job.name}, "template": template}, namespace)
        spec: dict[str, Any] = {
            "provisioningClassName": _CHECK if request.is_check else _ATOMIC,
            "podSets": [{"podTemplateRef": {"name": job.name}, "count": request.count}],
        }
        if request.valid_minutes:
            spec["parameters"] = {"ValidUntilSeconds": str(round(60 * request.valid_minutes))}
        server.create("provisioningrequests", {"metadata": {"name": job.name}, "spec": spec}, namespace)
        self._world.record(f"asks for {job.name}")

    def _end(self, job: _Job, *, again: bool = False) -> None:
        """The pods and the request go; `again`: the client asks once more in a minute."""
        self._scale(job, 0)
        for plural in ("provisioningrequests", "podtemplates"):
            job.cluster.server.delete(plural, job.name, job.group.namespace)
        self._world.record(f"{'gives up' if again else 'ends'} {job.name}")
        job.at, job.is_asked, job.is_done = self._world.now() + 60, False, not again
        job.starts_at = job.ends_at = inf

    def _scale(self, job: _Job, number: int) -> None:
        name, annotations = job.name, {**job.group.annotations, _CONSUMES: job.name}
        group = replace(job.group, name=name, annotations=annotations)
        numbers = iter(range(1, 10_000))

        def new_pod(_lost: str) -> dict[str, Any]:
            made = f"{name}-{next(numbers):05d}"
            return pod_object(group, made, uid=f"{job.cluster.name}-{made}", replicated=True)

        job.cluster.replicas.scale(f"rs-{group.namespace}-{name}", number, new_pod)


def run(scenario: Scenario, seed: int, faults: Sequence[Fault]) -> PolicyRun:  # noqa: ARG001 - the same for all policies
    """Return what gangs do in a run."""
    return GangRun(scenario, seed)
