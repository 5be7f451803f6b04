"""A Region as it was last seen, from what crosses the ports as raw JSON. It imports nothing of what it describes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from shiplap_lab.judge import raw_json
from shiplap_lab.judge.raw_json import Json

ENDED = ("Gone", "Failed")

ClaimKey = tuple[str, str, str]  # install, cluster and name


class ClaimFacts(raw_json.ClaimItem, frozen=True):
    """The fields of a claim's item that the judge looks at, and those that are told or that call for a step."""

    node_class: str = ""
    tier: int = 0
    zone: str = ""
    capacity_type: str = ""
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    startup_taints: tuple[dict[str, Any], ...] = ()
    changed_at: float = 0.0
    first_event_at: float = 0.0

    @property
    def has_instance(self) -> bool:
        """True if the claim pays for an instance, as far as it knows."""
        return bool(self.instance_id) and self.state not in ENDED


class CommandFacts(raw_json.CommandItem, frozen=True):
    """The fields of a disruption command's item; money in USD per hour."""

    savings_hourly: float = 0.0


_CLAIMS = msgspec.json.Decoder(ClaimFacts)
_COMMANDS = msgspec.json.Decoder(CommandFacts)


class RegionFacts:
    """Items of all installs, objects of all clusters, and instances.

    Attributes:
        claims, commands: by install, cluster and name.
        nodes: the Nodes that are there, by cluster and instance.
        last_nodes: the same with those that are gone, as they were last.
        pods: those that are there, by cluster and uid.
        names: namespace and name of each pod that ever was, by cluster and uid.
        explained: uids of pods that an Event has told why they wait, by cluster.
        running: ids of instances.
        warned: ids of instances that spot takes back.
        changed_at: epoch seconds of the last change of claims, and of pods, by cluster.
    """

    def __init__(self) -> None:
        self.claims: dict[ClaimKey, ClaimFacts] = {}
        self.commands: dict[ClaimKey, CommandFacts] = {}
        self.nodes: dict[tuple[str, str], Json] = {}
        self.last_nodes: dict[tuple[str, str], Json] = {}
        self.pods: dict[str, dict[str, Json]] = {}
        self.names: dict[tuple[str, str], tuple[str, str]] = {}
        self.explained: set[tuple[str, str]] = set()
        self.running: set[str] = set()
        self.warned: set[str] = set()
        self.changed_at: dict[tuple[str, str], float] = {}

    def claim_written(self, install: str, stored: str | bytes, now: float) -> tuple[ClaimFacts | None, ClaimFacts]:
        """An item of a claim is durable: what it was before, if it was there, and what it is."""
        claim = _CLAIMS.decode(raw_json.plain(stored))
        key = (install, claim.cluster, claim.name)
        before = self.claims.get(key)
        self.claims[key] = claim
        self.changed_at["claims", claim.cluster] = now
        return before, claim

    def command_written(self, install: str, stored: str | bytes) -> tuple[CommandFacts | None, CommandFacts]:
        """The same for a disruption command."""
        command = _COMMANDS.decode(raw_json.plain(stored))
        key = (install, command.cluster, command.name)
        before = self.commands.get(key)
        self.commands[key] = command
        return before, command

    def table_restored(
        self, install: str, claims: Sequence[str | bytes], commands: Sequence[str | bytes], now: float
    ) -> None:
        """Table `state` is as it was at an earlier moment."""
        self.claims = {key: claim for key, claim in self.claims.items() if key[0] != install}
        self.commands = {key: command for key, command in self.commands.items() if key[0] != install}
        for stored in claims:
            self.claim_written(install, stored, now)
        for stored in commands:
            self.command_written(install, stored)

    def object_written(self, cluster: str, kind: str, plural: str, item: Json, now: float) -> None:
        """The API server has stored or removed (`DELETED`) an object."""
        if plural == "pods":
            uid, pods = item["metadata"]["uid"], self.pods.setdefault(cluster, {})
            self.names[cluster, uid] = (item["metadata"].get("namespace", ""), item["metadata"]["name"])
            self.changed_at["pods", cluster] = now
            pods[uid] = item
            if kind == "DELETED":
                del pods[uid]
        elif plural == "nodes":
            machine = (cluster, raw_json.machine_of(item))
            self.nodes[machine] = self.last_nodes[machine] = item
            if kind == "DELETED":
                del self.nodes[machine]
        elif plural == "events":
            self.explained.add((cluster, (item.get("involvedObject") or {}).get("uid", "")))

    def event_sent(self, body: Json) -> None:
        """EC2 has sent an event."""
        if body["detail-type"] == "EC2 Spot Instance Interruption Warning":
            self.warned.add(body["detail"]["instance-id"])

    def node_of(self, claim: ClaimFacts) -> Json | None:
        """The Node of a claim's instance, if there is one."""
        return self.nodes.get((claim.cluster, claim.instance_id)) if claim.instance_id else None

    def open_claims(self, cluster: str = "") -> Iterator[ClaimFacts]:
        """Claims that have not ended, of a cluster or of all."""
        for claim in self.claims.values():
            if claim.state not in ENDED and cluster in ("", claim.cluster):
                yield claim

    def waiting(self, cluster: str) -> Mapping[str, Json]:
        """Pods that kube-scheduler has found no node for, by uid."""
        return {uid: pod for uid, pod in self.pods.get(cluster, {}).items() if _is_unschedulable(pod)}


def allocatable(node: Json | None) -> Mapping[str, Any]:
    """Return the resources that a Node has for pods, in units; nothing before its kubelet has reported them."""
    status = (node.get("status") or {}) if node is not None else {}
    return raw_json.amounts(status.get("allocatable"))


def _is_unschedulable(pod: Json) -> bool:
    status, metadata = pod.get("status") or {}, pod["metadata"]
    if pod["spec"].get("nodeName") or status.get("nominatedNodeName") or metadata.get("deletionTimestamp"):
        return False
    if raw_json.owner_kind(pod) in ("DaemonSet", "Node"):
        return False
    return any(known.get("reason") == "Unschedulable" for known in status.get("conditions") or ())
