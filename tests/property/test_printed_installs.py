"""No control character of what an install holds leaves a command that shows it, and no name is obeyed as markup.

Clusters, claims, pools, node classes, instances, reasons and errors have drawn names; the install is held in memory.
"""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shiplap.drawing.picture import Amounts, ClusterPicture, NodePicture, NodePictureState, PendingPicture, PodPicture
from shiplap.errors import StoreError
from shiplap.instances.catalog.ec2_catalog import Catalog
from shiplap.instances.catalog.resolved_nodeclass import NodeClassProblem, Subnet
from shiplap.instances.catalog.type_catalog import LearnedCapacity, Observation
from shiplap.instances.readiness.nodeclass_status import (
    ClusterStatus,
    InstallStatus,
    NodeClassStatus,
    PoolStatus,
    conditions,
)
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim, PodReference
from shiplap.records.disruption_record import Headline
from shiplap.scheduling.model.scheduling_plan import Placement, Plan, Unschedulable
from shiplap_cli.commands.explain import history_options
from shiplap_cli.commands.status import fleet_reading, status
from shiplap_cli.commands.status.fleet_document import InstallOverview, cluster_overview
from shiplap_cli.commands.top.frame import Scene, frame
from shiplap_cli.commands.top.stream import changes_between
from shiplap_cli.commands.top.view import View
from shiplap_cli.installs.install_metrics import (
    FailedClaim,
    FunctionMetrics,
    InstallMetrics,
    PoolUsage,
    QueueMetrics,
    RefusedOffering,
)
from shiplap_cli.main import run
from shiplap_cli.output import SafeConsole
from shiplap_lab.fakes.state import FakeState
from shiplap_lab.fakes.stores import FakeCapacity, FakeRecorder
from shiplap_lab.simulation.timeline import Frame, Timeline
from tests.builders.claims import node_claim
from tests.conformance.given import snapshot_of
from tests.odd_input import NAMES, NAMES_OF_AN_EXAMPLE, controls, fuzzed
from tests.property.printed_names import inside

NOW = 1_700_000_000.0
ASKED = "a-cluster"


class NamedInstall:
    """An install of one cluster, all of whose words are drawn."""

    def __init__(self, names: Iterator[str]) -> None:
        self.names = names
        self.claims = tuple(self._claim(state) for state in (ClaimState.INITIALIZED, ClaimState.FAILED))

    def _claim(self, state: ClaimState) -> NodeClaim:
        word = self.names.__next__
        return node_claim(
            cluster=ASKED,
            name=word(),
            state=state,
            node_pool=word(),
            node_class=word(),
            node_name=word(),
            instance_id=word(),
            instance_type=word(),
            zone=word(),
            ami=word(),
            failure=word(),
            cordoned=word(),
            reasons=(word(),),
            event_id=word(),
            created_at=NOW - 60,
            changed_at=NOW - 30,
            first_event_at=NOW - 90,
            hourly=0.1,
            pods=(PodReference(word(), word()),),
        )

    def inspected(self) -> InstallStatus:
        word = self.names.__next__
        problem = NodeClassProblem("SubnetsReady", word(), word())
        classes = (
            NodeClassStatus(word(), "0", conditions([problem]), warnings=(word(),)),
            NodeClassStatus(word(), "0", conditions(()), subnets=(Subnet(word(), word(), word(), 1),)),
        )
        pools = (PoolStatus(word(), word(), "False", 1, word(), {word(): word()}),)
        return InstallStatus((ClusterStatus(word(), word(), NOW - 9000, classes, pools),))

    def metrics(self) -> InstallMetrics:
        word = self.names.__next__
        resource = word()
        return InstallMetrics(
            pool_use=(PoolUsage(word(), word(), 1, 1, 1, 0.1, {resource: "1"}, {resource: "2"}),),
            failures=(FailedClaim(word(), word(), word(), word()),),
            resting=(RefusedOffering(word(), word(), word(), word(), word()),),
            queues=(QueueMetrics(word(), 1, 1, 1, {word(): 1}),),
            functions=(FunctionMetrics(word(), word(), 1, None, 1),),
            frozen_at=word(),
            unseen=(word(),),
        )

    def catalog(self, region: str) -> Catalog:
        if len(region) % 2:
            raise StoreError(f"{region}: {next(self.names)}")
        return Catalog(region=region, types=(), refreshed_at=NOW - 20_000, version=next(self.names), on_demand_at=NOW)

    def overviews(self) -> list[InstallOverview]:
        word = self.names.__next__
        clusters = tuple(cluster_overview(known, self.claims, None, NOW) for known in self.inspected().clusters)
        fields = {name: word() for name in ("install", "profile", "account", "region", "stack", "version", "release")}
        return [InstallOverview(**fields, clusters=clusters, problems=(word(),))]

    def state(self) -> FakeState:
        kept = FakeState()
        for claim in self.claims:
            kept._put(claim)
        return kept

    def records(self) -> FakeRecorder:
        word = self.names.__next__
        kept = FakeRecorder()
        pod = self.claims[0].plan.pods[0]
        left = (Unschedulable(pod, word()),)
        decided = Plan(existing_nodes=(Placement(word(), (pod,)),), unschedulable=left, ignored=left)
        known = msgspec.structs.replace(snapshot_of((), types=()), cluster=ASKED, now=NOW - 20)
        kept.record(known, decided)
        return kept

    def capacity(self) -> FakeCapacity:
        got = self.claims[0].known_instance
        node = self.claims[0].node_name
        amounts = {"memory": 2**30, next(self.names): 5}
        seen = Observation(got.ami, got.type, "", amounts, amounts, NOW - 60, ASKED, node, {"memory": 2**31})
        known = LearnedCapacity(got.ami, got.type, "", recent=(seen,), count=1)
        return FakeCapacity(learned=[known])


