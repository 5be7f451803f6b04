"""`shiplap plan` and `disrupt` with an install in which something sleeps."""

from __future__ import annotations

import time

import msgspec
import pytest

from shiplap.aws import session
from shiplap.aws.policies.sleep_adapters import DynamoSleep
from shiplap.disruption.disruption_snapshot import DisruptionSettings
from shiplap.policies.policy_settings import chosen
from shiplap.policies.sleep.sleep_settings import SleepSettings, WindowSettings
from shiplap.policies.sleep.sleep_state import SleepNotes, sleep_digest
from shiplap_cli.main import run
from shiplap_cli.money import Money
from shiplap_cli.render.decision_documents import plan_document as document
from tests.integration.live_install import LiveInstall, without_times


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
    live.join(planned)
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
