"""What a claim keeps of its launch, and what is no drift because too little is known: 65 to 69 of the AWS side."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from shiplap.api.template_hash import HASH_VERSION, POOL_HASH, POOL_HASH_VERSION, pool_hash
from shiplap.kubernetes import labels
from tests.conformance.catalogues import fake_type
from tests.conformance.disruptions import Standing, disrupted, pool, standing
from tests.integration.flows.stage import Stage
from tests.integration.flows.stage import pool as simple_pool

LARGE = replace(fake_type("large", cpu="16", memory="32Gi", pods="50", price=4.0), ami="ami-new")
QUIET = pool(after="Never")


def large(**changes: Any) -> Standing:
    return standing("a", LARGE.name, **{"ami": "ami-new", **changes})


def test_65_a_launched_claim_says_what_it_was_launched_as() -> None:
    wanted = simple_pool("any", ("m6i",))
    stage = Stage((wanted,))
    stage.add_pods(1)
    stage.schedule()
    (claim,) = stage.claims()
    assert claim.ami
    assert claim.labels[labels.INSTANCE_TYPE] == claim.instance_type
    assert claim.labels[labels.ZONE] == claim.zone
    assert claim.annotations == {POOL_HASH: pool_hash(wanted), POOL_HASH_VERSION: HASH_VERSION}


@pytest.mark.parametrize(
    ("node", "types"),
    [
        (large(), []),
        (large(ami=""), [LARGE]),
        (large(), [replace(LARGE, ami="")]),
    ],
    ids=["its node class cannot be answered", "its AMI is unknown", "the AMI of new nodes is unknown"],
)
def test_67_what_is_not_known_is_no_drift(node: Standing, types: list[Any]) -> None:
    assert disrupted(node, pools=[QUIET], types=types).removed == set()


@pytest.mark.parametrize(
    "born_with",
    [{}, {POOL_HASH: "1"}, {POOL_HASH_VERSION: HASH_VERSION}, {POOL_HASH: "1", POOL_HASH_VERSION: "of another day"}],
    ids=["none", "no version", "no hash", "another version"],
)
def test_69_a_hash_that_is_missing_or_of_another_version_is_no_drift(born_with: dict[str, str]) -> None:
    assert disrupted(large(claim_annotations=born_with), pools=[QUIET], types=[LARGE]).removed == set()
