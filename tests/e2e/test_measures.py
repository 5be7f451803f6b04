"""Tests the figures that are made of audit logs, messages and claims; the tests need no Kubernetes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from shiplap.manifests.nodeclaim import NodeClaim, PodReference
from tests.builders.claims import node_claim
from tests.e2e import measures
from tests.event_source import AnsweredInvocation, EventSourceMapping, EventSourcePoller

MAPPED = EventSourceMapping("https://sqs/q", "arn:aws:sqs:r:1:q", "f:live", batch_size=10, window_s=1.0, most_at_once=0)


def at(second: float) -> str:
    return f"1970-01-01T00:00:{second:09.6f}Z"


def written(second: float, verb: str, uid: str, subresource: str = "", user: str = "system:kube-scheduler") -> str:
    reference = {"resource": "pods", "subresource": subresource}
    event = {"verb": verb, "objectRef": reference, "user": {"username": user}, "requestReceivedTimestamp": at(second)}
    return json.dumps({**event, "responseObject": {"metadata": {"uid": uid}}})


def source_of(*messages: tuple[str, float, str]) -> EventSourcePoller:
    """Messages by id, when they were handed over, and the event they are."""
    source = EventSourcePoller(None, Mock(), MAPPED)
    for name, invoked, event in messages:
        source.bodies[name] = json.dumps({"detail": {"id": event}})
        source.answered.append(AnsweredInvocation((name,), invoked, invoked + 1))
    source.bodies["sweep"] = json.dumps({"kind": "sweep", "cluster": "c"})
    return source


def claim(name: str, created: float, *uids: str, **fields: Any) -> NodeClaim:
    pods = tuple(PodReference("default", uid, uid) for uid in uids)
    given = {
        "node_pool": "p",
        "node_class": "n",
        "instance_id": f"i-{name}",
        "node_name": name,
        "hourly": 1.0,
        **fields,
    }
    return node_claim(cluster="c", name=name, created_at=created, pods=pods, **given)


def test_the_way_of_a_pod_is_cut_into_stages(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    lines = [
        written(1.0, "create", "a", user="replicaset-controller"),
        written(1.25, "patch", "a", "status", user="kubelet"),
        written(1.5, "patch", "a", "status"),
        written(9.0, "patch", "a", "status"),
        written(2.0, "create", "b", user="replicaset-controller"),
    ]
    log.write_text("\n".join(lines) + "\n" + '{"verb": "cre')
    source = source_of(("m1", 2.75, "e1"), ("m2", 4.0, "e1"), ("m3", 2.0, "e2"))
    hint = {"event_id": "e1", "first_event_at": 1.75}
    claims = [claim("later", 8.0, "a"), claim("first", 3.25, "a", "b", **hint), claim("no", 1.0, "a", instance_id="")]
    found = measures.moments(log, source, claims, {"i-first": 3.5, "i-later": 9.0})
    assert found["a"].spans() == {
        "judged": 0.5,
        "told": 0.25,
        "invoked": 1.0,
        "planned": 0.5,
        "launched": 0.25,
        "whole": 2.5,
    }
    # Planned for with the other, which was told of before this one was there.
    assert found["b"].spans() == {
        "judged": 0,
        "told": 0,
        "invoked": 0.75,
        "planned": 0.5,
        "launched": 0.25,
        "whole": 1.5,
    }
    assert sorted(measures.breakdown(found.values())["whole"]) == [1.5, 2.5]


def test_what_is_launched_again_for_a_pod_is_beyond_the_plan() -> None:
    claims = [claim("b", 2.0, "x", "y"), claim("a", 1.0, "x", hourly=0.5), claim("other", 0.0, "z")]
    assert measures.bill(claims, frozenset("xy")) == measures.Bill(planned=1.5, realised=1.5)
    assert measures.bill([*claims, claim("again", 3.0, "y", hourly=4.0)], frozenset("xy")) == measures.Bill(1.5, 5.5)
    assert measures.bill([claim("failed", 1.0, "x", instance_id="")], frozenset("x")) == measures.Bill(0, 0)


def test_a_pod_is_at_home_on_any_node_launched_for_it() -> None:
    def pod(uid: str, node: str) -> dict[str, Any]:
        return {"metadata": {"uid": uid}, "spec": {"nodeName": node} if node else {}}

    claims = [claim("n1", 1.0, "a", "b", "c"), claim("n2", 2.0, "b")]
    pods = [pod("a", "n1"), pod("b", "n2"), pod("c", "n2"), pod("unknown", "n1"), pod("c", "")]
    assert measures.at_home(claims, pods) == [True, True, False]


def test_figures_are_kept_beside_those_of_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(measures, "FIGURES", tmp_path / "build" / "e2e.json")
    measures.figure("wait_s", [float(number) for number in range(200)])
    measures.keep("nodes", {"number": 3})
    kept = json.loads(measures.FIGURES.read_bytes())
    assert kept == {"wait_s": {"n": 200, "p50": 100.0, "p99": 198.0}, "nodes": {"number": 3}}
    assert capsys.readouterr().out == "wait_s: n 200, p50 100, p99 198\nnodes: number 3\n"
