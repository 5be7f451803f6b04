"""docs/rbac.yaml on a real API server: it is accepted as it is, and grants what is written there and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import urllib3
import yaml

from shiplap_cli.commands.doctor.check_results import CheckVerdict
from shiplap_cli.commands.doctor.cluster_checks import RbacPermission, permissions_of, rbac
from tests.e2e import programs
from tests.e2e.api import api_of
from tests.e2e.control_plane import ADMINISTRATOR, SHIPLAP, ControlPlane

pytestmark = pytest.mark.e2e

RBAC = Path(__file__).parents[2] / "docs" / "rbac.yaml"
DOCUMENTS = list(yaml.safe_load_all(RBAC.read_text()))
_VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")

OF_EVERYBODY = {
    RbacPermission("create", "authentication.k8s.io", "selfsubjectreviews"),
    RbacPermission("create", "authorization.k8s.io", "selfsubjectaccessreviews"),
    RbacPermission("create", "authorization.k8s.io", "selfsubjectrulesreviews"),
}
"""What Kubernetes grants to everyone who is authenticated."""

OF_ADD_ONS = {"podgroups", "provisioningrequests", "provisioningrequests/status"}
"""Resources whose definitions come with other software, so that a new cluster serves none."""


class Server:
    """Plain requests to an API server."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._http = urllib3.connection_from_url(plane.endpoint, ca_certs=str(plane.folder / "ca.crt"), retries=False)

    def close(self) -> None:
        self._http.close()

    def ask(self, method: str, path: str, body: Any = None, user: str = ADMINISTRATOR) -> urllib3.BaseHTTPResponse:
        headers = {"Authorization": f"Bearer {self._plane.tokens[user]}", "Content-Type": "application/json"}
        return self._http.request(method, path, body=json.dumps(body) if body else None, headers=headers)

    def review(self, path: str, body: Any) -> bytes:
        answer = self.ask("POST", path, body)
        assert answer.status == 201, answer.data
        return answer.data

    def resources(self) -> set[tuple[str, str]]:
        """All that is served, subresources too: group and name, in the version that a group prefers."""
        groups = json.loads(self.ask("GET", "/apis").data)["groups"]
        paths = {"": "/api/v1"} | {item["name"]: f"/apis/{item['preferredVersion']['groupVersion']}" for item in groups}
        return {
            (group, item["name"])
            for group, path in paths.items()
            for item in json.loads(self.ask("GET", path).data)["resources"]
        }


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """An API server and nothing else."""
    try:
        programs.find()
    except programs.ProgramsMissing as missing:
        pytest.skip(f"no control plane: {missing}")
    with ControlPlane(tmp_path_factory.mktemp("plane"), scheduler=False, controllers=(), nodes=False) as running:
        yield running


@pytest.fixture(scope="module")
def server(plane: ControlPlane) -> Iterator[Server]:
    made = Server(plane)
    yield made
    made.close()


@pytest.fixture(scope="module")
def applied(plane: ControlPlane, server: Server) -> Server:
    with api_of(plane) as api:
        for document in DOCUMENTS:
            api.apply(document)
    return server


@pytest.mark.parametrize("document", DOCUMENTS, ids=[item["kind"] for item in DOCUMENTS])
def test_the_server_accepts_each_object_as_it_is(server: Server, document: dict[str, Any]) -> None:
    """By a dry run, which validates and admits an object and stores nothing; unknown fields are errors."""
    group, _, version = document["apiVersion"].partition("/")
    path = f"/apis/{group}/{version}/{document['kind'].lower()}s"
    name = {**document["metadata"], "name": "dry-run"}
    answer = server.ask("POST", f"{path}?dryRun=All&fieldValidation=Strict", document | {"metadata": name})

    assert answer.status == 201, answer.data
    assert server.ask("GET", f"{path}/dry-run").status == 404


def test_the_functions_group_may_do_all_that_is_written(applied: Server) -> None:
    (finding,) = rbac(applied.review, "real", permissions_of(RBAC), myself=False)

    assert finding.verdict is CheckVerdict.OK, finding


def test_the_functions_group_may_do_nothing_else_that_the_server_serves(applied: Server) -> None:
    granted = set(permissions_of(RBAC)) | OF_EVERYBODY
    served = applied.resources()
    others = {RbacPermission(verb, group, name) for group, name in served for verb in _VERBS} - granted

    assert [right for right in sorted(others) if _granted(applied, right)] == []
    assert len(others) > 400
    assert {(right.group, right.resource) for right in granted if right.resource not in OF_ADD_ONS} <= served


def _granted(server: Server, right: RbacPermission) -> bool:
    (finding,) = rbac(server.review, "real", [right], myself=False)
    return finding.verdict is CheckVerdict.OK


def test_requests_of_the_functions_group_have_a_priority_level_of_their_own(applied: Server) -> None:
    path = "/apis/flowcontrol.apiserver.k8s.io/v1"
    flow, level = (
        json.loads(applied.ask("GET", f"{path}/{kind}/shiplap").data)["metadata"]["uid"]
        for kind in ("flowschemas", "prioritylevelconfigurations")
    )

    ours = applied.ask("GET", "/api/v1/pods", user=SHIPLAP)
    theirs = applied.ask("GET", "/api/v1/pods")

    assert ours.status == 200
    assert ours.headers["X-Kubernetes-PF-FlowSchema-UID"] == flow
    assert ours.headers["X-Kubernetes-PF-PriorityLevel-UID"] == level
    assert theirs.headers["X-Kubernetes-PF-FlowSchema-UID"] != flow
