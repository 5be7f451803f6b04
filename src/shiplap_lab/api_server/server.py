"""The store of an API server: objects, one counter of versions, and the rules of reading and writing them.

It is what the in-memory fake of ClusterApi and the local HTTP server both stand on. It refuses what a real API server
refuses, with the same status codes, and raises the errors of `shiplap.errors` that a client would raise for them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import lru_cache
from itertools import count
from threading import RLock
from typing import Any, TypeVar

import msgspec

from shiplap.errors import ClusterError, ObjectConflict, ObjectNotFound, ResourceVersionGone
from shiplap.kubernetes.objects import ObjectMeta, Pod, PodStatus
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.ports import Clock
from shiplap_lab.api_server import stored_claims, stored_pods
from shiplap_lab.api_server.api_resources import RESOURCES, Resource, key_of
from shiplap_lab.api_server.bodies.merge_patches import json_merge, strategic_merge
from shiplap_lab.api_server.changelog import Change, ChangeLog, Object, as_seen
from shiplap_lab.api_server.object_keys import Keys
from shiplap_lab.api_server.queries import Test, field_test, label_test

Typed = TypeVar("Typed", bound=msgspec.Struct)

_KEPT_LISTS = 256
"""Paged lists that are remembered at a time; the oldest expires first."""

_IDENTITY = (
    "name",
    "namespace",
    "uid",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)


class ObjectList(msgspec.Struct, frozen=True):
    """A page of a list, all of it as of one resourceVersion; `remaining` objects follow under `continue_token`."""

    items: list[Object]
    resource_version: str
    continue_token: str = ""
    remaining: int = 0


class ListOptions(msgspec.Struct, frozen=True):
    """Selects the objects of a kind that a list or a watch wants; an empty namespace means all."""

    namespace: str = ""
    label_selector: str = ""
    field_selector: str = ""

    def test(self, resource: Resource) -> Test:
        """The selection as one function. Raises ClusterError, status 400, when a selector is malformed."""
        return _compiled(self, resource)


@lru_cache(maxsize=4096)
def _compiled(selection: ListOptions, resource: Resource) -> Test:
    tests: list[Test] = []
    if namespace := selection.namespace:
        tests.append(lambda item: item["metadata"].get("namespace") == namespace)
    if selection.field_selector:
        tests.append(field_test(selection.field_selector, resource.fields))
    if selection.label_selector:
        tests.append(label_test(selection.label_selector))
    if not tests:
        return lambda _: True
    return tests[0] if len(tests) == 1 else lambda item: all(test(item) for test in tests)


EVERYTHING = ListOptions()

Admission = Callable[[str, Object, Object | None], Object]
"""Makes what is stored of an object that a client sends: given the plural, the object, and what it replaces."""


def _as_it_is(_plural: str, item: Object, _before: Object | None) -> Object:
    return item


_NONE: tuple[Object, None] = ({}, None)


class ApiServer:
    """An API server's objects in memory. Safe for threads; returned objects must not be changed.

    `log_limit` is how many changes watches can go back at least before they are told to list again (410).
    """

    def __init__(self, clock: Clock, *, log_limit: int = 10_000) -> None:
        self.undefined: set[str] = set()
        """Keys of resources that are not served, such as those whose CRD is not installed."""
        self._clock = clock
        self._lock = RLock()
        self._log = ChangeLog(log_limit)
        self._objects: dict[str, dict[str, Object]] = {plural: {} for plural in RESOURCES}
        self._keys = {plural: Keys() for plural in RESOURCES}
        self._typed: dict[str, tuple[Object, msgspec.Struct | None]] = {}
        self._lists: OrderedDict[str, ObjectList] = OrderedDict()
        self._list_numbers = count()

    def at_once(self) -> AbstractContextManager[object]:
        """Everything written in this context is seen together: neither list nor watch shows a part of it."""
        return self._lock

    def on_write(self, listener: Callable[[str, str, Object], object]) -> None:
        """Have a listener called with each write: ADDED, MODIFIED or DELETED, the plural and the object."""
        self._log.on_write.append(listener)

    @property
    def resource_version(self) -> str:
        """The version everything written so far stands for."""
        return str(self._log.newest)

    @property
    def now(self) -> float:
        """The server's time, in epoch seconds."""
        return self._clock.now()

    def trial(self, plural: str, name: str, namespace: str = "") -> ApiServer:
        """A server that holds nothing but this object, if there is one: what is done to it there stays there."""
        other = ApiServer(self._clock)
        try:
            item = self.get(plural, name, namespace)
        except ObjectNotFound:
            return other
        key = _key_of(item)
        other._objects[plural][key] = item
        other._keys[plural].put(key, item, None)
        return other

    def create(self, plural: str, body: Object, namespace: str = "", *, admit: Admission = _as_it_is) -> Object:
        """Store a new object. A uid that is given is kept, so that tests can name it; real API servers choose one.

        Raises:
            ObjectConflict: an object of this name exists.
            ClusterError: status 422, it has no name.
        """
        resource = self._resource(plural)
        with self._lock:
            body = _copied(body)  # what the caller does with its own object later must not reach the stored one
            given = body.get("metadata") or {}
            name = given.get("name") or self._generated_name(given)
            metadata = {**given, "name": name, "creationTimestamp": self._now()}
            metadata.pop("generateName", None)
            if resource.namespaced:
                metadata["namespace"] = namespace or given.get("namespace") or "default"
            metadata.setdefault("uid", f"{plural}-{self._log.newest + 1:012d}")
            key = _key(metadata.get("namespace", ""), name)
            if key in self._objects[plural]:
                raise ObjectConflict(f'{plural} "{name}" already exists', status=409)
            if resource.counts_generation:
                metadata["generation"] = 1
            item = {"apiVersion": resource.api_version, "kind": resource.kind, **body, "metadata": metadata}
            item = admit(plural, item, None)
            if plural == "pods":
                item = stored_pods.defaulted(item, self._now())
            elif plural == "persistentvolumeclaims":
                item = stored_claims.with_default_class(item, self._objects["storageclasses"].values())
            return self._write("ADDED", plural, key, item)

    def get(self, plural: str, name: str, namespace: str = "") -> Object:
        """Raises ObjectNotFound."""
        resource = self._resource(plural)
        with self._lock:
            key = _key((namespace or "default") if resource.namespaced else "", name)
            try:
                return self._objects[plural][key]
            except KeyError:
                raise ObjectNotFound(f'{plural} "{name}" not found', status=404) from None

    def list(
        self, plural: str, selection: ListOptions = EVERYTHING, *, limit: int = 0, continue_token: str = ""
    ) -> ObjectList:
        """Objects sorted by namespace and name; all pages of a list show the moment of its first.

        Raises:
            ResourceVersionGone: the continue token has expired.
            ClusterError: status 400, a selector or the token is malformed.
        """
        resource = self._resource(plural)
        with self._lock:
            if continue_token:
                whole, start = self._continued(continue_token)
            else:
                test = selection.test(resource)
                stored = self._objects[plural]
                keys = self._keys[plural].chosen(selection.field_selector, selection.namespace)
                items = [item for item in map(stored.__getitem__, keys) if test(item)]
                whole, start = ObjectList(items, self.resource_version), 0
            end = start + limit if limit else len(whole.items)
            remaining = max(0, len(whole.items) - end)
            token = self._token(whole, end, continue_token) if remaining else ""
            return ObjectList(whole.items[start:end], whole.resource_version, token, remaining)

    def typed(self, item: Object, kind: type[Typed]) -> Typed:
        """A stored object as a struct, made once per version of the object: most of what is read rarely changes.

        Most writes to a pod leave its spec alone: so does what is made of it.
        """
        uid = item["metadata"]["uid"]
        stored, known = self._typed.get(uid, _NONE)
        if stored is item and type(known) is kind:
            return known
        made: Any
        if kind is Pod and type(known) is Pod and item["spec"] is stored["spec"]:
            status = msgspec.convert(item.get("status") or {}, PodStatus)
            made = Pod(msgspec.convert(item["metadata"], ObjectMeta), known.spec, status)
        else:
            made = msgspec.convert(item, kind)
        self._typed[uid] = (item, made)
        return made  # type: ignore[no-any-return]

    def replace(
        self,
        plural: str,
        body: Object,
        namespace: str = "",
        *,
        subresource: str = "",
        admit: Admission = _as_it_is,
    ) -> Object:
        """Put an object in the place of the one of its name, refused when its resourceVersion is not current.

        Raises:
            ObjectNotFound, ObjectConflict.
            ClusterError: status 422, an immutable field differs.
        """
        metadata = body["metadata"]
        with self._lock:
            current = self.get(plural, metadata["name"], namespace or metadata.get("namespace", ""))
            return self._update(plural, current, _copied(body), subresource, admit)

    def apply(self, body: Object) -> Object:
        """Create an object, or put it, status included, in the place of the one of its kind and name."""
        plural = key_of(body)
        with self._lock:
            try:
                namespace = body["metadata"].get("namespace", "")
                current = self.get(plural, body["metadata"]["name"], namespace)
            except ObjectNotFound:
                return self.create(plural, body)
            body = _copied(body)
            result = self._update(plural, current, body, "")
            return self._update(plural, result, body, "status") if "status" in body else result

    def patch(
        self,
        plural: str,
        name: str,
        patch: Object,
        namespace: str = "",
        *,
        strategic: bool = False,
        subresource: str = "",
        admit: Admission = _as_it_is,
    ) -> Object:
        """Merge a patch into an object; a resourceVersion or uid in it is a precondition.

        Raises:
            ObjectNotFound, ObjectConflict: as `replace` does, but with status 422 when it is the uid that differs: to
                an API server, a patch that names another uid would change it.
        """
        kind = RESOURCES[plural].kind if plural in RESOURCES else ""
        with self._lock:
            current = self.get(plural, name, namespace)
            uid = (patch.get("metadata") or {}).get("uid")
            if uid and uid != current["metadata"]["uid"]:
                message = f'{plural} "{name}" is invalid: metadata.uid: Invalid value: "{uid}": field is immutable'
                raise ObjectConflict(message, status=422)
            patch = _copied(patch)
            merged = strategic_merge(current, patch, kind) if strategic else json_merge(current, patch)
            return self._update(plural, current, merged, subresource, admit)

    def change(
        self,
        plural: str,
        name: str,
        changed: Callable[[Object], Object],
        namespace: str = "",
        *,
        subresource: str = "",
        admit: Admission = _as_it_is,
    ) -> Object:
        """Put what a function makes of an object in its place.

        Raises:
            ObjectNotFound, ObjectConflict: as `replace` does.
        """
        with self._lock:
            current = self.get(plural, name, namespace)
            return self._update(plural, current, _copied(changed(current)), subresource, admit)

    def delete(
        self, plural: str, name: str, namespace: str = "", *, grace_s: int | None = None, uid: str = ""
    ) -> Object:
        """Delete an object, or mark it while finalizers or a pod's grace period (seconds) hold it back.

        Raises:
            ObjectNotFound.
            ObjectConflict: the object of this name has another uid.
        """
        with self._lock:
            current = self.get(plural, name, namespace)
            metadata = current["metadata"]
            if uid and uid != metadata["uid"]:
                raise ObjectConflict(f"{plural} {name!r} has uid {metadata['uid']}, not {uid}", status=409)
            grace = 0
            if plural == "pods":
                normal = stored_pods.deletion_grace_s(current)
                grace = normal if grace_s is None else min(grace_s, normal)
            granted = metadata.get("deletionGracePeriodSeconds")
            if not grace and not metadata.get("finalizers"):
                return self._remove(plural, current)
            if granted is not None and grace >= granted:
                return current
            marked = {
                **metadata,
                "deletionTimestamp": rfc3339(self._clock.now() + grace),
                "deletionGracePeriodSeconds": grace,
            }
            return self._write("MODIFIED", plural, _key_of(current), {**current, "metadata": marked})

    def bind(self, name: str, node: str, namespace: str = "", *, uid: str = "") -> Object:
        """Assign a pod to a node, as the Binding API does.

        Raises:
            ObjectNotFound.
            ObjectConflict: it has a node already, or the pod of this name has another uid.
        """
        with self._lock:
            pod = self.get("pods", name, namespace)
            if uid and uid != pod["metadata"]["uid"]:
                raise ObjectConflict(f"pods {name!r} has uid {pod['metadata']['uid']}, not {uid}", status=409)
            return self._write("MODIFIED", "pods", _key_of(pod), stored_pods.bound(pod, node, self._now()))

    def evict(self, name: str, namespace: str = "", *, grace_s: int | None = None, uid: str = "") -> Object:
        """Delete a pod if PodDisruptionBudgets allow it.

        Raises:
            ObjectNotFound.
            ObjectConflict: the pod of this name has another uid.
            TooManyRequests: a budget forbids it now.
            ClusterError: status 500, several budgets cover the pod.
        """
        with self._lock:
            pod = self.get("pods", name, namespace)
            around = ListOptions(namespace=pod["metadata"]["namespace"])
            budgets = self.list("poddisruptionbudgets", around).items
            stored_pods.check_eviction(pod, self.list("pods", around).items if budgets else [], budgets)
            return self.delete("pods", name, namespace, grace_s=grace_s, uid=uid)

    def changes(
        self, plural: str, resource_version: str, selection: ListOptions = EVERYTHING
    ) -> tuple[tuple[Change, ...], str]:
        """Return the changes that a watch from a version sees until now, and the version that it has caught up with.

        Without a version, or with "0", the objects that exist come first as ADDED.

        Raises:
            ResourceVersionGone: the version is too old.
            ClusterError: status 400, a selector or the version is malformed.
        """
        test = selection.test(self._resource(plural))
        with self._lock:
            newest = self._log.newest
            if resource_version in ("", "0"):
                items = self.list(plural, selection).items
                return tuple(Change(newest, "ADDED", plural, item) for item in items), str(newest)
            if not resource_version.isdecimal():
                raise ClusterError(f"invalid resource version {resource_version!r}", status=400)
            changes = self._log.since(int(resource_version))
        mine = [change for change in changes if change.plural == plural]
        if selection == EVERYTHING:
            return tuple(mine), str(newest)
        seen = (as_seen(change, test) for change in mine)
        return tuple(change for change in seen if change is not None), str(newest)

    def wait(self, resource_version: str, timeout_s: float) -> bool:
        """Block until something newer than the version is written; False when the timeout passes first."""
        return self._log.wait(int(resource_version), timeout_s)

    def compact(self, keep: int = 0) -> None:
        """Forget old changes and paged lists, as etcd does every few minutes."""
        with self._lock:
            self._log.compact(keep)
            self._lists.clear()

    def _update(
        self, plural: str, current: Object, wanted: Object, subresource: str, admit: Admission = _as_it_is
    ) -> Object:
        metadata, wanted_meta = current["metadata"], wanted.get("metadata") or {}
        for field in ("resourceVersion", "uid"):
            if wanted_meta.get(field) and wanted_meta[field] != metadata[field]:
                raise ObjectConflict(
                    f'Operation cannot be fulfilled on {plural} "{metadata["name"]}": {field} is {metadata[field]}, '
                    f"not {wanted_meta[field]}; the object has been modified",
                    status=409,
                )
        if subresource == "status":
            result = admit(plural, {**current, "status": wanted.get("status") or {}}, current)
        else:
            kept = {field: metadata[field] for field in _IDENTITY if field in metadata}
            result = {**wanted, "metadata": {**wanted_meta, **kept, "resourceVersion": metadata["resourceVersion"]}}
            if RESOURCES[plural].has_status:
                result.pop("status", None)
                if "status" in current:
                    result["status"] = current["status"]
            result = admit(plural, result, current)
            if RESOURCES[plural].counts_generation and result.get("spec") != current.get("spec"):
                result["metadata"]["generation"] = metadata.get("generation", 0) + 1
        if plural == "pods" and result["spec"].get("nodeName") != current["spec"].get("nodeName"):
            raise ClusterError("spec.nodeName: Forbidden: pods are assigned by their binding", status=422)
        if plural == "pods" and stored_pods.nominated_too_late(current, result):
            raise ObjectConflict(
                f'pods "{metadata["name"]}" is invalid: status.nominatedNodeName: Forbidden: '
                "may not be set on pods that are already bound to a node",
                status=422,
            )
        if result == current:
            return current
        done = metadata.get("deletionGracePeriodSeconds") == 0 and not result["metadata"].get("finalizers")
        return self._remove(plural, result) if done else self._write("MODIFIED", plural, _key_of(current), result)

    def _write(self, kind: str, plural: str, key: str, item: Object) -> Object:
        stored = {**item, "metadata": {**item["metadata"], "resourceVersion": str(self._log.newest + 1)}}
        previous = self._objects[plural].get(key)
        self._objects[plural][key] = stored
        self._keys[plural].put(key, stored, previous)
        self._log.append(kind, plural, stored, previous)
        return stored

    def _remove(self, plural: str, item: Object) -> Object:
        previous = self._objects[plural].pop(_key_of(item))
        self._keys[plural].drop(_key_of(item), previous)
        self._typed.pop(item["metadata"]["uid"], None)
        last = {**item, "metadata": {**item["metadata"], "resourceVersion": str(self._log.newest + 1)}}
        self._log.append("DELETED", plural, last, previous)
        return last

    def _continued(self, token: str) -> tuple[ObjectList, int]:
        name, _, offset = token.partition(".")
        if not offset.isdecimal():
            raise ClusterError("continue key is not valid", status=400)
        if name not in self._lists:
            raise ResourceVersionGone("The provided continue parameter is too old", status=410)
        return self._lists[name], int(offset)

    def _token(self, whole: ObjectList, offset: int, previous: str) -> str:
        name = previous.partition(".")[0]
        if not name:
            name = f"{whole.resource_version}-{next(self._list_numbers)}"
            self._lists[name] = whole
            if len(self._lists) > _KEPT_LISTS:
                self._lists.popitem(last=False)
        return f"{name}.{offset}"

    def _generated_name(self, metadata: Object) -> str:
        prefix = metadata.get("generateName")
        if not prefix:
            raise ClusterError("metadata.name: Required value: name or generateName is required", status=422)
        return f"{prefix}{self._log.newest + 1:05x}"

    def _now(self) -> str:
        return rfc3339(self._clock.now())

    def _resource(self, plural: str) -> Resource:
        if plural not in RESOURCES or plural in self.undefined:
            raise ObjectNotFound(f"the server could not find the requested resource {plural!r}", status=404)
        return RESOURCES[plural]


def _copied(item: Any) -> Any:
    """A copy of JSON that shares no list and no object with it."""
    if isinstance(item, dict):
        return {key: _copied(value) for key, value in item.items()}
    return [_copied(value) for value in item] if isinstance(item, list) else item


def _key(namespace: str, name: str) -> str:
    return f"{namespace}/{name}"


def _key_of(item: Any) -> str:
    return _key(item["metadata"].get("namespace", ""), item["metadata"]["name"])
