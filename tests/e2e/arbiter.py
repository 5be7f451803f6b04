"""Asks kube-scheduler whether each pod of a plan may run where the plan puts it.

The scheduler finds the nodes that pass all its filters and asks an extender, which is played here, which of them it may
use: the planned one, or none. So each decision is the scheduler's own, on its own state, and no pod is put elsewhere.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence, Set
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any

import msgspec

from shiplap.kubernetes.objects import Node, Pod
from shiplap.scheduling.model.scheduling_plan import Plan
from shiplap.scheduling.model.snapshot import Snapshot
from tests.e2e.api import RealApi
from tests.living_cluster import LivingCluster

Key = tuple[str, str]

_QUIET_S = 8.0
"""Without a pod bound for so long, those that are left will never be: the scheduler tries again a second later."""

_PATIENCE_S = (0.1, 0.5, 2.0)
"""How long the scheduler is given to take note of the nodes before the first pod comes."""

_POLL_S = 0.05

_VOLUME = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}
_CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


class Extender:
    """An HTTP server that kube-scheduler asks; a context manager.

    Attributes:
        homes: the planned node of each pod, by namespace and name.
        refused: what the scheduler would have taken when the planned node was not among it, by pod.
    """

    def __init__(self) -> None:
        self.homes: dict[Key, str] = {}
        self.refused: dict[Key, tuple[str, ...]] = {}
        self._lock = Lock()
        self._server = _Server(self)
        self._thread = Thread(target=self._server.serve_forever, args=(0.05,), name="extender", daemon=True)

    @property
    def configuration(self) -> dict[str, Any]:
        """Its entry in a KubeSchedulerConfiguration."""
        return {
            "urlPrefix": f"http://127.0.0.1:{self._server.server_address[1]}",
            "filterVerb": "filter",
            "nodeCacheCapable": True,
            "httpTimeout": "30s",
        }

    def __enter__(self) -> Extender:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def allowed(self, key: Key, names: Sequence[str]) -> list[str]:
        """Of the nodes that pass, the one that is planned."""
        with self._lock:
            home = self.homes.get(key, "")
            if home in names:
                self.refused.pop(key, None)
                return [home]
            self.refused[key] = tuple(names)
            return []


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, owner: Extender) -> None:
        self.owner = owner
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the base class's
        """Say nothing."""

    def do_POST(self) -> None:
        asked = msgspec.json.decode(self.rfile.read(int(self.headers["Content-Length"])))
        metadata = asked["Pod"]["metadata"]
        names = self.server.owner.allowed((metadata["namespace"], metadata["name"]), asked.get("NodeNames") or ())
        body = msgspec.json.encode({"NodeNames": names, "FailedNodes": {}})
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Arbiter:
    """One cluster, emptied between two plans."""

    def __init__(self, api: RealApi, extender: Extender) -> None:
        self._api = api
        self._extender = extender

    def refusals(self, snapshot: Snapshot, plan: Plan) -> list[str]:
        """Pods of a plan that kube-scheduler does not let run where they are planned, and what it says; best none.

        The plan's nodes are what its launch choices say. Nodes that are being deleted are gone, as the plan assumes.
        A plan is good when there is an order in which all its pods can be bound: a pod without rules that comes first
        may take the place that a rule leaves to another. Three times it is tried, with more patience each time.
        """
        pods, homes = _by_key(snapshot), _homes(plan)
        ruled = {key for key in homes if _has_rules(pods[key])}
        turns = [*_in_turn(homes, ruled), *_in_turn(homes, homes.keys() - ruled)]
        said: list[str] = []
        for order, patience_s in zip((turns, turns[::-1], turns), _PATIENCE_S, strict=True):
            said = self._tried(snapshot, plan, pods, order, patience_s)
            if not said:
                break
        return said

    def feasible(self, snapshot: Snapshot, patience_s: float) -> dict[Key, frozenset[str]]:
        """The nodes that pass all filters for each pod that waits, none of which is put anywhere."""
        waiting = {key: pod for key, pod in _by_key(snapshot).items() if not pod.spec.node_name}
        self._extender.homes = {}
        self._extender.refused = {}
        try:
            self._create_nodes(snapshot, Plan())
            self._create_bound(snapshot, frozenset(waiting))
            time.sleep(patience_s)
            for _, pod in sorted(waiting.items()):
                self._api.create("pods", body_of(pod))
            for key in waiting:
                self._judged(key)
            return {key: frozenset(self._extender.refused.get(key, ())) for key in waiting}
        finally:
            self._api.clean()

    def _create_bound(self, snapshot: Snapshot, but: Set[Key]) -> None:
        """Pods that run, on nodes that stay."""
        nodes = {node.metadata.name for node in snapshot.view.nodes if not node.metadata.deletion_timestamp}
        for key, pod in sorted(_by_key(snapshot).items()):
            if pod.spec.node_name in nodes and key not in but:
                self._api.create("pods", body_of(pod, on=pod.spec.node_name))

    def _tried(
        self, snapshot: Snapshot, plan: Plan, pods: Mapping[Key, Pod], order: Sequence[Key], patience_s: float
    ) -> list[str]:
        homes = _homes(plan)
        self._extender.homes = homes
        self._extender.refused = {}
        try:
            self._create_nodes(snapshot, plan)
            for volume in snapshot.view.persistent_volumes:
                self._api.apply(_with_spec(plain(volume), _VOLUME, csi={"volumeHandle": volume.metadata.name}))
            for claim in snapshot.view.persistent_volume_claims:
                self._api.apply(_with_spec(plain(claim), _CLAIM))
            self._create_bound(snapshot, homes.keys())
            time.sleep(patience_s)
            for key in order:
                self._api.create("pods", body_of(pods[key]))
                self._judged(key)
            return [self._said(key, why) for key, why in self._settled(homes).items()]
        finally:
            self._api.clean()

    def _create_nodes(self, snapshot: Snapshot, plan: Plan) -> None:
        types = [item for catalog in snapshot.catalogs for item in catalog.instance_types]
        planned = LivingCluster(snapshot.manifests.node_pools, types, now=snapshot.now)
        for claim in plan.node_claims:
            planned.start(claim)
        there = [node for node in snapshot.view.nodes if not node.metadata.deletion_timestamp]
        for node in (*there, *planned.nodes.values()):
            self._create_node(node)
        for csi in snapshot.view.csi_nodes:
            drivers = [{**plain(driver), "nodeID": csi.metadata.name} for driver in csi.spec.drivers or ()]
            self._api.create("csinodes", {"metadata": {"name": csi.metadata.name}, "spec": {"drivers": drivers}})

    def _create_node(self, node: Node) -> None:
        """Ready, with its own taints only: the API server gives every new node one more, which a controller takes."""
        body = plain(node)
        body["metadata"] = {"name": node.metadata.name, "labels": node.metadata.labels}
        self._api.create("nodes", body)
        taints = {"spec": {"taints": msgspec.to_builtins(node.spec.taints)}}
        self._api.patch("nodes", node.metadata.name, taints)

    def _judged(self, key: Key) -> None:
        """Wait until the scheduler has looked at a pod once."""
        deadline = time.monotonic() + _QUIET_S
        while time.monotonic() < deadline:
            pod = self._api.get("pods", key[1], key[0])
            if pod["spec"].get("nodeName") or pod["status"].get("conditions"):
                return
            time.sleep(_POLL_S / 5)

    def _settled(self, homes: Mapping[Key, str]) -> dict[Key, str]:
        """Wait until all are bound, or nothing happens any more; those left, with the scheduler's last word."""
        left: dict[Key, str] = dict.fromkeys(homes, "")
        changed_at = time.monotonic()
        while left and time.monotonic() < changed_at + _QUIET_S:
            time.sleep(_POLL_S)
            waiting = {}
            for pod in self._api.list("pods").items:
                key = (pod["metadata"]["namespace"], pod["metadata"]["name"])
                if key in homes and not pod["spec"].get("nodeName"):
                    waiting[key] = _word(pod)
            if waiting.keys() != left.keys():
                changed_at = time.monotonic()
            left = waiting
        return left

    def _said(self, key: Key, why: str) -> str:
        instead = ", ".join(self._extender.refused.get(key, ())) or "none"
        return f"{key[1]} may not run on {self._extender.homes[key]} but on: {instead}. {why}"


