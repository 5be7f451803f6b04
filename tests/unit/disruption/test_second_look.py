"""Nothing is disrupted that was not proposed twice."""

from __future__ import annotations

from shiplap.disruption.commands import DisruptionProposal, Method, Reason
from shiplap.disruption.decision_memory import SECOND_LOOK_S, STALE_S, RememberedProposal, confirmed

MOVE = DisruptionProposal(Reason.UNDERUTILIZED, Method.CONSOLIDATION, ("a", "b"))
EMPTY = DisruptionProposal(Reason.EMPTY, Method.EMPTINESS, ("x", "y"))


def test_what_is_proposed_first_waits() -> None:
    ready, waiting = confirmed((), (MOVE,), 100.0)
    assert ready == ()
    assert waiting == (RememberedProposal(("a", "b"), Reason.UNDERUTILIZED, 100.0, 100.0),)


def test_what_is_proposed_again_after_a_while_is_ready() -> None:
    _, known = confirmed((), (MOVE,), 100.0)
    early, still = confirmed(known, (MOVE,), 100.0 + SECOND_LOOK_S - 1)
    assert early == ()
    assert still[0].since == 100.0
    assert confirmed(still, (MOVE,), 100.0 + SECOND_LOOK_S) == ((MOVE,), ())


def test_another_reason_is_another_proposal() -> None:
    _, known = confirmed((), (MOVE,), 100.0)
    assert confirmed(known, (DisruptionProposal(Reason.DRIFTED, Method.DRIFT, ("a", "b")),), 200.0)[0] == ()


def test_nodes_that_are_to_go_again_may_be_grouped_otherwise() -> None:
    """In a cluster whose pods come and go the best set is another one at every look."""
    _, known = confirmed((), (MOVE,), 100.0)
    alone = DisruptionProposal(Reason.UNDERUTILIZED, Method.CONSOLIDATION, ("a",))
    wider = DisruptionProposal(Reason.UNDERUTILIZED, Method.CONSOLIDATION, ("b", "c"))
    ready, waiting = confirmed(known, (alone, wider), 160.0)
    assert ready == (alone,)
    assert waiting == (
        RememberedProposal(("b",), Reason.UNDERUTILIZED, 100.0, 160.0),
        RememberedProposal(("c",), Reason.UNDERUTILIZED, 160.0, 160.0),
    )
    assert confirmed(waiting, (wider,), 220.0) == ((wider,), ())


def test_what_is_not_proposed_again_is_forgotten() -> None:
    _, known = confirmed((), (MOVE,), 100.0)
    assert confirmed(known, (), 160.0) == ((), ())


def test_a_look_long_ago_counts_for_nothing() -> None:
    _, known = confirmed((), (MOVE,), 100.0)
    assert confirmed(known, (MOVE,), 100.0 + STALE_S)[0] == ()


def test_of_empty_nodes_those_go_that_were_empty_before() -> None:
    _, known = confirmed((), (DisruptionProposal(Reason.EMPTY, Method.EMPTINESS, ("w", "x")),), 100.0)
    ready, waiting = confirmed(known, (EMPTY,), 160.0)
    assert [proposal.nodes for proposal in ready] == [("x",)]
    assert waiting == (RememberedProposal(("y",), Reason.EMPTY, 160.0, 160.0),)


def test_of_several_earlier_looks_the_first_counts_for_its_reason() -> None:
    looks = [
        RememberedProposal(("a",), Reason.UNDERUTILIZED, 150.0, 158.0),
        RememberedProposal(("a",), Reason.UNDERUTILIZED, 100.0, 158.0),
        RememberedProposal(("a",), Reason.UNDERUTILIZED, 155.0, 158.0),
        RememberedProposal(("a",), Reason.DRIFTED, 20.0, 158.0),
    ]
    alone = DisruptionProposal(Reason.UNDERUTILIZED, Method.CONSOLIDATION, ("a",))
    for order in (looks, looks[::-1]):
        _, (waiting,) = confirmed(order, (alone,), 100.0 + SECOND_LOOK_S - 1)
        assert waiting.since == 100.0
        assert confirmed(order, (alone,), 100.0 + SECOND_LOOK_S)[0] == (alone,)
