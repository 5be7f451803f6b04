"""`shiplap top` on an API server: one frame, live in a terminal, and when the cluster or its rights fail."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Queue
from threading import Event
from typing import Any

import msgspec
import pytest
import yaml

from shiplap.aws import session
from shiplap.aws.bucket import BucketRecorder
from shiplap.aws.dynamodb.state_table import DynamoState
from shiplap.cluster.kubeconfig import load
from shiplap.cluster.transport import Transport
from shiplap.drawing.picture import ClusterPicture
from shiplap.errors import ClusterDenied, ClusterUnreachable, InvalidInput, ResourceVersionGone, StoreError
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap.records.disruption_record import Headline
from shiplap.scheduling.model.scheduling_plan import Plan
from shiplap.scheduling.model.snapshot import Snapshot
from shiplap_cli.commands.top import followed_install
from shiplap_cli.inputs.cluster_events import (
    ClusterEvent,
    ObjectChanged,
    ObjectsListed,
    SourceProblem,
    follow_cluster,
    follow_kind,
)
from shiplap_cli.inputs.context_access import enter_context
from shiplap_cli.installs import find_install
from shiplap_cli.installs.find_install import DeployedInstall
from shiplap_cli.main import run
from shiplap_lab.cluster_simulator.access import PolicyRule
from shiplap_lab.cluster_simulator.http_server import KubeHttpServer
from shiplap_lab.dev import dev_session
from shiplap_lab.fakes.cluster import ApiServer
from shiplap_lab.fakes.signals import FakeClock
from shiplap_lab.simulation.timeline import Frame, Timeline
from tests.builders.claims import node_claim, with_fields
from tests.builders.nodes import node_object
from tests.builders.pods import pod_object
from tests.integration.contracts.in_process_aws import aws_in_process
from tests.policy_parts import policy_parts

WATCH = PolicyRule(("list", "watch"), ("nodes", "pods"), ("",))
CLAIM = node_claim(
    cluster="blue",
    name="general-1",
    node_pool="general",
    node_class="default",
    state=ClaimState.INITIALIZED,
    tier=1,
    instance_type="m5.large",
    zone="us-east-1a",
    capacity_type="spot",
    hourly=0.0123,
    node_name="a",
)
NOON = 1_767_268_800.0
RECORD = "prod/2026-01-01/120030-41-3fb2c1d0aa51"
INSTALL = DeployedInstall("bucket", {"StateTable": "state"})


@pytest.fixture(autouse=True)
def nothing_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no table `state` here; what is read of claims is given to each test."""
    for module in policy_parts("integration", "unwritten"):
        module.replace_reads(monkeypatch)


NODES_ONLY = PolicyRule(("list", "watch"), ("nodes",), ("",))


