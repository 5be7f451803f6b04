"""`shiplap plan` and `disrupt` with an install: what its functions would decide, and what is not seen."""

from __future__ import annotations

import io
import json
import time
import zipfile
from typing import Any

import msgspec
import pytest
from botocore.exceptions import ClientError

from shiplap.aws import session
from shiplap.aws.dynamodb.capacity_table import DynamoCapacity
from shiplap.aws.dynamodb.state_table import DynamoState
from shiplap.aws.policies.sleep_adapters import DynamoSleep
from shiplap.disruption.disruption_snapshot import DisruptionSettings
from shiplap.errors import AwsError
from shiplap.flows.planning.futile_launches import FREE
from shiplap.instances.catalog.type_catalog import Observation
from shiplap.kubernetes import labels
from shiplap.kubernetes.quantity import CPU
from shiplap.manifests.live.allowed_resources import AllowedResources
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap.policies.policy_settings import chosen
from shiplap.policies.sleep.sleep_settings import SleepSettings, WindowSettings
from shiplap.policies.sleep.sleep_state import SleepNotes, sleep_digest
from shiplap.ports import OfferingFailure, Refusals
from shiplap.scheduling.model.scheduling_plan import PlannedClaim
from shiplap.settings import ClusterSettings, Settings
from shiplap_cli.installs import find_install, installed
from shiplap_cli.main import run
from shiplap_cli.money import Money
from shiplap_cli.render.decision_documents import plan_document as document
from tests.builders.claims import changes, node_claim
from tests.builders.nodes import node_object
from tests.commands import Shiplap
from tests.integration.contracts.in_process_aws import REGION
from tests.integration.live_install import OUTPUTS, LiveInstall


def without_times(answer: dict[str, Any]) -> dict[str, Any]:
    written = json.loads(json.dumps(answer))
    return {key: written[key] for key in ("nodeClaims", "existingNodes", "unschedulable", "ignored", "cost")}


def join(live: LiveInstall, planned: PlannedClaim, **spec: Any) -> NodeClaim:
    """The node of the only claim, complete: it takes no pods by itself."""
    (claim,) = live.state.claims("blue")
    marks = {labels.NODE_POOL: "default", labels.NODE_CLAIM: planned.name, labels.INITIALIZED: "true"}
    machine = f"aws:///{planned.launch.zone}/{claim.known_instance.id}"
    node = node_object(planned.name, labels={**planned.labels, **marks}, providerID=machine, **spec)
    live.http.api.create("nodes", node)
    for state in (ClaimState.REGISTERED, ClaimState.INITIALIZED):
        claim = live.state.advance(claim, state, changed_at=time.time(), **changes(claim, node_name=planned.name))
    return claim


def test_it_is_what_the_schedule_function_would_decide(live: LiveInstall) -> None:
    """With its settings and manifests, also when what it remembers changes the answer."""
    snapshot, first = live.decided()
    assert without_times(live.says("plan", "--cluster", "blue")) == without_times(document(first, 0, Money(snapshot)))
    launch = first.node_claims[0].launch

    live.state.mark_unavailable(
        [OfferingFailure(launch.instance_type, launch.zone, launch.capacity_type, "capacity", "NoCapacity")],
        time.time(),
    )
    snapshot, second = live.decided()
    assert second.node_claims[0].launch.instance_type != launch.instance_type
    assert without_times(live.says("plan", "--stack", "Shiplap")) == without_times(document(second, 0, Money(snapshot)))

    kind = next(
        item for item in snapshot.catalogs[0].instance_types if item.name == second.node_claims[0].launch.instance_type
    )
    small = {**kind.allocatable, CPU: 500}
    live.capacity.observe(Observation(kind.ami, kind.name, kind.kubelet_hash, small, small, time.time(), "blue", "n"))
    snapshot, third = live.decided()
    assert kind.name not in {item.launch.instance_type for item in third.node_claims}
    assert without_times(live.says("plan", "--cluster", "blue")) == without_times(document(third, 0, Money(snapshot)))


