"""Drawn DaemonSets with labels and terms: each node that a claim may become has the company that its pods must have.

The judge looks at one node at a time, with the pods of the DaemonSets that run there, and knows only the rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shiplap.kubernetes.objects import DaemonSet, Pod
from shiplap.scheduling.model.scheduling_plan import Plan
from shiplap.scheduling.model.snapshot import Snapshot
from shiplap.scheduling.planner import plan
from tests.builders.pods import pods
from tests.builders.pools import pool, rule
from tests.checker import Judge, violations
from tests.conformance import given as case
from tests.conformance.catalogues import Z1, Z2, Z3, fake_type
from tests.rules import add, requests, suits, tolerates
from tests.strategies import sampled_from
from tests.thoroughness import draws
from tests.topology_checker import counts, required_terms

ZONE, HOST, KIND = "topology.kubernetes.io/zone", "kubernetes.io/hostname", "karpenter.sh/capacity-type"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
SETTINGS = settings(
    derandomize=True,
    deadline=None,
    max_examples=draws(150),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
EVERYWHERE = [(kind, zone) for kind in ("spot", "on-demand") for zone in (Z1, Z2, Z3)]
TYPES = [
    fake_type("small", cpu="2", memory="8Gi", pods="10", offerings=EVERYWHERE),
    fake_type("large", cpu="8", memory="32Gi", pods="40", offerings=EVERYWHERE),
]
AGENTS, APPS = ("log", "net"), ("web", "db")


def term(app: str) -> dict[str, Any]:
    return {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": app}}}


def affinity(near: Sequence[str], away: Sequence[str]) -> dict[str, Any]:
    return {
        "affinity": {
            "podAffinity": {REQUIRED: list(map(term, near))},
            "podAntiAffinity": {REQUIRED: list(map(term, away))},
        }
    }


@st.composite
def agents(draw: st.DrawFn, name: str) -> DaemonSet:
    chosen: list[dict[str, str]] = [{}, {ZONE: Z1}, {KIND: "spot"}, {"tier": "x"}, {ZONE: Z2, KIND: "on-demand"}]
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {
            "containers": [{"name": "main", "resources": {"requests": {"cpu": draw(sampled_from(["100m", "900m"]))}}}],
            "nodeSelector": draw(sampled_from(chosen)),
            **affinity([], draw(sampled_from([[], [], ["db"]]))),
        },
    }
    return msgspec.convert(
        {"metadata": {"name": name, "namespace": "default"}, "spec": {"template": template}}, DaemonSet
    )


@st.composite
def clusters(draw: st.DrawFn) -> Snapshot:
    waiting: list[Pod] = []
    for kind in range(draw(st.integers(1, 4))):
        waiting += pods(
            draw(st.integers(1, 3)),
            f"k{kind}",
            cpu=draw(sampled_from(["100m", "1", "1500m"])),
            metadata={"labels": {"app": draw(sampled_from(APPS))}},
            selector=draw(sampled_from([{}, {}, {ZONE: Z1}, {"tier": "y"}])),
            spec=affinity(*draw(sampled_from([([], []), (["log"], []), ([], ["net"]), (["log"], ["net"])]))),
        )
    pools = [pool("default", rule("tier", "In", "x", "y"), limits={})]
    daemons = [draw(agents(name)) for name in AGENTS[: draw(st.integers(1, 2))]]
    return case.snapshot_of(waiting, pools=pools, types=TYPES, daemon_sets=daemons)


def wrong(pod: Pod, others: Sequence[Pod]) -> Iterator[str]:
    """Yield each rule that a pod breaks on a node with these other pods."""
    for term in required_terms(pod, "pod_anti_affinity"):
        yield from (f"{pod.metadata.name} is beside {o.metadata.name}" for o in others if counts(term, pod, o))
    for other in others:
        if any(counts(rule, other, pod) for rule in required_terms(other, "pod_anti_affinity")):
            yield f"{other.metadata.name} keeps {pod.metadata.name} away"
    terms = required_terms(pod, "pod_affinity")
    if terms and not any(all(counts(rule, pod, other) for rule in terms) for other in others):
        yield f"{pod.metadata.name} lacks company"


def templates(judge: Judge, node: dict[str, str]) -> list[Pod]:
    """The pods of the DaemonSets that run on a node."""
    return [
        Pod(
            metadata=msgspec.structs.replace(daemon.metadata, labels=daemon.spec.template.metadata.labels),
            spec=daemon.spec.template.spec,
        )
        for daemon in judge.snapshot.view.daemon_sets
        if suits(daemon.spec.template.spec, node) and tolerates((), daemon.spec.template.spec)
    ]


def broken(snapshot: Snapshot, made: Plan) -> list[str]:
    judge = Judge(snapshot, made)
    found = []
    for claim in made.node_claims:
        pods = [judge.pods[entry.namespace, entry.name] for entry in claim.pods]
        for item in TYPES:
            for node, _ in judge.nodes(claim, item) if item.name in claim.instance_types else ():
                company = [*pods, *templates(judge, node)]
                found += [text for pod in pods for text in wrong(pod, [o for o in company if o is not pod])]
    return found


def left_out(snapshot: Snapshot, made: Plan) -> list[str]:
    """Pods left out although a node of their own would hold them and its DaemonSets."""
    judge, found = Judge(snapshot, made), []
    for record in made.unschedulable:
        pod = judge.pods[record.pod.namespace, record.pod.name]
        for item in TYPES:
            for kind, zone in EVERYWHERE:
                for tier in "xy":
                    node = {ZONE: zone, KIND: kind, "tier": tier}
                    beside = templates(judge, node)
                    load = add(map(requests, [pod, *beside]))
                    holds = all(amount <= item.allocatable.get(name, 0) for name, amount in load.items())
                    if holds and suits(pod.spec, node) and not any(wrong(pod, beside)):
                        found.append(f"{pod.key} would fit {item.name} on {node}: {record.message}")
    return found


@SETTINGS
@given(clusters())
def test_each_pod_has_the_company_that_it_must_have(snapshot: Snapshot) -> None:
    made = plan(snapshot)
    assert violations(snapshot, made) == []
    assert broken(snapshot, made) == []


@SETTINGS
@given(clusters())
def test_nobody_is_left_out_whom_a_node_with_its_daemons_would_hold(snapshot: Snapshot) -> None:
    assert left_out(snapshot, plan(snapshot)) == []