def bucket() -> BucketRecorder:
    """The install's, new."""
    s3 = session.client("s3")
    s3.create_bucket(Bucket="bucket", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    return BucketRecorder(s3, "bucket")


SCENARIO = """
apiVersion: simulation.shiplap.dev/v1
kind: Scenario
about: Two pods.
groups: [{name: web, cpu: 500m, memory: 500Mi}]
waves: [{at: 1, group: web, replicas: 2}]
hours: 0.2
settleMinutes: 30
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: general}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements: [{key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}]
---
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default}
spec:
  role: nodes
  amiSelectorTerms: [{alias: al2023@latest}]
  subnetSelectorTerms: [{tags: {discovery: demo}}]
  securityGroupSelectorTerms: [{tags: {discovery: demo}}]
"""


class Cluster:
    def __init__(self, http: KubeHttpServer, folder: Path) -> None:
        self.http, self.api = http, http.api
        self.config = folder / "config"
        self.enter_as("all")

    def enter_as(self, token: str) -> None:
        document = {
            "current-context": "blue",
            "contexts": [{"name": "blue", "context": {"cluster": "c", "user": "me"}}],
            "clusters": [{"name": "c", "cluster": {"server": self.http.endpoint}}],
            "users": [{"name": "me", "user": {"token": token}}],
        }
        self.config.write_text(yaml.safe_dump(document))

    def top(self, *arguments: str) -> int:
        return run(["top", "--kubeconfig", str(self.config), *arguments])


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    api = ApiServer(FakeClock())
    for name in ("a", "b"):
        api.create(
            "nodes", node_object(name, instance_type="m5.large", zone="us-east-1a", region="us-east-1", pool="general")
        )
    api.create("pods", pod_object("x", "1", namespace="web", node="a"))
    api.create("pods", pod_object("y", "1", namespace="web"))
    with KubeHttpServer(api, access={"all": (WATCH,), "nodes": (NODES_ONLY,), "none": ()}) as http:
        yield Cluster(http, tmp_path)


def test_one_frame(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("LINES", "12")
    assert cluster.top("--once") == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 12
    assert lines[0].startswith("blue  ")
    assert "2 nodes  1 pod  1 waiting" in lines[0]
    assert any(line.split()[:2] == ["a", "m5.large"] for line in lines)
    assert any("web/y" in line for line in lines)


def test_the_picture_as_json(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert cluster.top("-o", "json") == 0
    picture = json.loads(capsys.readouterr().out)
    assert [item["name"] for item in picture["nodes"]] == ["a", "b"]
    assert picture["nodes"][0]["hourly"] > 0
    assert [item["name"] for item in picture["pending"]] == ["y"]


def test_the_cluster_of_shiplap_dev(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.http.access = None
    monkeypatch.setattr(dev_session, "find_session", functools.partial(dev_session.find_session, tmp_path))
    assert run(["top", "--dev", "--once"]) == 2
    assert "no `shiplap lab dev` runs" in capsys.readouterr().err
    (tmp_path / "run").mkdir()
    dev_session.announce_session(tmp_path / "run", {}, "bucket", {"demo": cluster.http.endpoint})
    monkeypatch.setattr(find_install, "find_install", lambda **_: INSTALL)
    monkeypatch.setattr(DynamoState, "claims", lambda _, name: [CLAIM] if name == "demo" else [])
    with aws_in_process():
        bucket()
        assert run(["top", "--dev", "--once"]) == 0
    assert capsys.readouterr().out.startswith("demo  ")


def test_claims_tell_tiers_prices_and_what_is_on_its_way(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    coming = with_fields(CLAIM, name="general-2", node_name="", instance_id="i-2")
    coming = msgspec.structs.replace(coming, state=ClaimState.LAUNCHED)
    monkeypatch.setattr(find_install, "find_install", lambda **_: INSTALL)
    monkeypatch.setattr(DynamoState, "claims", lambda *_: [CLAIM, coming])
    with aws_in_process():
        bucket()
        assert cluster.top("--cluster", "blue", "-o", "json") == 0
        nodes = {item["name"]: item for item in json.loads(capsys.readouterr().out)["nodes"]}
        assert (nodes["a"]["tier"], nodes["a"]["hourly"]) == (1, 0.0123)
        assert nodes["b"]["hourly"] != 0.0123
        assert (nodes["general-2"]["state"], nodes["general-2"]["note"]) == ("Starting", "Launched")

        def refused(*_: object) -> Any:
            raise StoreError("could not read table state: AccessDeniedException: dynamodb:Query")

        monkeypatch.setattr(DynamoState, "claims", refused)
        assert cluster.top("--cluster", "blue", "-o", "json") == 1
        picture = json.loads(capsys.readouterr().out)
    assert sorted(item["name"] for item in picture["nodes"]) == ["a", "b"]
    (missing,) = picture["missing"]
    assert missing.startswith("claims are not seen")
    assert "dynamodb:Query" in missing


def test_recorded_decisions_and_what_claims_tell(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(find_install, "find_install", lambda **_: INSTALL)
    now = time.time()
    leaving = with_fields(CLAIM, state=ClaimState.DRAINING, instance_id="i-1", changed_at=now - 5)
    leaving = msgspec.structs.replace(leaving, failure="SpotInterruption")
    monkeypatch.setattr(DynamoState, "claims", lambda *_: [leaving])
    with aws_in_process():
        name = bucket().record(Snapshot(cluster="blue", now=now - 60), Plan())
        assert cluster.top("--cluster", "blue", "-o", "json") == 0
        decided = json.loads(capsys.readouterr().out)["decisions"]
        assert [(item["kind"], item["text"], item.get("record")) for item in decided] == [
            ("schedule", "nothing to launch", name),
            ("interrupt", "general-1 is Draining: SpotInterruption", None),
        ]
        monkeypatch.setenv("COLUMNS", "200")
        assert cluster.top("--cluster", "blue", "--once") == 0
        assert name in capsys.readouterr().out

        def refused(*_: object) -> Any:
            raise StoreError("could not list s3://bucket/records/: AccessDenied: s3:ListBucket")

        monkeypatch.setattr(BucketRecorder, "ids", refused)
        assert cluster.top("--cluster", "blue", "-o", "json") == 1
        (missing,) = json.loads(capsys.readouterr().out)["missing"]
    assert missing.startswith("recorded decisions are not seen: could not list s3://bucket/records/")


def test_claims_are_read_again_until_nobody_looks_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_install, "EVERY_S", 0.001)
    seen: Queue[Any] = Queue()
    answers: list[Any] = [[CLAIM], StoreError("refused"), InvalidInput("--stack", "there is none"), [CLAIM]]

    def read() -> list[NodeClaim]:
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return [*answer]

    ended = Event()
    followed_install.claims_source(read).keep_polling(seen.put, ended)
    told = [seen.get(timeout=10) for _ in range(5)]
    ended.set()
    assert told[:2] == [followed_install.ClaimsRead((CLAIM,)), SourceProblem("claims", "")]
    assert "refused" in told[2].reason
    assert "there is none" in told[3].reason
    assert told[4] == followed_install.ClaimsRead((CLAIM,))


def test_a_recording_is_played(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.json"
    scenario = tmp_path / "small.yaml"
    scenario.write_text(SCENARIO)
    assert run(["lab", "simulate", str(scenario), "--recording", str(path), "-o", "json"]) == 0
    capsys.readouterr()
    assert run(["top", "--recording", str(path), "--once"]) == 0
    assert "1 node  2 pods  none waiting" in capsys.readouterr().out


def test_the_decisions_of_a_recording_can_be_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(SCENARIO)
    kept = ["--recording", "run.json", "--records", "kept"]
    assert run(["lab", "simulate", "small.yaml", *kept, "-o", "json"]) == 0
    capsys.readouterr()
    assert run(["top", "--recording", "run.json", "-o", "json"]) == 0
    decided = json.loads(capsys.readouterr().out)["decisions"]
    launched = next(item for item in decided if item["kind"] == "schedule" and "→" in item["text"])
    assert launched["text"].startswith("2 pods → 1 node, ")
    assert {item["kind"] for item in decided} == {"schedule", "launch", "lifecycle"}
    monkeypatch.chdir("kept")
    assert run(["explain", "decision", launched["record"]]) == 0
    assert "The same decision, byte for byte." in capsys.readouterr().out
    assert run(["lab", "simulate", "../small.yaml", "--records", "x", "--seeds", "2"]) == 2
    assert "--records: shows one run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"), [(None, "cannot be read"), ("{", "is no recording"), ('{"ends_s": 1}', "holds no moment")]
)
def test_a_recording_that_is_none(
    text: str | None, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.json"
    if text is not None:
        path.write_text(text)
    assert run(["top", "--recording", str(path)]) == 2
    assert said in capsys.readouterr().err


def test_half_a_cluster_is_shown_with_what_is_missing(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.enter_as("nodes")
    assert cluster.top("--once") == 1
    assert "not permitted to list and watch pods" in capsys.readouterr().out


def test_a_cluster_of_which_nothing_is_seen_is_no_empty_one(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.enter_as("none")
    assert cluster.top("--once") == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "not permitted to list and watch nodes" in said.err
    assert "see whether `kubectl --context blue get nodes,pods -A` is answered" in said.err
    monkeypatch.setattr(find_install, "find_install", lambda **_: INSTALL)
    monkeypatch.setattr(DynamoState, "claims", lambda *_: [msgspec.structs.replace(CLAIM, node_name="")])
    with aws_in_process():
        bucket()
        assert cluster.top("--once", "--cluster", "blue") == 1
    assert "general-1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(("--sort", "colour"), "'colour' is none of"), (("--context", "red"), "there is no context")],
)
def test_bad_input(cluster: Cluster, arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cluster.top("--once", *arguments) == 2
    assert said in capsys.readouterr().err


class Script(Transport):
    """Answers of an API server one after the other: a list, or the lines of a watch; errors are raised."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.most_bytes = 2**20
        self.asked: list[dict[str, Any]] = []

    def get(self, path: str, query: Any = None) -> bytes:
        self.asked.append(dict(query or {}))
        return self._next()

    def lines(self, path: str, query: Any, timeout_s: float) -> Iterator[bytes]:
        self.asked.append(dict(query))
        yield from self._next()

    def _next(self) -> Any:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


class Pauses(Event):
    """Nobody ends it, and no pause takes time."""

    def __init__(self) -> None:
        super().__init__()
        self.waited: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.waited.append(timeout or 0.0)
        return self.is_set()


def page(*names: str, version: str = "5", more: str = "") -> bytes:
    items = [{"metadata": {"name": name}} for name in names]
    return json.dumps({"metadata": {"resourceVersion": version, "continue": more}, "items": items}).encode()


def line(kind: str, **item: Any) -> bytes:
    return json.dumps({"type": kind, "object": item}).encode()


def played(*answers: Any) -> tuple[list[ClusterEvent], Script, list[float]]:
    seen: list[ClusterEvent] = []
    ended = Pauses()
    script = Script(*answers, ClusterDenied("enough", status=403))
    follow_kind("nodes", script, seen.append, ended)
    return seen[:-1], script, ended.waited


def names(seen: list[ClusterEvent]) -> list[Any]:
    return [
        [item.metadata.name for item in entry.objects]
        if isinstance(entry, ObjectsListed)
        else entry.reason
        if isinstance(entry, SourceProblem)
        else (entry.object.metadata.name, entry.gone)
        for entry in seen
    ]


def test_a_list_in_pages_and_then_changes() -> None:
    changes = [
        line("ADDED", metadata={"name": "c", "resourceVersion": "6"}),
        line("BOOKMARK", metadata={"resourceVersion": "9"}),
        line("DELETED", metadata={"name": "a", "resourceVersion": "10"}),
    ]
    seen, script, _ = played(page("a", more="t"), page("b"), changes, [])
    assert names(seen) == [["a", "b"], ("c", False), ("a", True)]
    assert [query.get("resourceVersion", "") for query in script.asked] == ["", "", "5", "10", "10"]
    assert script.asked[1]["continue"] == "t"


def test_a_version_that_is_forgotten_is_listed_anew() -> None:
    gone = [line("ERROR", code=410, message="too old")]
    seen, _, _ = played(page("a"), gone, page("b"), ResourceVersionGone("too old", status=410), page("c"), [])
    assert names(seen) == [["a"], ["b"], ["c"]]


def test_a_lost_connection_is_made_anew() -> None:
    seen, script, pauses = played(page("a"), ClusterUnreachable("lost"), [], ClusterUnreachable("again"), [])
    assert names(seen) == [["a"], "lost", "", "again", ""]
    assert pauses == [2.0, 2.0]
    assert script.asked[-1]["resourceVersion"] == "5"


@pytest.mark.parametrize("answer", [b"<html>", b'{"items": 5}'])
def test_an_answer_that_is_none(answer: bytes) -> None:
    seen, _, _ = played(answer)
    assert "not what an API server sends" in names(seen)[0]


def test_both_kinds_are_followed_at_once(cluster: Cluster) -> None:
    access = load(cluster.config, "", environment={}, home=Path("/nowhere"))
    seen: Queue[ClusterEvent] = Queue()
    ended = Event()
    follow_cluster(lambda: enter_context(access, clock=time.time, environment={}, sleep=time.sleep), seen, ended)
    listed = {entry.kind for entry in (seen.get(timeout=20), seen.get(timeout=20)) if isinstance(entry, ObjectsListed)}
    assert listed == {"nodes", "pods"}
    cluster.api.create("pods", pod_object("z", "1", namespace="web", node="b"))
    change = seen.get(timeout=20)
    assert isinstance(change, ObjectChanged)
    assert change.object.metadata.name == "z"
    ended.set()


def test_nobody_is_told_who_looks_on_no_longer() -> None:
    ended = Event()
    seen: list[ClusterEvent] = []

    def see(item: ClusterEvent) -> None:
        seen.append(item)
        if isinstance(item, ObjectChanged):
            ended.set()

    changes = [line("ADDED", metadata={"name": name, "resourceVersion": "6"}) for name in "bc"]
    follow_kind("nodes", Script(page("a"), changes), see, ended)
    assert names(seen) == [["a"], ("b", False)]


TMUX = shutil.which("tmux")


MOST_CHANGES = 5000
"""Of a screen, which `top` draws once a second at most, until what is waited for is not coming any more."""


class Terminal:
    """A terminal of its own, by tmux, which tells when its screen changes: no time is waited for."""

    def __init__(self, name: str, size: tuple[int, int], command: str) -> None:
        self.name = name
        width, height = size
        # GNU readline writes the size of the terminal of the tests into C's environment, which children would inherit.
        self._environment = {key: value for key, value in os.environ.items() if key not in ("LINES", "COLUMNS")}
        self._tmux("new-session", "-d", "-x", str(width), "-y", str(height), "-s", name, command)
        self._tmux("set-option", "-t", name, "window-size", "manual")
        self._changes = subprocess.Popen(  # noqa: S603 - our own words
            [str(TMUX), "-L", name, "-C", "attach-session", "-t", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=self._environment,
        )

    def _tmux(self, *arguments: str) -> str:
        command = [str(TMUX), "-L", self.name, *arguments]
        environment = self._environment
        return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout  # noqa: S603

    def press(self, *keys: str) -> None:
        self._tmux("send-keys", "-t", self.name, *keys)

    def screen(self) -> list[str]:
        return self._tmux("capture-pane", "-p", "-t", self.name).splitlines()

    def shows(self, holds: Callable[[list[str]], bool]) -> list[str]:
        """The screen, as soon as this holds."""
        for _ in range(MOST_CHANGES):
            shown = self.screen()
            if holds(shown):
                return shown
            assert self._changed(), "the program has ended"
        raise AssertionError("\n".join(shown))

    def ends(self) -> None:
        """Wait until the program has ended, and the terminal with it."""
        while self._changed():
            pass

    def _changed(self) -> bool:
        """Wait for a change of the screen; whether there was one before the end."""
        assert self._changes.stdout is not None
        return bool(self._changes.stdout.readline())

    def close(self) -> None:
        subprocess.run(  # noqa: S603 - our own words
            [str(TMUX), "-L", self.name, "kill-server"], check=False, capture_output=True, env=self._environment
        )
        self._changes.communicate()


@pytest.mark.skipif(TMUX is None, reason="tmux is not installed: no terminal to play in")
@pytest.mark.parametrize(("size", "name"), [((80, 24), RECORD.rpartition("/")[2]), ((200, 50), RECORD)])
def test_decisions_of_a_recording_in_a_terminal(size: tuple[int, int], name: str, tmp_path: Path) -> None:
    pictures = [ClusterPicture(cluster="prod", taken_at=NOON + seconds) for seconds in (0, 60)]
    line = Headline(NOON + 30, "schedule", "3 pods → 2 nodes, 0.21 USD/h, flex", RECORD)
    frames = tuple(Frame(float(at), picture) for at, picture in enumerate(pictures))
    (tmp_path / "run.json").write_bytes(msgspec.json.encode(Timeline(60.0, frames=frames, decisions=(line,))))
    start = "from shiplap_cli.main import main; main()"
    command = f"{sys.executable} -c '{start}' top --recording {tmp_path / 'run.json'}"
    terminal = Terminal(f"top-{size[0]}-{tmp_path.name}", size, command)
    try:
        terminal.shows(lambda lines: any("schedule  3 pods" in row and row.endswith(f" {name}") for row in lines))
        terminal.press("d")
        shown = terminal.shows(lambda lines: any("shiplap explain decision RECORD" in row for row in lines))
        assert any(row.endswith(f" {RECORD}") for row in shown)
        terminal.press("d")
        terminal.shows(lambda lines: any("d decisions" in row for row in lines))
        terminal.press("q")
        terminal.ends()
    finally:
        terminal.close()


@pytest.mark.skipif(TMUX is None, reason="tmux is not installed: no terminal to play in")
@pytest.mark.parametrize("size", [(80, 24), (200, 50)], ids=["80x24", "200x50"])
def test_live_in_a_terminal(cluster: Cluster, size: tuple[int, int]) -> None:
    start = "from shiplap_cli.main import main; main()"
    command = f"{sys.executable} -c '{start}' top --kubeconfig {cluster.config}"
    terminal = Terminal(f"top-{size[0]}-{cluster.config.parent.name}", size, command)
    try:
        shown = terminal.shows(lambda lines: any("2 nodes" in row for row in lines))
        assert len(shown) == size[1]
        cluster.api.create(
            "nodes", node_object("c", instance_type="m5.large", zone="us-east-1a", region="us-east-1", pool="general")
        )
        cluster.api.bind("y", "b", "web")
        terminal.shows(lambda lines: any("3 nodes" in row and "none waiting" in row for row in lines))
        terminal.shows(lambda lines: any("node c (" in row for row in lines))
        terminal.press("j", "Enter")
        terminal.shows(lambda lines: any(row.startswith("web/x") for row in lines))
        terminal.press("Escape")
        terminal.press("/", "b", "Enter")
        terminal.shows(lambda lines: any("filter: b" in row for row in lines))
        terminal.press("q")
        terminal.ends()
    finally:
        terminal.close()
