"""The garbage collector: what belongs to an object goes with it, unless whoever deletes it says otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shiplap.errors import ObjectNotFound
from shiplap_lab.api_server.api_resources import RESOURCES
from shiplap_lab.api_server.changelog import Object
from shiplap_lab.api_server.server import ApiServer, ListOptions
from shiplap_lab.cluster_simulator.workloads.workload_labels import JOB_TRACKING, without_tracking

OWNERS = ("deployments", "replicasets", "replicationcontrollers", "statefulsets", "daemonsets", "jobs", "cronjobs")
_DEPENDENTS = ("replicasets", "jobs", "controllerrevisions", "pods")

FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"
"""Finalizers by which an object waits for its dependents to go, or to be set free."""


class GarbageCollector:
    """Deletes dependents of owners that it has seen. An owner that was never stored holds nothing together.

    Attributes:
        seen: uids of all owners that were ever stored.
    """

    def __init__(self, server: ApiServer) -> None:
        self.seen: set[str] = set()
        self._server = server
        self._present: set[str] = set()

    def step(self) -> None:
        """Delete what lost its last owner since the step before, and see to owners that wait for their dependents."""
        owners = {item["metadata"]["uid"]: (plural, item) for plural, item in self._all(OWNERS)}
        gone = self._present - owners.keys()
        self._present = set(owners)
        self.seen |= owners.keys()
        waiting = {
            uid: kept
            for uid, (_, item) in owners.items()
            if item["metadata"].get("deletionTimestamp")
            and (kept := {FOREGROUND, ORPHAN} & set(item["metadata"].get("finalizers") or []))
        }
        if not gone and not waiting:
            return
        held = set()
        for plural, item in self._all(_DEPENDENTS):
            uids = _owner_uids(item)
            if uids & gone and not uids & owners.keys():
                self._delete(plural, item)
            for uid in uids & waiting.keys():
                if ORPHAN in waiting[uid]:
                    self._set_free(plural, item, uid)
                elif uids <= waiting.keys():
                    held.add(uid)
                    self._delete(plural, item, FOREGROUND)
        for uid in waiting.keys() - held:
            self._let_go(*owners[uid])

    def look(self) -> None:
        """Learn of owners that were created since the step: from now on their dependents go with them."""
        uids = {item["metadata"]["uid"] for _, item in self._all(OWNERS)}
        self._present |= uids
        self.seen |= uids

    def _all(self, plurals: tuple[str, ...]) -> Iterator[tuple[str, Object]]:
        for plural in plurals:
            for item in self._server.list(plural).items:
                yield plural, item

    def _delete(self, plural: str, item: Object, finalizer: str = "") -> None:
        if item["metadata"].get("deletionTimestamp"):
            return
        if JOB_TRACKING in (item["metadata"].get("finalizers") or []):
            self._patch(plural, item, without_tracking(item["metadata"]))
        finalizer = finalizer if plural in OWNERS else ""
        delete(self._server, plural, item["metadata"]["name"], item["metadata"]["namespace"], finalizer)

    def _set_free(self, plural: str, item: Object, uid: str) -> None:
        left = [owner for owner in item["metadata"]["ownerReferences"] if owner.get("uid") != uid]
        self._patch(plural, item, {"ownerReferences": left or None, **without_tracking(item["metadata"])})

    def _let_go(self, plural: str, item: Object) -> None:
        left = [name for name in item["metadata"]["finalizers"] if name not in (FOREGROUND, ORPHAN)]
        self._patch(plural, item, {"finalizers": left or None})
        try:
            self._server.delete(plural, item["metadata"]["name"], item["metadata"]["namespace"])
        except ObjectNotFound:
            return  # the patch that took the last finalizer away has removed it

    def _patch(self, plural: str, item: Object, metadata: dict[str, Any]) -> None:
        name, namespace = item["metadata"]["name"], item["metadata"]["namespace"]
        self._server.patch(plural, name, {"metadata": metadata}, namespace)


def delete(server: ApiServer, plural: str, name: str, namespace: str, finalizer: str) -> Object:
    """Delete an object that first waits for what its finalizer stands for. Raises ObjectNotFound."""
    with server.at_once():
        if finalizer:
            current = server.get(plural, name, namespace)
            finalizers = [*(current["metadata"].get("finalizers") or []), finalizer]
            server.patch(plural, name, {"metadata": {"finalizers": finalizers}}, namespace)
        return server.delete(plural, name, namespace)


def delete_contents(server: ApiServer, namespace: str) -> None:
    """Delete all objects of a namespace that is gone, owners first, so that nobody makes dependents anew."""
    plurals = [plural for plural, resource in RESOURCES.items() if resource.namespaced]
    with server.at_once():
        for plural in sorted(plurals, key=lambda each: (each not in OWNERS, each)):
            for item in server.list(plural, ListOptions(namespace)).items:
                server.delete(plural, item["metadata"]["name"], namespace)


def _owner_uids(item: Object) -> set[str]:
    return {owner.get("uid", "") for owner in item["metadata"].get("ownerReferences") or []}