def described(snapshot: Snapshot, plan: Plan) -> str:
    """A case in short: its nodes with their labels, its pods with their homes and rules."""
    homes = _homes(plan)
    lines = [f"node {item.metadata.name} {plain(item)}" for item in snapshot.view.nodes]
    lines += [
        f"claim {claim.name} {claim.launch.zone} {claim.launch.capacity_type} {claim.labels} {claim.taints}"
        for claim in plan.node_claims
    ]
    for key, pod in sorted(_by_key(snapshot).items()):
        rules = {name: part for name, part in plain(pod)["spec"].items() if name not in ("containers", "nodeName")}
        lines.append(f"pod {key[1]} {pod.metadata.labels} on {pod.spec.node_name or '-'} to {homes.get(key)} {rules}")
    return "\n".join(lines)


def body_of(pod: Pod, on: str = "") -> dict[str, Any]:
    """A pod as a user creates it: no uid, no status, no owner."""
    body = plain(pod)
    metadata = pod.metadata
    spec = body["spec"] | ({"nodeName": on} if on else {})
    if not on:
        spec.pop("nodeName", None)
    spec["containers"] = [{**container, "image": "none"} for container in spec["containers"]]
    return {
        "metadata": {"name": metadata.name, "namespace": metadata.namespace, "labels": metadata.labels},
        "spec": spec,
    }


