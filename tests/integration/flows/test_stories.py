"""Stories of an install: what was heard, decided, weighed, given, learned and taken away, with records and times."""

from __future__ import annotations

import zlib
from io import StringIO

import msgspec
import pytest
from rich.console import Console

from shiplap.errors import StoreError
from shiplap.flows.messages import PodsPending
from shiplap.records import scheduling_record as records
from shiplap.records.scheduling_record import encode
from shiplap_cli.commands.explain.history import MOST_RECORDS, History, HistoryReader, HistorySources, lacks_place
from shiplap_cli.commands.explain.history_options import history_page
from shiplap_lab.fakes.stores import FakeRecorder
from tests.integration.flows.disrupted import oversized
from tests.integration.flows.stage import Stage, share


def teller(stage: Stage, since_s: float = 24 * 3600.0) -> HistoryReader:
    return HistoryReader(
        HistorySources(
            cluster=stage.name,
            state=stage.state,
            records=stage.recorder,
            capacity=stage.capacity,
            now=stage.clock.now(),
            since_s=since_s,
            progress=lambda _: None,
        )
    )


def lines(story: History | None) -> str:
    assert story is not None
    return "\n".join(f"{entry.what}\n" + "\n".join(entry.details) for entry in story.entries)


@pytest.fixture(scope="module")
def short() -> Stage:
    """A first node that is too small for its pods, and one that is not."""
    stage = Stage(true_memory=share(0.8))
    stage.add_pods(3, memory="2700Mi")
    stage.schedule(PodsPending(stage.name, stage.clock.now() - 2, id="hint-1"))
    stage.play_on()
    return stage


def test_the_story_of_a_pod(short: Stage) -> None:
    name = next(pod.name for claim in short.claims() if claim.missed for pod in claim.plan.pods)
    told = teller(short).pod(name)
    assert told.name == f"default/{name}"
    text = lines(told)
    assert "heard that pods are pending\nevent hint-1" in text
    assert "decided to launch" in text
    assert f"for default/{name}" in text
    assert "EC2 gave i-" in text
    assert "is the cheapest of" in text
    assert "its kubelet reported less than was relied on" in text
    assert "relied on" in text
    assert len({entry.record for entry in told.entries if entry.record}) >= 2
    assert [entry.at for entry in told.entries if entry.at] == sorted(entry.at for entry in told.entries if entry.at)
    assert text.index("EC2 gave") < text.index("its kubelet reported less")
    assert "planned for " in told.state
    assert not lacks_place(told)


def test_a_claim_is_known_by_its_node_and_instance_too(short: Stage) -> None:
    claim = next(claim for claim in short.claims() if claim.node_name)
    by_name = teller(short).claim(claim.name)
    assert by_name is not None
    assert teller(short).claim(claim.node_name) == by_name == teller(short).claim(claim.instance_id)
    assert teller(short).claim("nothing") is None
    assert {claim.name, claim.node_name} <= set(teller(short).names())


def test_long_lines_stay_in_their_column(short: Stage) -> None:
    claim = next(claim for claim in short.claims() if claim.node_name)
    told = teller(short).claim(claim.name)
    assert told is not None
    console = Console(width=80, file=StringIO())
    console.print(history_page(told))
    assert isinstance(console.file, StringIO)
    head, _, *rows = console.file.getvalue().splitlines()
    assert head.startswith(f"claim {claim.name}: Initialized, node ")
    assert len(rows) > 10
    assert [row for row in rows if row[:21].strip() and not row.startswith(("20", "·", "! "))] == []


def test_the_story_of_a_pool(short: Stage) -> None:
    (pool, *_) = teller(short).pools()
    text = lines(teller(short).pool(pool))
    assert "launched " in text
    assert teller(short).pool("nothing") is None


def test_what_nothing_was_launched_for() -> None:
    stage = Stage()
    stage.add_pods(1)
    stage.add_pods(1, cpu="9000", prefix="huge")
    stage.schedule()
    told = teller(stage).pod("default/huge-000")
    assert "left out\n" in lines(told)
    assert told.state == "nothing was launched for it"
    assert lacks_place(told)
    nobody = teller(stage).pod("nobody")
    assert (nobody.state, lacks_place(nobody)) == ("no decision of this time spoke of it", True)
    stage.clock.advance(3600)
    assert teller(stage, since_s=60).pod("huge-000").entries == ()