def test_manifests_are_those_of_the_cluster_where_its_functions_read_them(live: LiveInstall) -> None:
    roles = AllowedResources(node_roles=tuple(item.spec.role for item in live.settings.manifests.node_classes))
    pool, node_class = json.loads((live.folder / "pools.json").read_text())["items"]
    foreign = {**node_class, "metadata": {"name": "foreign"}, "spec": {**node_class["spec"], "role": "of-another"}}
    for item in (pool, node_class):
        live.http.api.apply(item)
    live.settings = msgspec.structs.replace(
        live.settings, manifests=type(live.settings.manifests)(), live_manifests=True, allowed=roles
    )
    snapshot, decided = live.decided()
    assert decided.node_claims
    live.http.api.apply(foreign)  # is left out
    live.http.api.apply({**pool, "metadata": {"name": "wrong"}, "spec": {**pool["spec"], "weight": "heavy"}})
    assert without_times(live.says("plan", "--cluster", "blue")) == without_times(document(decided, 0, Money(snapshot)))


def test_claims_on_their_way_are_waited_for(live: LiveInstall) -> None:
    snapshot, first = live.decided()
    for planned in first.node_claims:
        live.in_flight(planned, snapshot)
    _, second = live.decided()
    assert second.node_claims == ()
    assert live.says("plan", "--cluster", "blue")["nodeClaims"] == []
    alone = live.says("plan", "--manifests", str(live.folder / "pools.json"), "--no-aws")
    assert len(alone["nodeClaims"]) == len(first.node_claims) > 0


def test_pods_that_nodes_were_launched_for_in_vain_wait(live: LiveInstall) -> None:
    _, first = live.decided()
    held = first.node_claims[0].pods[0]
    now = time.time()
    refusals = Refusals(("default-1", "default-2", "default-3"), now, FREE, now - 60)
    live.state.mark_refused("blue", held.uid, refusals)

    found = live.says("plan", "--cluster", "blue", code=1)

    assert {name for claim in found["nodeClaims"] for name in claim["pods"]}.isdisjoint({held.key})
    waits = {entry["pod"]: entry["message"] for entry in found["unschedulable"]}
    assert "it runs on none of them (default-1, default-2, default-3)" in waits[held.key]
    assert "none of them" not in str(live.says("plan", "--cluster", "blue", "--from-scratch"))
    explained = live.says(f"explain pod {held.key}", "--cluster", "blue", "--context", "me", code=1)["now"]
    assert (explained["state"], explained["message"]) == ("unschedulable", waits[held.key])


def test_pods_whose_node_is_there_wait_for_it(live: LiveInstall) -> None:
    """Others have just cordoned it; the functions see whether that lasts before they launch the next one."""
    snapshot, first = live.decided()
    planned = first.node_claims[0]
    live.in_flight(planned, snapshot)
    join(live, planned, unschedulable=True)
    (key, *_) = sorted(pod.key for pod in planned.pods)
    found = live.says("plan", "--cluster", "blue")
    assert key not in {name for claim in found["nodeClaims"] for name in claim["pods"]}
    assert {entry["pod"]: entry["message"] for entry in found["ignored"]}[key].startswith("a node that was launched")
    assert live.says(f"explain pod {key}", "--cluster", "blue", "--context", "me")["now"]["state"] == "ignored"


def test_nothing_is_launched_for_pods_of_nodes_whose_command_waits(live: LiveInstall) -> None:
    snapshot, first = live.decided()
    planned = first.node_claims[0]
    live.in_flight(planned, snapshot)
    claim = join(live, planned)
    for reference in planned.pods:
        live.http.api.bind(reference.name, planned.name, reference.namespace)
    live.state.advance(claim, ClaimState.DISRUPTING, **changes(claim))
    moving = {pod.key for pod in planned.pods}
    _, decided = live.decided()
    assert moving & {pod.key for item in decided.node_claims for pod in item.pods}
    found = live.says("plan", "--cluster", "blue")
    assert moving.isdisjoint(name for item in found["nodeClaims"] for name in item["pods"])


def test_a_context_that_may_be_of_another_cluster_is_said(live: LiveInstall) -> None:
    live.settings = msgspec.structs.replace(live.settings, endpoint="https://elsewhere.invalid/")
    (note,) = live.says("plan", "--cluster", "blue")["notes"]
    assert note.startswith("context me asks http://127.0.0.1")
    assert "https://elsewhere.invalid" in note


def test_options_count_over_the_settings_of_the_install(live: LiveInstall) -> None:
    found = live.says("plan", "--cluster", "blue", "--improve-seconds", "0", "--prefix-delegation", "on")
    assert found["nodeClaims"]
    live.settings = msgspec.structs.replace(live.settings, claim_rules=())
    (live.folder / "rules.yaml").write_text("claimRules: [{namespaces: [other]}]\n")
    rules = str(live.folder / "rules.yaml")
    assert live.says("plan", "--cluster", "blue", "--claim-rules", rules)["nodeClaims"] == []


