"""Tests the messages that Shiplap sends and reads: bus events, timers, dead letters, messages of other senders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.formats.doors import message, messages_sent, published
from tests.formats.golden import Golden

SEEDS: dict[str, Any] = json.loads((Path(__file__).parent / "given" / "stored.json").read_text())
DETAIL = {"cluster": "blue", "id": "1", "time": "2026-01-31T12:00:00.250Z"}
NODE = DETAIL | {"node": "a", "providerID": "aws:///z/i-1"}
ACCEPTED: dict[str, dict[str, Any]] = {
    "sweep": {"kind": "sweep", "cluster": "blue", "time": "2026-01-31T12:00:00Z"},
    "sweep of all": {"kind": "sweep"},
    "timer": {"kind": "timer", "cluster": "blue", "claim": "general-a", "step": "join"},
    "timer without a kind": {"cluster": "blue", "claim": "general-a", "step": "drain"},
    "pods": {"detail-type": "PodPending", "detail": DETAIL | {"pods": [["web", "one", "uid"]], "reason": "x"}},
    "turn": {"detail-type": "PodPending", "detail": DETAIL | {"reason": "TurnMissed"}},
    "joined": {"detail-type": "NodeJoined", "id": "e", "time": "2026-01-31T12:00:00Z", "detail": NODE},
    "ready": {"detail-type": "NodeReady", "detail": NODE},
}


def test_events_that_are_published(golden: Golden) -> None:
    (claim,) = (claim for claim in SEEDS["claims"] if claim.get("state") == "Initialized")
    entries = [entry | {"Detail": json.loads(entry["Detail"])} for entry in published(claim)]
    golden.holds("events", entries)


def test_messages_that_are_sent(golden: Golden) -> None:
    golden.holds("messages-sent", messages_sent())


def test_messages_that_are_understood(golden: Golden) -> None:
    golden.holds("messages-understood", {name: message(json.dumps(body)) for name, body in ACCEPTED.items()})
