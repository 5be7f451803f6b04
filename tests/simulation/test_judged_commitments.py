"""The judge of commitments: claims that count on Reserved Instances take no more units than there are."""

from __future__ import annotations

import msgspec
import pytest

from shiplap_lab.judge.promises import Promise
from shiplap_lab.judge.raw_json import ClaimItem
from tests.simulation.test_promises import Play

WHOLE = "commitments pay $0.1000 of $0.1000 an hour"


@pytest.mark.parametrize(
    ("kind", "reason", "units"),
    [
        ("m6i.large", WHOLE, 4),
        ("m6i.2xlarge", WHOLE, 16),
        ("m6i.xlarge", "commitments pay $0.0500 of $0.1000 an hour", 4),
        ("m6i.large", "static pool", 0),
    ],
)
def test_a_claim_says_what_it_counts_on(kind: str, reason: str, units: float) -> None:
    assert ClaimItem("demo", "a", instance_types=(kind,), reasons=("first", reason)).reserved_units == units
    assert ClaimItem("demo", "a", instance_type=kind, reasons=(reason,)).reserved_units == units


def test_units_that_two_claims_count_on_break_the_promise_until_one_has_ended() -> None:
    play = Play()
    play.judge.reserved_units = 4
    for name, state in (("a", "Planned"), ("a", "Failed"), ("b", "Planned")):
        item = {"cluster": "demo", "name": name, "instance_types": ["m6i.large"], "reasons": [WHOLE], "state": state}
        play.judge.claim_written("shiplap", msgspec.json.encode(item).decode())
    assert Promise.COMMITMENTS not in play.told
    play.judge.claim_written("shiplap", msgspec.json.encode(item | {"name": "c"}).decode())
    assert Promise.COMMITMENTS in play.told
