"""A real API server as tests arrange a cluster on it: the methods of the fake's ApiServer, as an administrator.

So a test written for the one arranges its case on the other. What a real server does otherwise than store what it is
told is made up for here: a status is written after its object, as controllers write it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

import msgspec
import urllib3

from shiplap.cluster.transport import error_of
from shiplap.errors import ClusterUnreachable, ObjectConflict, ObjectNotFound
from shiplap_lab.api_server.api_resources import PLURALS, RESOURCES, Resource
from shiplap_lab.api_server.server import EVERYTHING, ListOptions, ObjectList
from tests.e2e.control_plane import ADMINISTRATOR, ControlPlane

Object = dict[str, Any]

OTHERS = {
    resource.plural: resource
    for resource in (
        Resource("", "v1", "serviceaccounts", "ServiceAccount"),
        Resource("", "v1", "limitranges", "LimitRange"),
        Resource("batch", "v1", "jobs", "Job", has_status=True),
        Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", False),
        Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", False),
        Resource("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", False),
        Resource("storage.k8s.io", "v1", "csidrivers", "CSIDriver", False),
        Resource("flowcontrol.apiserver.k8s.io", "v1", "flowschemas", "FlowSchema", False),
        Resource(
            "flowcontrol.apiserver.k8s.io", "v1", "prioritylevelconfigurations", "PriorityLevelConfiguration", False
        ),
    )
}
"""Kinds that tests create and the fake does not know."""

_ALL = RESOURCES | OTHERS
_KINDS = PLURALS | {resource.kind: plural for plural, resource in OTHERS.items()}
_PATCHES = {True: "application/strategic-merge-patch+json", False: "application/merge-patch+json"}
_CHECK_S = 30.0
_KEPT_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")


class RealApi:
    """The API server of a control plane. Raises the errors of `shiplap.errors` by the status of each answer."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._created: list[tuple[str, str, str]] = []
        self._http = urllib3.connection_from_url(
            plane.endpoint, maxsize=8, ca_certs=str(plane.folder / "ca.crt"), retries=False
        )
        self._token = plane.tokens[ADMINISTRATOR]

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    @property
    def resource_version(self) -> str:
        """The version everything written so far stands for."""
        return str(self._ask("GET", "/api/v1/namespaces?limit=1")["metadata"]["resourceVersion"])

    def create(self, plural: str, body: Object, namespace: str = "") -> Object:
        """Store an object, then its status if it has one. A namespace is made when it is missing."""
        resource = _ALL[plural]
        given = body.get("metadata") or {}
        namespace = (namespace or given.get("namespace") or "default") if resource.namespaced else ""
        if namespace not in ("", "default"):
            self._make_namespace(namespace)
        whole = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
        if resource.namespaced:
            whole["metadata"] = {**given, "namespace": namespace}
        created = self._ask("POST", _path(resource, namespace), whole)
        name = created["metadata"]["name"]
        self._created.append((plural, name, namespace))
        if body.get("status") and resource.has_status and plural != "nodes":  # a Node keeps what it is created with
            created = self.patch(plural, name, {"status": body["status"]}, namespace, subresource="status")
        return created

    def apply(self, body: Object) -> Object:
        """Create an object of any known kind."""
        return self.create(_KINDS[body["kind"]], body)

    def get(self, plural: str, name: str, namespace: str = "") -> Object:
        return self._ask("GET", self._path_of(plural, name, namespace))

    def list(
        self, plural: str, selection: ListOptions = EVERYTHING, *, limit: int = 0, continue_token: str = ""
    ) -> ObjectList:
        """One page, or everything when no limit is given."""
        query = {
            "fieldSelector": selection.field_selector,
            "labelSelector": selection.label_selector,
            "limit": str(limit) if limit else "",
            "continue": continue_token,
        }
        path = _path(_ALL[plural], selection.namespace)
        answer = self._ask("GET", path, fields={name: value for name, value in query.items() if value})
        metadata = answer["metadata"]
        items = answer["items"] or []
        return ObjectList(
            items, metadata["resourceVersion"], metadata.get("continue", ""), metadata.get("remainingItemCount", 0)
        )

    def patch(
        self,
        plural: str,
        name: str,
        patch: Object,
        namespace: str = "",
        *,
        strategic: bool = False,
        subresource: str = "",
    ) -> Object:
        path = self._path_of(plural, name, namespace, subresource)
        return self._ask("PATCH", path, patch, content_type=_PATCHES[strategic])

    def delete(
        self, plural: str, name: str, namespace: str = "", *, grace_s: int | None = None, uid: str = ""
    ) -> Object:
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        if uid:
            options["preconditions"] = {"uid": uid}
        return self._ask("DELETE", self._path_of(plural, name, namespace), options)

    def bind(self, name: str, node: str, namespace: str = "", *, uid: str = "") -> Object:
        """Bind a pod in the scheduler's place."""
        namespace = namespace or "default"
        metadata = {"name": name, "namespace": namespace, **({"uid": uid} if uid else {})}
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
        return self._ask("POST", self._path_of("pods", name, namespace, "binding"), body)

    def scale(self, plural: str, name: str, replicas: int, namespace: str = "") -> None:
        """Set the number of pods of a workload."""
        self.patch(plural, name, {"spec": {"replicas": replicas}}, namespace)

    def token_of(self, service_account: str, namespace: str) -> str:
        """A token of a service account, as TokenRequest issues it."""
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{service_account}/token"
        token: str = self._ask("POST", path, body)["status"]["token"]
        return token

    def compact(self) -> None:
        """Make the server forget the past."""
        self._plane.compact()

    def settle(self, budgets: dict[str, int]) -> None:
        """Wait until these PodDisruptionBudgets of the namespace `default` allow so many evictions."""
        for name, allowed in budgets.items():

            def told(name: str = name, allowed: int = allowed) -> bool:
                budget = self.get("poddisruptionbudgets", name)
                seen = budget["status"].get("observedGeneration") == budget["metadata"]["generation"]
                return seen and budget["status"]["disruptionsAllowed"] == allowed

            _until(told)

    def clean(self) -> None:
        """Remove everything created through this object, and all pods, nodes and events, at once."""
        for plural, name, namespace in reversed(self._created):
            if plural not in ("pods", "namespaces"):
                self._remove(plural, name, namespace)
        for plural in ("pods", "events", "nodes", "persistentvolumeclaims"):
            for item in self.list(plural).items:
                self._remove(plural, item["metadata"]["name"], item["metadata"].get("namespace", ""))
        for item in self.list("namespaces").items:
            if item["metadata"]["name"] not in _KEPT_NAMESPACES:
                self._remove_namespace(item["metadata"]["name"])
        self._created.clear()

    def _remove(self, plural: str, name: str, namespace: str) -> None:
        try:
            left = self.delete(plural, name, namespace, grace_s=0)
            if (left.get("metadata") or {}).get("finalizers"):
                self.patch(plural, name, {"metadata": {"finalizers": None}}, namespace)
        except ObjectNotFound:
            pass  # somebody else was faster

    def _remove_namespace(self, name: str) -> None:
        """Without the controller that empties it first."""
        left = self.delete("namespaces", name)
        if left.get("kind") == "Namespace":
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}, "spec": {"finalizers": []}}
            self._ask("PUT", f"/api/v1/namespaces/{name}/finalize", body)

    def _make_namespace(self, name: str) -> None:
        try:
            self.get("namespaces", name)
        except ObjectNotFound:
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            self._ask("POST", "/api/v1/namespaces", body)
        try:
            self.make_default_account(name)
        except ObjectConflict:
            pass  # by the controller, where it runs

    def make_default_account(self, namespace: str) -> None:
        """The service account without which no pod is admitted; a controller of a whole control plane makes it."""
        body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        self._ask("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", body)

    def _path_of(self, plural: str, name: str, namespace: str, subresource: str = "") -> str:
        resource = _ALL[plural]
        path = f"{_path(resource, (namespace or 'default') if resource.namespaced else '')}/{name}"
        return f"{path}/{subresource}" if subresource else path

    def _ask(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        *,
        content_type: str = "application/json",
        fields: dict[str, str] | None = None,
    ) -> Any:
        headers = {"Authorization": f"Bearer {self._token}"}
        data = None
        if body is not None:
            headers["Content-Type"] = content_type
            data = msgspec.json.encode(body)
        if fields:
            path = f"{path}?{urlencode(fields)}"
        try:
            response = self._http.request(method, path, body=data, headers=headers, timeout=60)
        except urllib3.exceptions.HTTPError as error:
            raise ClusterUnreachable(f"{method} {path}: {error}") from error
        answer = msgspec.json.decode(response.data) if response.data else {}
        if response.status >= 400:
            raise error_of(response.status, f"{method} {path}: {answer.get('message', response.data)}")
        return answer


@contextmanager
def api_of(plane: ControlPlane) -> Iterator[RealApi]:
    """An administrator's client, closed afterwards."""
    api = RealApi(plane)
    try:
        yield api
    finally:
        api.close()


def _path(resource: Resource, namespace: str) -> str:
    root = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    return f"{root}/namespaces/{namespace}/{resource.plural}" if namespace else f"{root}/{resource.plural}"


def _until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _CHECK_S
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not so after {_CHECK_S:.0f} s")
        time.sleep(0.05)
