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
from shiplap.errors import AwsError
from shiplap.flows.planning.futile_launches import FREE
from shiplap.instances.catalog.type_catalog import Observation
from shiplap.kubernetes import labels
from shiplap.kubernetes.quantity import CPU
from shiplap.manifests.live.allowed_resources import AllowedResources
from shiplap.manifests.nodeclaim import ClaimState
from shiplap.ports import OfferingFailure, Refusals
from shiplap.settings import ClusterSettings, Settings
from shiplap_cli.installs import find_install, installed
from shiplap_cli.money import Money
from shiplap_cli.render.decision_documents import plan_document as document
from tests.builders.claims import changes, node_claim
from tests.commands import Shiplap
from tests.integration.contracts.in_process_aws import REGION
from tests.integration.live_install import OUTPUTS, LiveInstall, without_times
from tests.integration.live_pods import pod


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
    of_foreign = msgspec.json.decode(msgspec.json.encode(pool))
    of_foreign["metadata"]["name"] = "without-class"
    of_foreign["spec"]["template"]["spec"]["nodeClassRef"]["name"] = "foreign"
    live.http.api.apply(of_foreign)  # launches nothing, and keeps no other pool from it
    found = without_times(live.says("plan", "--cluster", "blue"))
    snapshot, decided = live.decided()
    assert found == without_times(document(decided, 0, Money(snapshot)))


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
    live.join(planned, unschedulable=True)
    (key, *_) = sorted(pod.key for pod in planned.pods)
    found = live.says("plan", "--cluster", "blue")
    assert key not in {name for claim in found["nodeClaims"] for name in claim["pods"]}
    assert {entry["pod"]: entry["message"] for entry in found["ignored"]}[key].startswith("a node that was launched")
    assert live.says(f"explain pod {key}", "--cluster", "blue", "--context", "me")["now"]["state"] == "ignored"


def test_a_pod_is_told_whether_its_node_was_launched_for_it(live: LiveInstall) -> None:
    snapshot, first = live.decided()
    planned = first.node_claims[0]
    live.in_flight(planned, snapshot)
    live.join(planned)
    (own, *_) = sorted(planned.pods, key=lambda each: each.key)
    live.http.api.bind(own.name, planned.name, own.namespace)
    live.http.api.create("pods", pod("later", nodeName=planned.name), "web")
    told = {}
    for key in (own.key, "web/later"):
        told[key] = live.says(f"explain pod {key}", "--cluster", "blue", "--context", "me")["now"]["present"]
    assert told[own.key]["claim"] == planned.name
    assert told[own.key]["origin"] == f"which was launched for it as claim {planned.name}"
    assert (told["web/later"]["claim"], told["web/later"]["node"]) == ("", planned.name)
    assert told["web/later"]["origin"] == "which was there: no node was launched for it"
    assert any(met.startswith("cpu 1 of ") for met in told["web/later"]["meets"])


def test_nothing_is_launched_for_pods_of_nodes_whose_command_waits(live: LiveInstall) -> None:
    snapshot, first = live.decided()
    planned = first.node_claims[0]
    live.in_flight(planned, snapshot)
    claim = live.join(planned)
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
