"""From a manifest to pods that run, and on through all that happens to a node, with a real cluster in the middle.

The tests of this module share one world and run in the order in which they are written, each from what the one before
has left.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from shiplap.aws import tags
from shiplap.errors import ShiplapError
from shiplap.flows.audit.audit import RecentPods, audit, read_delivery
from shiplap.kubernetes.labels import ZONE
from shiplap_lab.emulated_aws import cdk as node
from shiplap_lab.judge.promises import Promise
from tests import audit_log
from tests.e2e import manifests, measures, programs
from tests.e2e.control_plane import wait_until
from tests.e2e.judging import JudgedCluster, pools_in
from tests.e2e.measures import audit_events, seconds
from tests.e2e.world import CLUSTER, World
from tests.integration.flows.stage import Stage

pytestmark = [pytest.mark.e2e, pytest.mark.long]

_BURSTS = 4
_RESTART_S = 60.0


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    try:
        programs.find()
        node.executable()
    except (programs.ProgramsMissing, ShiplapError) as missing:
        pytest.skip(f"no whole system: {missing}")
    settings = {"placement": "nominate"}
    with World(tmp_path_factory.mktemp("world"), manifests.NODES, settings, judged=True) as running:
        yield running


def test_workloads_of_every_kind_get_nodes_and_run(world: World) -> None:
    world.apply("---\n".join((manifests.AGENT, manifests.BUDGET, manifests.WEB, manifests.APART)))
    world.apply(manifests.NEAR)
    world.await_running("web", 7)
    world.await_running("apart", 3)
    world.await_running("near", 2)
    world.apply(manifests.DATABASE)
    world.await_running("db", 2)
    world.apply(manifests.JOB)
    finished = lambda: [pod for pod in world.pods("batch") if pod["status"]["phase"] == "Succeeded"]  # noqa: E731
    wait_until(lambda: len(finished()) == 3, "the job's pods have succeeded", told=world.told)
    wait_until(
        lambda: {str(claim.state) for claim in world.claims()} == {"Initialized"},
        "every node is in service",
        told=world.told,
    )
    zones = {name: node["metadata"]["labels"][ZONE] for name, node in world.nodes().items()}

    def where(app: str) -> Counter[str]:
        return Counter(zones[pod["spec"]["nodeName"]] for pod in world.pods(app))

    assert sorted(where("web").values()) == [2, 2, 3]
    assert where("near").keys() <= {"us-east-1b", "us-east-1c"}
    assert set(Counter(pod["spec"]["nodeName"] for pod in world.pods("apart")).values()) == {1}
    agents = [pod for pod in world.api.list("pods").items if pod["metadata"]["labels"].get("app") == "agent"]
    assert {pod["spec"].get("nodeName") for pod in agents} == zones.keys()


def test_the_judge_of_this_world_finds_a_broken_promise(world: World) -> None:
    """Another judge of the same cluster is told of limits that nobody knew of; it finds that and nothing else."""
    unknown = {name: {**spec, "limits": {"nodes": "1"}} for name, spec in pools_in(manifests.NODES).items()}
    strict = JudgedCluster(CLUSTER, world.api, world.state, world.ec2.control, unknown)
    strict.look()
    assert {violation.promise for violation in strict.violations} == {Promise.LIMITS}
    assert world.judge.violations == ()
    assert world.judge.failure is None


def test_launches_are_quick_and_kube_scheduler_follows_the_plan(world: World) -> None:
    before = {claim.name for claim in world.claims()}
    for number in range(_BURSTS):
        world.apply(manifests.deployment(f"burst-{number}", 12, "", cpu="700m", memory="1Gi"))
        world.await_running(f"burst-{number}", 12)
    claims = [claim for claim in world.claims() if claim.name not in before]
    pods = [pod for number in range(_BURSTS) for pod in world.pods(f"burst-{number}")]
    known = frozenset(pod["metadata"]["uid"] for pod in pods)
    launched_at = {item.id: item.launched_at for item in world.instances()}
    found = measures.moments(world.plane.audit_log, world.sources["schedule"], claims, launched_at)
    for stage, spans in measures.breakdown(found.values()).items():
        measures.figure(f"launch: {stage}_s", spans)
    at_home = measures.at_home(claims, pods)
    measures.keep("pods where planned", {"n": len(at_home), "share": sum(at_home) / len(at_home)})
    cost = measures.bill(claims, known)
    measures.keep("cost against plan", {"planned": cost.planned, "realised": cost.realised})
    assert len(found) >= _BURSTS * 3
    # How many is a figure, no promise: a pod that finds room elsewhere before its node is there does not wait for it.
    assert any(at_home)


def test_a_spot_interruption_launches_the_replacement_first(world: World) -> None:
    on = {pod["spec"]["nodeName"] for pod in world.running("web")}
    victim = next(
        claim for claim in world.claims() if claim.node_name in on and claim.known_instance.capacity_type == "spot"
    ).instance_id
    known = {item.id for item in world.instances()}
    world.interrupt(victim)
    wait_until(lambda: victim not in {item.id for item in world.instances()}, "it has ended", told=world.told)
    ended_at = time.time()
    replacements = [item for item in world.instances() if item.id not in known]
    assert replacements
    assert all(world.joiner.joined_at[item.id] < ended_at for item in replacements)
    world.await_running("web", 7)


def test_pods_get_nodes_after_the_api_server_was_restarted(world: World) -> None:
    known = {item.id for item in world.instances()}
    world.plane.stop_api_server()
    world.plane.start_api_server()
    world.restarted_at = time.time()
    world.apply(manifests.deployment("after", 6, "", cpu="1500m"))
    world.await_running("after", 6)
    assert {item.id for item in world.instances()} - known


def test_nodes_that_too_few_pods_use_are_consolidated(world: World) -> None:
    before = sum(claim.hourly for claim in world.claims() if claim.state == "Initialized")
    for number in range(_BURSTS):
        world.api.scale("deployments", f"burst-{number}", 1)
    world.api.delete("deployments", "after", "default")

    def hourly() -> float:
        return sum(claim.hourly for claim in world.claims() if claim.state not in ("Gone", "Failed"))

    world.disrupt_until(lambda: hourly() < 0.6 * before, "nodes cost less")
    world.await_running("web", 7)
    world.await_running("db", 2)


def test_nodes_of_an_older_image_and_nodes_that_are_old_enough_are_replaced(world: World) -> None:
    """At the same time, for each takes a minute."""
    world.apply(manifests.deployment("drifting", 2, manifests.on_pool("drifting"), cpu="500m"))
    world.apply(manifests.deployment("brief", 2, manifests.on_pool("short-lived"), cpu="500m"))
    world.await_running("drifting", 2)
    world.await_running("brief", 2)
    (claim,) = [item for item in world.claims() if item.plan.node_pool == "drifting"]
    fresh = world.release_image("2026-06-01T00:00:00Z")
    assert claim.known_instance.ami != fresh
    going = {item.instance_id for item in world.claims() if item.plan.node_pool in ("drifting", "short-lived")}
    ended_at: dict[str, float] = {}

    def over() -> bool:
        alive = {item.id for item in world.instances()}
        ended_at.update({name: time.time() for name in going - alive - ended_at.keys()})
        return going <= ended_at.keys()

    world.disrupt_until(over, "the first nodes have ended")
    world.await_running("drifting", 2)
    world.await_running("brief", 2)
    launched = [item for item in world.launched() if item.tags[tags.NODE_POOL] == "drifting"]
    assert [item.ami for item in launched] == [claim.known_instance.ami, fresh]
    assert world.joiner.joined_at[launched[1].id] < ended_at[claim.instance_id]
    ended = world.state.claim(CLUSTER, claim.name)
    assert ended is not None
    assert ended.failure == "Drifted"
    for name in ("drifting", "brief"):
        world.api.delete("deployments", name, "default")


def test_a_node_with_less_memory_than_planned_is_a_lesson(world: World) -> None:
    world.overhead["m5.large"] = 14.0
    world.apply(manifests.deployment("heavy", 1, manifests.on_pool("surprising"), cpu="500m", memory="6600Mi"))
    world.await_running("heavy", 1)
    (pod,) = world.running("heavy")
    labels = world.nodes()[pod["spec"]["nodeName"]]["metadata"]["labels"]
    assert labels["node.kubernetes.io/instance-type"] == "m5.xlarge"
    assert any("m5.large" in str(item) for item in world.capacity.all())
    tried = [claim.known_instance.type for claim in world.claims() if claim.plan.node_pool == "surprising"]
    assert tried.count("m5.large") == 1, tried


def test_a_cluster_shrinks_to_nothing_and_grows_again(world: World) -> None:
    for item in world.api.list("deployments").items:
        world.api.delete("deployments", item["metadata"]["name"], "default")
    world.api.delete("statefulsets", "db", "default")
    world.disrupt_until(lambda: not world.instances(), "no instance is left")
    wait_until(lambda: not world.nodes(), "no node is left", told=world.told)
    world.apply(manifests.deployment("again", 4, ""))
    world.await_running("again", 4)


def test_the_audit_function_hears_of_every_pod_that_the_watch_told_of(world: World) -> None:
    """And of more: pods that found a place before the watch had told, or while it had no connection."""
    stage = Stage()
    lines = world.plane.audit_log.read_text().splitlines()
    audit(
        read_delivery(audit_log.delivery(*lines, cluster=CLUSTER)),
        stage.settings.claim_rules,
        stage.context,
        RecentPods(),
    )
    heard = {uid for event in stage.bus.events for *_, uid in event.detail["pods"]}
    bodies = [json.loads(body) for body in world.sources["schedule"].bodies.values()]
    told = {uid for body in bodies if body.get("source") == "shiplap.watch" for *_, uid in body["detail"]["pods"]}
    assert len(told) > 20
    assert told <= heard


def test_the_functions_did_only_what_the_shipped_role_permits(world: World) -> None:
    """And nothing that it refused: every request of their service account was allowed."""
    user = "system:serviceaccount:shiplap:shiplap"
    asked = [event for event in audit_events(world.plane.audit_log) if event["user"]["username"] == user]
    assert {"list", "watch", "patch", "create"} <= {event["verb"] for event in asked}
    denied = [event for event in asked if (event.get("responseStatus") or {}).get("code") == 403]
    # An API server that has just started knows no role for a moment, and so refuses everybody.
    began, ended = world.restarted_at - _RESTART_S, world.restarted_at + _RESTART_S
    assert [
        item["requestURI"] for item in denied if not began < seconds(item["requestReceivedTimestamp"]) < ended
    ] == []