def test_what_may_not_be_read_is_named_and_the_rest_counts(live: LiveInstall, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> Any:
        answer = {"Error": {"Code": "AccessDeniedException", "Message": "not authorized to perform: dynamodb:Query"}}
        error = ClientError(answer, "Query")  # type: ignore[arg-type]  # an answer has more than is looked at
        raise AwsError(f"could not read table state: {error}") from error

    monkeypatch.setattr(DynamoState, "read", refused)
    found = live.says("plan", "--cluster", "blue")
    (note,) = found["notes"]
    assert note.startswith("not seen: table state, so only NodeClaims and Nodes of the cluster")
    assert "dynamodb:Query" in note
    assert "docs/explanation/security.md" in note
    assert found["nodeClaims"]

    monkeypatch.setattr(DynamoCapacity, "learned", refused)
    monkeypatch.setattr(installed, "settings_of", refused)
    given = ("--manifests", str(live.folder / "pools.json"), "--region", REGION)
    notes = live.says("plan", "--cluster", "blue", *given)["notes"]
    assert [note.split(",")[0] for note in notes] == [
        "not seen: the settings of the install",
        "not seen: table state",
        "not seen: learned capacity",
    ]

    monkeypatch.setattr(find_install, "_outputs", refused)
    (note,) = live.says("plan", "--cluster", "blue", *given, "--no-aws")["notes"][1:]
    assert note.startswith("not seen: the install, so claims on their way")


def test_an_install_or_cluster_that_is_not_there(live: LiveInstall, shiplap: Shiplap) -> None:
    config = str(live.folder / "config")
    assert "the install serves blue, not green" in shiplap.error("plan", "--kubeconfig", config, "--cluster", "green")
    assert "there is no stack 'Other'" in shiplap.error("plan", "--kubeconfig", config, "--stack", "Other")


def test_what_is_disrupted_is_decided_on_the_claims_of_the_install(live: LiveInstall) -> None:
    """An empty node of a claim; without the install, its labels alone would tell whose it is."""
    api = live.http.api
    name, born = "ip-1", "2026-01-01T00:00:00Z"
    marks = {labels.NODE_POOL: "default", labels.INITIALIZED: "true", labels.INSTANCE_TYPE: "m5.large"}
    marks |= {labels.ZONE: f"{REGION}b", labels.CAPACITY_TYPE: "on-demand"}
    node = {
        "metadata": {"name": name, "labels": marks, "creationTimestamp": born},
        "spec": {"providerID": f"aws:///{REGION}b/i-1"},
        "status": {"allocatable": {"cpu": "2", "memory": "7Gi", "pods": "29"}},
    }
    api.create("nodes", node)
    assert live.says("disrupt", "--cluster", "blue", code=1)["commands"] == []
    claim = node_claim(cluster="blue", name="default-1", node_pool="default", node_class="default", created_at=1.0)
    live.state.commit("blue", 0, [claim])
    for state in (ClaimState.LAUNCHING, ClaimState.LAUNCHED, ClaimState.REGISTERED, ClaimState.INITIALIZED):
        facts: dict[str, Any] = {"instance_id": "i-1", "node_name": name, "instance_type": "m5.large", "hourly": 0.1}
        claim = live.state.advance(claim, state, changed_at=1.0, **changes(claim, **facts))
    found = live.says("disrupt", "--cluster", "blue", code=1)
    assert [entry["node"] for entry in found["blocked"]] == [name]


def test_the_settings_are_read_from_the_layer_in_service(monkeypatch: pytest.MonkeyPatch) -> None:
    written = Settings((ClusterSettings(name="blue", region=REGION),))
    contents = {
        "library": {"python/shiplap/x.py": b""},
        "settings": {installed._DOCUMENT: msgspec.json.encode(written)},
    }
    asked = []

    class Lambda:
        def get_function_configuration(self, **request: str) -> Any:
            asked.append(request)
            return {"Layers": [{"Arn": "library", "CodeSize": 10}, {"Arn": "settings", "CodeSize": 20}]}

        def get_layer_version_by_arn(self, Arn: str) -> Any:  # noqa: N803 - botocore's name
            return {"Content": {"Location": Arn}}

    def archive(version: Any) -> bytes:
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w") as opened:
            for name, content in contents[version["Content"]["Location"]].items():
                opened.writestr(name, content)
        return made.getvalue()

    monkeypatch.setattr(session.session(), "create_client", lambda *_, **__: Lambda())
    monkeypatch.setattr(installed, "_content", archive)
    assert installed.settings_of(find_install.DeployedInstall("b", OUTPUTS)) == written
    assert asked == [{"FunctionName": "schedule", "Qualifier": "live"}]
    contents["settings"] = {installed._DOCUMENT: b'{"clusters": 7}'}
    with pytest.raises(AwsError, match="of a version that this one cannot read"):
        installed.settings_of(find_install.DeployedInstall("b", OUTPUTS))
    del contents["settings"][installed._DOCUMENT]
    with pytest.raises(AwsError, match="no layer with settings"):
        installed.settings_of(find_install.DeployedInstall("b", OUTPUTS))


def test_what_sleeps_waits_as_the_functions_let_it_wait_until_somebody_wakes_it(
    live: LiveInstall, capsys: pytest.CaptureFixture[str]
) -> None:
    hours = [time.strftime("%H:%M", time.gmtime(time.time() + 3600 * shift)) for shift in (-2, 3)]
    sleep = SleepSettings(("default",), 5, (WindowSettings(f"daily {hours[0]}-{hours[1]} UTC"),))
    live.settings = msgspec.structs.replace(live.settings, policies=chosen(sleep))
    assert live.says("plan", "--cluster", "blue")["nodeClaims"]
    assert live.says("plan", "--cluster", "blue")["sleep"]["scopes"][0]["rehearsal"] is True

    notes = SleepNotes(sleep_digest(sleep, live.settings.manifests.node_pools), {"0": 1})
    DynamoSleep(session.client("dynamodb"), "state").save("blue", notes, time.time())
    snapshot, decided = live.decided()
    assert decided.node_claims == ()
    assert {entry.message.partition(" until ")[0] for entry in decided.unschedulable} == {
        "sleeps: NodePool default sleeps"
    }
    answer = live.says("plan", "--cluster", "blue")
    assert without_times(answer) == without_times(document(decided, 0, Money(snapshot)))
    assert (answer["sleep"]["nodesLeft"], answer["sleep"]["armed"]) == (5, ["default"])
    first = answer["unschedulable"][0]["pod"]
    assert "asleep" in str(live.says("explain pod", first, "--cluster", "blue"))

    assert run(["status", "wake", "blue"]) == 0
    assert "blue is awake" in capsys.readouterr().out
    assert live.decided()[1].node_claims != ()
    assert live.says("plan", "--cluster", "blue")["nodeClaims"]
    assert run(["status", "wake", "blue", "--until", "0s"]) == 0
    assert live.decided()[1].node_claims == ()


def test_plan_and_disrupt_name_the_nodes_that_would_leave_in_a_rehearsal(
    live: LiveInstall, capsys: pytest.CaptureFixture[str]
) -> None:
    snapshot, decided = live.decided()
    planned = decided.node_claims[0]
    live.in_flight(planned, snapshot)
    join(live, planned)
    api, owner = live.http.api, {"kind": "ReplicaSet", "name": "web", "uid": "1", "controller": True}
    for name, namespace in [
        (item["metadata"]["name"], item["metadata"]["namespace"]) for item in api.list("pods").items
    ]:
        api.bind(name, planned.name, namespace)
        changed = {"metadata": {"ownerReferences": [owner]}, "status": {"phase": "Running"}}
        api.patch("pods", name, changed, namespace=namespace)

    def said(command: str) -> str:
        run([command, "--kubeconfig", str(live.folder / "config"), "--cluster", "blue"])
        return capsys.readouterr().out

    assert "rehearsed" not in live.says("disrupt", "--cluster", "blue", code=1)
    assert "would leave" not in said("plan") + said("disrupt")

    hours = [time.strftime("%H:%M", time.gmtime(time.time() + 3600 * shift)) for shift in (-2, 3)]
    sleep = SleepSettings(("default",), 5, (WindowSettings(f"daily {hours[0]}-{hours[1]} UTC"),))
    live.settings = msgspec.structs.replace(live.settings, policies=chosen(sleep))

    assert live.says("plan", "--cluster", "blue")["sleep"]["rehearsed"] == [planned.name]
    assert live.says("disrupt", "--cluster", "blue", code=1)["rehearsed"] == [planned.name]
    for command in ("plan", "disrupt"):
        assert f"sleep: rehearsal, these nodes would leave: {planned.name}\n" in said(command)

    live.settings = msgspec.structs.replace(live.settings, disruption=DisruptionSettings(enabled=False))
    assert "sleep" not in live.says("plan", "--cluster", "blue")