def plain(item: msgspec.Struct) -> dict[str, Any]:
    """An object without what is empty."""
    kind = type(item).__name__
    body: dict[str, Any] = _without_empty(msgspec.to_builtins(item))
    body.get("metadata", {}).pop("uid", None)
    body.get("metadata", {}).pop("resourceVersion", None)
    return {"kind": kind, **body}


def _with_spec(body: dict[str, Any], lacking: Mapping[str, Any], **parts: Mapping[str, Any]) -> dict[str, Any]:
    """An object with what the API server asks for and planning does not."""
    spec = {**lacking, **body.get("spec", {})}
    return {**body, "spec": spec | {name: {**spec.get(name, {}), **part} for name, part in parts.items()}}


def _without_empty(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _without_empty(item)
            for key, item in value.items()
            if item not in (None, "", [], (), {}) or key == "labelSelector"
        }
    if isinstance(value, list | tuple):
        return [_without_empty(item) for item in value]
    return value


def _by_key(snapshot: Snapshot) -> dict[Key, Pod]:
    return {(pod.metadata.namespace, pod.metadata.name): pod for pod in snapshot.view.pods}


def _homes(plan: Plan) -> dict[Key, str]:
    return {
        (pod.namespace, pod.name): group.name
        for group in (*plan.node_claims, *plan.existing_nodes)
        for pod in group.pods
    }


def _in_turn(homes: Mapping[Key, str], chosen: Set[Key]) -> Iterator[Key]:
    """Of those chosen, one for each node, then another for each, so that domains fill up side by side."""
    by_node: dict[str, list[Key]] = {}
    for key in sorted(chosen):
        by_node.setdefault(homes[key], []).append(key)
    while by_node:
        for home in sorted(by_node):
            yield by_node[home].pop(0)
        by_node = {home: keys for home, keys in by_node.items() if keys}


def _has_rules(pod: Pod) -> bool:
    """True if the nodes on which a pod may run depend on the nodes of other pods."""
    affinity = pod.spec.affinity
    sides = (affinity.pod_affinity, affinity.pod_anti_affinity) if affinity is not None else ()
    return bool(pod.spec.topology_spread_constraints) or any(side and side.required for side in sides)


def _word(pod: Mapping[str, Any]) -> str:
    conditions = pod["status"].get("conditions", [])
    return next((item.get("message", "") for item in conditions if item["type"] == "PodScheduled"), "not tried")