def picture_of(names: Iterator[str], state: NodePictureState) -> ClusterPicture:
    word = names.__next__
    pods = (PodPicture(word(), word(), 100, 2**20),)
    node = {"pool": word(), "instance_type": word(), "zone": word(), "capacity_type": word(), "note": word()}
    return ClusterPicture(
        cluster=word(),
        taken_at=NOW,
        limits={word(): word()},
        nodes=(NodePicture(name=word(), state=state, allocatable=Amounts(1000, 2**30, 9), pods=pods, **node),),
        pending=(PendingPicture(namespace=word(), name=word(), reason=word()),),
        missing=(word(),),
        install_lines=(word(),),
    )


def scene_of(names: Iterator[str]) -> Scene:
    decided = (Headline(NOW - 60, "schedule", next(names), next(names)), Headline(NOW, "disrupt", next(names)))
    return Scene(picture_of(names, NodePictureState.READY), decided)


OUTPUTS = ("table", "json", "yaml")
COMMANDS: list[list[str]] = [
    *(["status", "-o", output] for output in OUTPUTS),
    *(["status", "fleet", "-o", output] for output in OUTPUTS),
    ["status", "fleet", "--html", "page.html"],
    *(["top", "--recording", "recording.json", "-o", output] for output in OUTPUTS),
    *(["explain", kind, "NAME", "--cluster", ASKED, "-o", "table"] for kind in ("pod", "claim", "node", "pool")),
    ["explain", "claim", "NAME", "--cluster", ASKED, "-o", "json"],
    ["explain", "claim", "unknown", "--cluster", ASKED],
    *(["capacity", "list", "--file", "learned.json", "-o", output] for output in OUTPUTS),
    ["capacity", "show", "NAME", "--file", "learned.json"],
    ["status", "--cluster", "NAME"],
    ["status", "-o", "NAME"],
    ["status", "fleet", "-f", "installs.yaml"],
    ["status", "fleet", "--only", "NAME"],
    ["install", "deploy", "-f", "installs.yaml", "--dry-run"],
    ["top", "--recording", "installs.yaml"],
    ["top", "--sort", "NAME"],
]


