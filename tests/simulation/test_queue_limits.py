"""The simulated SQS, Lambda and DynamoDB have the limits of the real ones."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from shiplap.errors import StoreError
from shiplap.manifests.nodeclaim import ClaimState
from shiplap_lab.fakes.signals import FakeClock
from shiplap_lab.faults.fault import Fault
from shiplap_lab.faults.messages.recursion import MOST_TURNS
from shiplap_lab.virtual_time.checked_fakes import CheckedState
from shiplap_lab.virtual_time.event_loop import EventLoop
from shiplap_lab.virtual_time.fault_injector import FaultInjector
from shiplap_lab.virtual_time.queues import MOST_BYTES, DeliverySettings, SimulatedQueue
from shiplap_lab.virtual_time.trace import Trace
from tests.builders.claims import node_claim


class Line:
    """A queue whose messages are all taken; `batches` are their bodies, `turns` the chains that they continue."""

    def __init__(self, batch: int = 1000) -> None:
        self.loop = EventLoop(FakeClock())
        trace = Trace(self.loop.now, self.loop.now())
        self.faults = FaultInjector(self.loop, trace, 1)
        self.batches: list[list[str]] = []
        self.turns: list[int] = []
        settings = DeliverySettings(batch, 0.0, 60.0, 1)
        self.queue = SimulatedQueue("line", self.loop, self.faults, trace, self._deliver, settings)

    def _deliver(self, due: list[tuple[str, str]]) -> set[str]:
        self.batches.append([body for _, body in due])
        self.turns.append(self.queue.turns_of(name for name, _ in due))
        return set()

    def run(self) -> None:
        self.loop.run_until(self.loop.now() + 600)


def test_a_message_may_be_as_large_as_is_taken_and_no_larger() -> None:
    line = Line()
    line.queue.send("x" * MOST_BYTES)
    with pytest.raises(StoreError, match="exceeds"):
        line.queue.send("ä" * (MOST_BYTES // 2 + 1))
    line.run()
    assert [len(batch) for batch in line.batches] == [1]


def test_an_invocation_gets_no_more_messages_than_its_payload_holds() -> None:
    line = Line()
    for _ in range(30):
        line.queue.send("x" * MOST_BYTES)
    line.run()
    assert [len(batch) for batch in line.batches] == [24, 6]


@pytest.mark.parametrize("recursion", [False, True])
def test_a_chain_of_too_many_messages_is_cut_only_where_recursive_loops_are_not_allowed(*, recursion: bool) -> None:
    line = Line(batch=1)
    if recursion:
        line.faults.active[0] = Fault("recursion")
    for turns in (0, MOST_TURNS, MOST_TURNS + 1):
        line.queue.send("x", turns=turns)
    line.run()
    assert line.turns == ([0, MOST_TURNS] if recursion else [0, MOST_TURNS, MOST_TURNS + 1])
    assert line.faults.effects["recursion"] == int(recursion)


def test_a_batch_continues_its_longest_chain() -> None:
    line = Line()
    for turns in (3, 7, 1):
        line.queue.send("x", turns=turns)
    line.run()
    assert line.turns == [7]


def test_an_item_that_dynamodb_would_not_take_is_not_stored() -> None:
    line = Line()
    state = CheckedState(line.faults, line.loop.clock)
    claim = node_claim(cluster="demo", name="a", state=ClaimState.PLANNED)
    small = replace(claim, failure="no room")
    state.commit("demo", 0, [small])
    large = replace(claim, name="b", failure="".join(chr(0x4E00 + number * 7919 % 20000) for number in range(400_000)))
    with pytest.raises(StoreError, match="Item size"):
        state.commit("demo", 1, [large])
    assert [item.name for item in state.claims("demo")] == ["a"]
