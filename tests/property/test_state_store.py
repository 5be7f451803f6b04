"""FakeState against a naive model of what is promised, in random sequences; deciders against each other."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from shiplap.errors import ConditionFailed, EpochMoved
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap.ports import MISSED_FOR_S, OfferingFailure
from shiplap_lab.fakes.state import FakeState
from tests.builders.claims import changes, node_claim, with_fields
from tests.thoroughness import draws

PROFILE = settings(derandomize=True, deadline=None, max_examples=draws(60), stateful_step_count=40)
CLUSTERS = st.sampled_from(["blue", "green"])
NAMES = st.sampled_from(["a", "b", "c", "d"])
TYPES = st.sampled_from(["c5.large", "m5.large"])
NOT_READ = ("Initialized", "Disrupting", "Gone", "Failed")
WAITS = [180, 360, 720, 1440, 2880, 3600]


class StoreMachine(RuleBasedStateMachine):
    """The model holds plain dictionaries; every rule does a thing to both and compares the answers."""

    def __init__(self) -> None:
        super().__init__()
        self.store = FakeState()
        self.now = 1_000_000.0
        self.epochs = {"blue": 0, "green": 0}
        self.claims: dict[tuple[str, str], NodeClaim] = {}
        self.stale: list[NodeClaim] = []
        self.offerings: dict[str, tuple[int, float]] = {}
        self.missed: dict[tuple[str, str], float] = {}

    @rule(cluster=CLUSTERS, names=st.lists(NAMES, max_size=3), behind=st.sampled_from([0, 0, 0, 1, -1]))
    def commit(self, cluster: str, names: list[str], behind: int) -> None:
        claims = [
            node_claim(cluster=cluster, name=name, node_pool="p", node_class="c", created_at=self.now) for name in names
        ]
        epoch = self.epochs[cluster] - behind
        if len(set(names)) < len(names):
            expected: type[Exception] | None = ConditionFailed
        elif not names:
            expected = None
        elif behind:
            expected = EpochMoved
        else:
            expected = ConditionFailed if any((cluster, name) in self.claims for name in names) else None
        if expected:
            with pytest.raises(expected):
                self.store.commit(cluster, epoch, claims)
            return
        assert self.store.commit(cluster, epoch, claims) == epoch + bool(names)
        if names:
            self.epochs[cluster] += 1
            self.claims.update({(cluster, item.name): item for item in claims})

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), to=st.sampled_from(list(ClaimState)))
    def advance(self, data: st.DataObject, to: ClaimState) -> None:
        key = data.draw(st.sampled_from(sorted(self.claims)))
        before = self.claims[key]
        instance = before.instance_id or f"i-{'-'.join(key)}" * (to is ClaimState.LAUNCHED)
        try:
            after = self.store.advance(before, to, **changes(before, changed_at=self.now, instance_id=instance))
        except ConditionFailed:
            assert self.store.claim(*key) == before
            return
        assert after == with_fields(
            before, state=to, changed_at=self.now, instance_id=instance, version=before.version + 1
        )
        self.stale.append(before)
        self.claims[key] = after

    @precondition(lambda self: self.stale)
    @rule(data=st.data(), to=st.sampled_from(list(ClaimState)))
    def advance_what_was_read_earlier(self, data: st.DataObject, to: ClaimState) -> None:
        with pytest.raises(ConditionFailed):
            self.store.advance(data.draw(st.sampled_from(self.stale)), to)

    @rule(instance_type=TYPES)
    def mark_unavailable(self, instance_type: str) -> None:
        failures, until = self.offerings.get(instance_type, (0, 0.0))
        if self.now >= until:
            again = failures and self.now <= until + WAITS[min(failures, 6) - 1]
            failures = failures + 1 if again else 1
            until = self.now + WAITS[min(failures, 6) - 1]
            self.offerings[instance_type] = failures, until
        marked = self.store.mark_unavailable([OfferingFailure(instance_type, "a", "spot", "ICE")], self.now)[0]
        assert (marked.failures, marked.until) == (failures, until)

    @rule(cluster=CLUSTERS, uids=st.lists(st.sampled_from(["u1", "u2", "u3"]), max_size=3))
    def mark_missed(self, cluster: str, uids: list[str]) -> None:
        self.store.mark_missed(cluster, uids, self.now)
        self.missed.update(((cluster, uid), self.now + MISSED_FOR_S) for uid in uids)

    @rule(seconds=st.sampled_from([1.0, 179.0, 180.0, 400.0, 4000.0, 15 * 24 * 3600.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def agrees(self) -> None:
        for cluster in ("blue", "green"):
            mine = [item for (of, _), item in sorted(self.claims.items()) if of == cluster]
            state = self.store.read(cluster, self.now)
            assert state.epoch == self.epochs[cluster]
            assert state.claims == tuple(item for item in mine if item.state not in NOT_READ)
            assert self.store.claims(cluster) == tuple(item for item in mine if item.state != "Gone")
            assert {(item.instance_type, item.until) for item in state.unavailable} == {
                (name, until) for name, (_, until) in self.offerings.items() if until > self.now
            }
            assert state.missed_pods == {
                uid for (of, uid), until in self.missed.items() if of == cluster and until > self.now
            }
        for item in self.claims.values():
            if item.instance_id:
                assert self.store.claim_of_instance(item.instance_id) == item


StoreMachine.TestCase.settings = PROFILE
TestStateStore = StoreMachine.TestCase


@PROFILE
@given(st.lists(st.integers(0, 3), max_size=40))
def test_however_deciders_interleave_each_epoch_has_one_decision(turns: list[int]) -> None:
    """Four deciders read and commit in turn, each in two steps; what one wrote the next has read or is refused."""
    store = FakeState()
    seen: dict[int, tuple[int, frozenset[str]]] = {}
    decisions: list[tuple[int, frozenset[str], str]] = []
    for turn, decider in enumerate(turns):
        if decider not in seen:
            state = store.read("blue", 0.0)
            seen[decider] = state.epoch, frozenset(item.name for item in state.claims)
            continue
        epoch, known = seen.pop(decider)
        name = f"claim-{turn}"
        try:
            assert (
                store.commit("blue", epoch, [node_claim(cluster="blue", name=name, node_pool="p", node_class="c")])
                == epoch + 1
            )
        except EpochMoved:
            continue
        decisions.append((epoch, known, name))
    assert [epoch for epoch, _, _ in decisions] == list(range(len(decisions)))
    written: set[str] = set()
    for _, known, name in decisions:
        assert known == written
        written.add(name)
    assert {item.name for item in store.read("blue", 0.0).claims} == written
