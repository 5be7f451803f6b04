"""Nothing is disrupted that was not proposed twice."""

from __future__ import annotations

from shiplap.disruption.commands import Method, Proposal, Reason
from shiplap.disruption.memory import SECOND_LOOK_S, STALE_S, Proposed, confirmed

MOVE = Proposal(Reason.UNDERUTILIZED, Method.CONSOLIDATION, ("a", "b"))
EMPTY = Proposal(Reason.EMPTY, Method.EMPTINESS, ("x", "y"))


def test_what_is_proposed_first_waits() -> None:
    ready, waiting = confirmed((), (MOVE,), 100.0)
    assert ready == ()
    assert waiting == (Proposed(("a", "b"), Reason.UNDERUTILIZED, 100.0, 100.0),)


def test_what_is_proposed_again_after_a_while_is_ready() -> None:
    _, known = confirmed((), (MOVE,), 100.0)
    early, still = confirmed(known, (MOVE,), 100.0 + SECOND_LOOK_S - 1)
    assert early == ()
    assert still[0].since == 100.0
    assert confirmed(still, (MOVE,), 100.0 + SECOND_LOOK_S) == ((MOVE,), ())


def test_other_nodes_or_another_reason_are_another_proposal() -> None:
    _, known = confirmed((), (MOVE,), 100.0)
    others = (
        Proposal(Reason.UNDERUTILIZED, Method.CONSOLIDATION, ("a",)),
        Proposal(Reason.DRIFTED, Method.DRIFT, ("a", "b")),
    )
    assert confirmed(known, others, 200.0)[0] == ()


def test_what_is_not_proposed_again_is_forgotten() -> None:
    _, known = confirmed((), (MOVE,), 100.0)
    assert confirmed(known, (), 160.0) == ((), ())


def test_a_look_long_ago_counts_for_nothing() -> None:
    _, known = confirmed((), (MOVE,), 100.0)
    assert confirmed(known, (MOVE,), 100.0 + STALE_S)[0] == ()


def test_of_empty_nodes_those_go_that_were_empty_before() -> None:
    _, known = confirmed((), (Proposal(Reason.EMPTY, Method.EMPTINESS, ("w", "x")),), 100.0)
    ready, waiting = confirmed(known, (EMPTY,), 160.0)
    assert [proposal.nodes for proposal in ready] == [("x",)]
    assert waiting == (Proposed(("y",), Reason.EMPTY, 160.0, 160.0),)
