"""Laws of what surrounds plans: clusters read from files and from API servers, and the smallest change that helps."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import urllib3
from msgspec.structs import replace

from shiplap.cluster.client import KubernetesClient
from shiplap.cluster.transport import StaticToken, Transport
from shiplap.scheduling.model.snapshot import PlanStage, Snapshot
from shiplap.scheduling.planner import plan, solve
from shiplap_cli.accounts.smallest_changes import change_proposals
from shiplap_cli.inputs.cluster_files import read_cluster_state
from shiplap_lab.api_server.api_resources import PLURALS
from shiplap_lab.api_server.server import ApiServer
from shiplap_lab.cluster_simulator.access import READ_ONLY
from shiplap_lab.cluster_simulator.http_server import KubeHttpServer
from shiplap_lab.fakes.signals import FakeClock
from tests.combinations.laws import Decided, Law, byte_for_byte, left_out, lets_pods_wait
from tests.property.drawn_edits import edited, edits, weaker

Edit = tuple[str, ...]

_LISTS = (
    "pods",
    "nodes",
    "daemon_sets",
    "persistent_volume_claims",
    "persistent_volumes",
    "storage_classes",
    "csi_nodes",
    "csi_drivers",
    "namespaces",
    "replica_sets",
    "pod_disruption_budgets",
)


def _from_a_file(before: Decided, _: Random) -> Snapshot:
    """The cluster's objects written as kubectl prints them, and read again."""
    items = [_written(item) for name in _LISTS for item in getattr(before.snapshot.view, name)]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "cluster.json"
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
        view = read_cluster_state([path]).view
    return replace(before.snapshot, view=replace(view, scalables=()))


def _from_an_api_server(before: Decided, _: Random) -> Snapshot:
    """The cluster's objects in an API server, listed as the functions list them: over HTTP, in pages, by selectors."""
    server = ApiServer(FakeClock(before.snapshot.now))
    view = before.snapshot.view
    for name in _LISTS:
        for item in getattr(view, name):
            server.create(PLURALS[type(item).__name__], _written(item))
    leaving = [node.metadata.name for node in view.nodes if node.metadata.deletion_timestamp]
    with KubeHttpServer(server, access={"reader": READ_ONLY}) as http:
        client = _client_of(http.endpoint)
        listed = client.view(leaving, workloads=True)
        return replace(before.snapshot, view=replace(listed, pod_disruption_budgets=client.disruption_budgets()))


def _client_of(endpoint: str) -> KubernetesClient:
    """A client that repeats nothing: a server of the same process answers, or the test is wrong."""
    pool = urllib3.connection_from_url(endpoint, maxsize=1)
    return KubernetesClient(Transport(endpoint, StaticToken("reader"), pool=pool, sleep=_never, back_off_s=()))


def _never(seconds: float) -> None:
    raise AssertionError(f"a client without repetitions waits {seconds} s")


def _written(item: msgspec.Struct) -> dict[str, Any]:
    """An object without what is empty, as no API server writes it."""
    body: dict[str, Any] = _without_empty(msgspec.to_builtins(item))
    return {"kind": type(item).__name__, **body}


def _without_empty(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {key: _without_empty(item) for key, item in value.items()}
        return {key: item for key, item in kept.items() if item not in (None, "", [], {}) or key == "labelSelector"}
    return [_without_empty(item) for item in value] if isinstance(value, list | tuple) else value


def _limits_that_help(before: Decided) -> str:
    """Check that the limits which explain proposes give the first pod left out a place, and one unit less does not."""
    snapshot = before.snapshot
    held = lets_pods_wait(snapshot) or any(item.stage is PlanStage.ADMISSION for item in snapshot.policies)
    if held or not left_out(before.plan):
        return ""
    key = left_out(before.plan)[0]
    for proposal in change_proposals(snapshot, *solve(snapshot), key):
        wanted = [edit for text in proposal.changes for edit in edits(text)]
        if any(edit[0] != "limit" for edit in wanted) or any(not edits(text) for text in proposal.changes):
            continue  # changes of the pod itself are tried in tests/property
        if wrong := problem(snapshot, key, wanted):
            return f"{proposal.changes}: {wrong}"
    return ""


def problem(snapshot: Snapshot, key: str, wanted: Sequence[Edit]) -> str:
    """Return the fault of edits that shall be the least that gives a pod a place and costs no pod its own."""
    out = set(left_out(plan(snapshot)))

    def suffices(edit: Sequence[Edit]) -> bool:
        still = left_out(plan(edited(snapshot, list(edit))))
        return key not in still and out.issuperset(still)

    if not suffices(wanted):
        return f"{key} has no place, or costs a pod its place"
    for number, edit in enumerate(wanted):
        others = [*wanted[:number], *wanted[number + 1 :]]
        if suffices(others):
            return f"{key} has a place without {edit}"
        less = weaker(edit)
        if less is not None and suffices([*others, less]):
            return f"{key} has a place with {less}"
    return ""


COMMAND_LAWS = (
    Law("a cluster read from a file gets the same plan", _from_a_file, byte_for_byte),
    Law("a cluster listed from an API server gets the same plan", _from_an_api_server, byte_for_byte),
    Law.of_plan("the smallest change of limits works and nothing smaller does", _limits_that_help),
)