def test_of_a_workload_the_pod_is_told_of_that_a_decision_left_out() -> None:
    """Pods of one deployment share a beginning; `web` is another one, and `hug` is none."""
    stage = Stage()
    stage.add_pods(2)
    stage.add_pods(2, cpu="9000", prefix="huge")
    stage.schedule()
    assert teller(stage).pod("default/huge").name == "default/huge-000"
    assert "left out\n" in lines(teller(stage).pod("huge"))
    assert "decided to launch" in lines(teller(stage).pod("web"))
    assert teller(stage).pod("hug").state == "no decision of this time spoke of it"
    assert teller(stage, since_s=0).pod("web").name == "default/web-000", "the claim has its pods"


def test_inputs_of_decisions_are_read_for_launches_only() -> None:
    stage = Stage()
    stage.recorder.least_bytes = 0
    stage.add_pods(1)
    stage.add_pods(1, cpu="9000", prefix="huge")
    stage.schedule()
    told = lines(teller(stage).pod("huge-000"))
    without_chunks = FakeRecorder()
    without_chunks.records = stage.recorder.records
    stage.recorder = without_chunks
    assert lines(teller(stage).pod("huge-000")) == told
    with pytest.raises(StoreError, match=r"chunk .* is gone"):
        teller(stage).pod("web-000")


def test_a_node_that_is_taken_away() -> None:
    stage = oversized()
    stage.disrupt()
    stage.clock.advance(60)
    stage.disrupt()
    old = next(claim for claim in stage.claims() if claim.node_name)
    text = lines(teller(stage).claim(old.node_name))
    assert "goes: command " in text
    assert "to be removed: Underutilized" in text
    stage.sweep()
    new = next(claim for claim in stage.claims() if claim.name != old.name)
    story = teller(stage).claim(new.name)
    assert f"to replace {old.node_name}" in lines(story)
    assert "takes the place of what goes" in lines(story)


@pytest.mark.parametrize("expired", [False, True])
def test_a_node_that_has_left_is_told_of_when_and_why(expired: bool) -> None:
    """Table `state` keeps its claim for a while; then records are all that knows the node."""
    stage = oversized()
    (old,) = stage.claims()
    while old.name in {claim.name for claim in stage.claims()}:
        stage.minutes(1)
    if expired:
        stage.state.expire(stage.clock.now() + 365 * 86_400)
        assert stage.state.claim(stage.name, old.name) is None
    told = teller(stage)
    story = told.claim(old.node_name)
    text = lines(story)
    assert "to be removed: Underutilized" in text
    assert story == told.claim(old.name)
    assert story == told.claim(old.instance_id)
    assert story is not None
    assert story.state.startswith("Gone" if not expired else "gone: ")
    assert told.claim("of-nobody") is None
    other = msgspec.structs.replace(told._sources, cluster="other")
    assert HistoryReader(other).claim(old.name) is None
    assert HistoryReader(other).claim(old.instance_id) is None


def test_records_of_other_versions_and_too_many_are_said() -> None:
    stage = Stage()
    stage.add_pods(1)
    stage.schedule()
    ((name, document),) = stage.recorder.records.items()
    found = records.decode(document)
    loose = msgspec.msgpack.decode(zlib.decompress(document))
    broken = {**loose, "version": "9.9", "snapshot": {**loose["snapshot"], "catalogs": 7}}
    stage.recorder.records[name] = zlib.compress(msgspec.msgpack.encode(broken))
    story = teller(stage).pod("web-000")
    assert any("written by version 9.9" in line for line in story.unseen)
    assert "decided to launch" in lines(story)
    small = encode(msgspec.structs.replace(found, snapshot=msgspec.structs.replace(found.snapshot, catalogs=())))
    stage.recorder.records.update(
        {f"{name.rsplit('/', 1)[0]}/000000-{number}-{'0' * 12}": small for number in range(MOST_RECORDS + 1)}
    )
    assert any(f"only the newest {MOST_RECORDS} were opened" in line for line in teller(stage).pod("web-000").unseen)
