"""Asking a real API server what it would say of a custom resource, without storing it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, NamedTuple

import urllib3

from shiplap_lab.api_server.api_resources import Resource
from tests.crds.schemas import FILES, WRITTEN_BY_US, crd_of
from tests.e2e.control_plane import ADMINISTRATOR, ControlPlane

Object = dict[str, Any]

_CONNECTIONS = 6
_ESTABLISHED_TIMEOUT_S = 30.0


class Answer(NamedTuple):
    """The answer of the API server; `stored` is the object with defaults if the server accepted it.

    `causes` are (field, message) of each refusal; those of a refusal as a whole have no field.
    """

    accepted: bool
    stored: Object
    causes: tuple[tuple[str, str], ...]


def definition_of(resource: Resource) -> Object:
    """Return a CRD that takes any fields, for kinds whose definition comes with other software."""
    names = {"kind": resource.kind, "plural": resource.plural, "singular": resource.kind.lower()}
    served = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
        "subresources": {"status": {}} if resource.has_status else {},
    }
    scope = "Namespaced" if resource.namespaced else "Cluster"
    meta = {
        "name": f"{resource.plural}.{resource.group}",
        # The API server demands a review of CRDs in groups of Kubernetes.
        "annotations": {"api-approved.kubernetes.io": "unapproved, a test's"},
    }
    spec = {"group": resource.group, "names": names, "scope": scope, "versions": [served]}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": meta, "spec": spec}


class DryRuns:
    """Upstream's CRDs installed on a control plane. Unknown fields are errors, as `kubectl apply` asks for it."""

    def __init__(self, plane: ControlPlane) -> None:
        self._http = urllib3.connection_from_url(
            plane.endpoint, ca_certs=str(plane.folder / "ca.crt"), retries=False, maxsize=_CONNECTIONS
        )
        self._headers = {"Authorization": f"Bearer {plane.tokens[ADMINISTRATOR]}", "Content-Type": "application/json"}
        self._threads = ThreadPoolExecutor(_CONNECTIONS)

    def __enter__(self) -> DryRuns:
        for kind in (*FILES, *WRITTEN_BY_US):
            self.install(crd_of(kind))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._threads.shutdown()
        self._http.close()

    def create(self, manifest: Object) -> Answer:
        """Ask the API server whether it could create the object."""
        return self._ask("POST", _path(manifest), manifest)

    def create_all(self, manifests: Iterable[Object]) -> Iterator[Answer]:
        """The answers in order, asked for at the same time."""
        return self._threads.map(self.create, manifests)

    def store(self, manifest: Object) -> None:
        """Create it indeed."""
        answer = self._ask("POST", _path(manifest), manifest, dry_run=False)
        assert answer.accepted, answer.causes

    def replace(self, manifest: Object) -> Answer:
        """Ask the API server whether the manifest could replace the stored object of its name."""
        path = f"{_path(manifest)}/{manifest['metadata']['name']}"
        stored = self._ask("GET", path, None, dry_run=False).stored
        version = stored["metadata"]["resourceVersion"]
        changed = manifest | {"metadata": {**manifest["metadata"], "resourceVersion": version}}
        return self._ask("PUT", path, changed)

    def install(self, crd: Object) -> None:
        """Install a CRD; it is served on return."""
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        answer = self._ask("POST", path, crd, dry_run=False)
        assert answer.accepted, answer.causes
        name = crd["metadata"]["name"]
        until = time.monotonic() + _ESTABLISHED_TIMEOUT_S
        while not self._is_served(f"{path}/{name}", crd):
            assert time.monotonic() < until, f"{name} is not established"
            time.sleep(0.1)

    def _is_served(self, path: str, crd: Object) -> bool:
        conditions = self._ask("GET", path, None, dry_run=False).stored.get("status", {}).get("conditions") or ()
        group, version = crd["spec"]["group"], crd["spec"]["versions"][0]["name"]
        served = self._http.request("GET", f"/apis/{group}/{version}", headers=self._headers)
        return (
            any(one["type"] == "Established" and one["status"] == "True" for one in conditions)
            and served.status == 200
            and any(one["kind"] == crd["spec"]["names"]["kind"] for one in json.loads(served.data)["resources"])
        )

    def _ask(self, method: str, path: str, body: Object | None, *, dry_run: bool = True) -> Answer:
        query = "?fieldValidation=Strict" + ("&dryRun=All" if dry_run else "") if body else ""
        encoded = json.dumps(body).encode() if body else None
        answer = self._http.request(method, path + query, body=encoded, headers=self._headers)
        said = json.loads(answer.data)
        if answer.status < 300:
            return Answer(True, said, ())
        assert answer.status in (400, 422), (answer.status, said)
        causes = [(one.get("field", ""), one["message"]) for one in (said.get("details") or {}).get("causes", ())]
        return Answer(False, {}, tuple(causes) or (("", said["message"]),))


def _path(manifest: Object) -> str:
    names = crd_of(manifest["kind"])["spec"]["names"]
    namespace = "/namespaces/default" if crd_of(manifest["kind"])["spec"]["scope"] == "Namespaced" else ""
    return f"/apis/{manifest['apiVersion']}{namespace}/{names['plural']}"
