"""The real DynamoDB adapter under the flows: the same trace as on the fake, and promises that faults below it keep."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.exceptions import ConnectionClosedError
from msgspec.structs import replace

from shiplap.aws.session import config
from shiplap_lab.scenarios.scenario import load
from shiplap_lab.simulation.campaign import run_seed
from tests.dynamodb_local.faulty_transport import Sender
from tests.dynamodb_local.played import play_on_table, unpaused
from tests.dynamodb_local.server import DynamoDbLocal, DynamoDbMissing

SCENARIO = "unheard"
SEEDS_OF_MIXED = range(880_011, 880_016)
SHARE = 0.04
SHARE_OF_HARD_TIMES = 0.2


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DynamoDbLocal]:
    try:
        with DynamoDbLocal(tmp_path_factory.mktemp("dynamodb")) as running:
            yield running
    except DynamoDbMissing as missing:
        pytest.skip(str(missing))


@pytest.mark.parametrize("seed", [0])
def test_a_seed_has_the_same_trace_as_on_the_fake(local: DynamoDbLocal, seed: int) -> None:
    play = load(SCENARIO)
    played = play_on_table(local, play, seed)
    assert played.outcome.violations == ()
    assert played.outcome.lines == run_seed(play, seed).lines
    assert not played.effects


class _RefusingTwice:
    """Sends requests, but for the first two."""

    def __init__(self, sender: Sender) -> None:
        self._sender, self.sent = sender, 0

    def send(self, request: AWSPreparedRequest) -> AWSResponse:
        self.sent += 1
        if self.sent > 2:
            return self._sender.send(request)
        raise ConnectionClosedError(endpoint_url=request.url)


def test_botocore_repeats_below_the_adapter_as_in_production(local: DynamoDbLocal) -> None:
    with local.client() as client, unpaused():
        sender = client._endpoint.http_session
        client._endpoint.http_session = refusing = _RefusingTwice(sender)
        try:
            assert client.list_tables()["TableNames"] == []
        finally:
            client._endpoint.http_session = sender
        assert refusing.sent == 3
        assert client.meta.config.retries == config().retries


@pytest.mark.e2e
@pytest.mark.parametrize("seed", SEEDS_OF_MIXED)
def test_seeds_of_mixed_have_the_same_trace_as_on_the_fake(local: DynamoDbLocal, seed: int) -> None:
    play = load("mixed")
    played = play_on_table(local, play, seed)
    assert played.outcome.violations == ()
    assert played.outcome.lines == run_seed(play, seed).lines


@pytest.mark.e2e
def test_promises_hold_while_a_part_of_a_batch_stays_unwritten(local: DynamoDbLocal) -> None:
    """The only batches that flows write say which pods have missed: those of a node that has less than planned.

    A run writes few of them, so seeds are played until one has met the fault.
    """
    play = load("unkind")
    uneven = replace(play, scenario=replace(play.scenario, chaos_kinds=("uneven",)))
    for seed in range(7005, 7035):
        played = play_on_table(local, uneven, seed, share=SHARE_OF_HARD_TIMES)
        assert played.outcome.violations == ()
        if played.effects["unprocessed items"]:
            return
    pytest.fail("no batch was written in part in any of these runs")


def test_promises_hold_while_faults_disturb_the_table(local: DynamoDbLocal) -> None:
    played = play_on_table(local, load(SCENARIO), 0, share=SHARE)
    assert played.outcome.violations == ()
    assert {"throttled", "not sent"} <= played.effects.keys()