def _asked(command: list[str], install: NamedInstall) -> list[str]:
    claim = install.claims[0]
    pod = claim.plan.pods[0]
    called = {"pod": pod.key, "node": claim.node_name, "pool": claim.plan.node_pool, "show": claim.known_instance.ami}
    name = called.get(command[1], claim.name)
    return [part.replace("NAME", name.replace("\0", "")) for part in command]


def printed(command: list[str], names: list[str]) -> dict[str, str]:
    """All that a command prints and writes about an install of these names."""
    out, err = io.StringIO(), io.StringIO()
    drawn = iter(names * 4)
    install = NamedInstall(drawn)
    with tempfile.TemporaryDirectory() as folder, inside(folder), pytest.MonkeyPatch.context() as patched:
        patched.setenv("AWS_REGION", "eu-west-1")
        for module in (status, history_options):
            patched.setattr(module, "find_install", lambda **_: install)
        patched.setattr(status, "gather_metrics", lambda *_: install.metrics())
        patched.setattr(fleet_reading, "read_fleet", lambda *_, **__: install.overviews())
        if command[0] == "top":
            scene = scene_of(drawn)
            timeline = Timeline(1.0, frames=(Frame(0.0, scene.picture),), decisions=scene.decisions or ())
            Path("recording.json").write_bytes(msgspec.json.encode(timeline))
        entries = install.capacity().all()
        Path("learned.json").write_bytes(msgspec.json.encode({"entries": entries}))
        described = {key: next(drawn) for key in ("name", "profile", "region", "account", "stack")}
        Path("installs.yaml").write_text(json.dumps({"installs": [described]}), encoding="utf-8")
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            run(_asked(command, install))
        page = Path("page.html")
        written = page.read_text(encoding="utf-8") if page.exists() else ""
    return {"out": out.getvalue(), "err": err.getvalue(), "page": written}


@fuzzed(0.3 / NAMES_OF_AN_EXAMPLE, usual=40, is_slow=True)
@given(st.sampled_from(COMMANDS), st.lists(NAMES, min_size=NAMES_OF_AN_EXAMPLE, max_size=NAMES_OF_AN_EXAMPLE))
def test_no_control_character_of_an_install_leaves_a_command(command: list[str], names: list[str]) -> None:
    for where, text in printed(command, names).items():
        assert controls(text) == [], (where, text)


VIEWS = (View(), View(inside=True), View(decisions=True), View(typing=True), View(help=True), View(paused=True))


@fuzzed(0.1 / NAMES_OF_AN_EXAMPLE, usual=20, is_slow=True)
@given(
    st.sampled_from(VIEWS),
    st.lists(NAMES, min_size=NAMES_OF_AN_EXAMPLE, max_size=NAMES_OF_AN_EXAMPLE),
    st.integers(20, 200),
)
def test_no_screen_of_top_shows_one_or_is_wider_than_its_terminal(view: View, names: list[str], width: int) -> None:
    drawn = iter(names * 2)
    before, scene = picture_of(drawn, NodePictureState.STARTING), scene_of(drawn)
    chosen = msgspec.structs.replace(view, selected=scene.picture.nodes[0].name, filter="")
    shown = io.StringIO()
    console = SafeConsole(file=shown, width=width)
    for line in frame(scene, chosen, changes_between(before, scene.picture), width, 30):
        console.print(line)
    assert controls(shown.getvalue()) == []
    assert len(shown.getvalue().splitlines()) == 30


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("name", ["a\x1b[2Jb", "[/]", "[red]a[/red]", ":boom:"])
def test_each_command_shows_hostile_names_as_they_are(command: list[str], name: str) -> None:
    found = printed(command, [name] * NAMES_OF_AN_EXAMPLE)
    text = "".join(found.values())
    assert controls(text) == []
    ways = [name.replace("\x1b", escape) for escape in ("\\x1b", "\\u001b", "\\e", "\ufffd")]
    assert any(way in text for way in ways) or command == ["top", "--recording", "installs.yaml"], text
