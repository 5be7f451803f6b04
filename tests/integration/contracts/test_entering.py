"""Tests the access of a client: by its token, within its role, on the local server and on a real one alike."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest
import urllib3

from shiplap.cluster.client import KubernetesClient
from shiplap.cluster.transport import StaticToken, TokenSource, Transport
from shiplap.errors import ClusterDenied
from shiplap_lab.api_server.server import ApiServer
from shiplap_lab.cluster_simulator.access import READ_ONLY
from shiplap_lab.cluster_simulator.http_server import KubeHttpServer
from shiplap_lab.fakes.signals import FakeClock
from tests.builders.pods import pod_object as pod
from tests.e2e.api import RealApi
from tests.e2e.certificates import service_account_token
from tests.e2e.control_plane import READER, SHIPLAP, ControlPlane, wait_until
from tests.integration.contracts.cluster_objects import node, shiplap_rules

READERS = "readers"


class Door(NamedTuple):
    """A server's address, what vouches for it, and tokens: with Shiplap's role, one that may only read, an old one."""

    endpoint: str
    authority: str
    token: str
    reader: str
    expired: str

    def open(self, token: TokenSource) -> KubernetesClient:
        tls = {"ca_certs": self.authority} if self.authority else {}
        pool = urllib3.connection_from_url(self.endpoint, **tls)
        return KubernetesClient(Transport(self.endpoint, token, pool=pool, sleep=time.sleep, back_off_s=(0.1,)))


@pytest.fixture(params=["http", pytest.param("kubernetes", marks=pytest.mark.e2e)])
def implementation(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture
def server(implementation: str, request: pytest.FixtureRequest) -> ApiServer | RealApi:
    if implementation == "http":
        return ApiServer(FakeClock())
    real: RealApi = request.getfixturevalue("real_api")
    return real


@pytest.fixture
def door(server: ApiServer | RealApi, request: pytest.FixtureRequest) -> Iterator[Door]:
    server.create("nodes", node("n1"))
    if isinstance(server, ApiServer):
        access = {"shiplap": shiplap_rules(), "reader": READ_ONLY}
        with KubeHttpServer(server, access=access) as running:
            yield Door(running.endpoint, "", "shiplap", "reader", "expired")
        return
    plane: ControlPlane = request.getfixturevalue("plane")
    rules = [{"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["get", "list", "watch"]}]
    server.create("clusterroles", {"metadata": {"name": READERS}, "rules": rules})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": READERS}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": READERS}
    server.create("clusterrolebindings", {"metadata": {"name": READERS}, "roleRef": role, "subjects": [subject]})
    expired = service_account_token(plane.service_account_key.read_bytes(), "default", "default", time.time() - 60)
    authority = str(plane.folder / "ca.crt")
    found = Door(plane.endpoint, authority, plane.tokens[SHIPLAP], plane.tokens[READER], expired)
    wait_until(lambda: _may_read(found), "the role of readers is known", timeout_s=10.0, poll_s=0.05)
    yield found


def _may_read(door: Door) -> bool:
    try:
        door.open(StaticToken(door.reader)).nodes()
    except ClusterDenied:
        return False
    return True


class Renewed:
    """A token that has expired, and one that has not."""

    def __init__(self, *tokens: str) -> None:
        self._tokens = list(tokens)

    def token(self) -> str:
        return self._tokens[0]

    def discard(self) -> None:
        del self._tokens[0]


def test_what_a_role_does_not_grant_is_denied(door: Door, server: ApiServer | RealApi) -> None:
    api = door.open(StaticToken(door.reader))
    found = api.node("n1")
    version = found.metadata.resource_version
    with pytest.raises(ClusterDenied, match="cannot patch resource") as caught:
        api.patch_node("n1", labels={"a": "b"}, annotations={}, taints=(), resource_version=version)
    assert caught.value.status == 403
    server.create("pods", pod("p"))
    (waiting,) = api.pending_pods()
    for act in (lambda: api.evict(waiting), lambda: api.bind(waiting, "n1"), lambda: api.delete_node(found)):
        with pytest.raises(ClusterDenied, match=r"cannot (create|delete) resource"):
            act()
    assert api.node("n1").metadata.resource_version == version


def test_nobody_enters_with_an_unknown_or_an_expired_token(door: Door) -> None:
    for token in ("stranger", door.expired, ""):
        with pytest.raises(ClusterDenied) as caught:
            door.open(Renewed(token, token)).nodes()
        assert caught.value.status in ((401, 403) if not token else (401,))


def test_an_expired_token_is_replaced_in_the_same_request(door: Door) -> None:
    api = door.open(Renewed(door.expired, door.token))
    found = api.node("n1")
    version = found.metadata.resource_version
    again = door.open(Renewed(door.expired, door.token))
    again.patch_node("n1", labels={"a": "b"}, annotations={}, taints=(), resource_version=version)
    assert api.node("n1").metadata.labels["a"] == "b"
    server_version = api.node("n1").metadata.resource_version
    watching = door.open(Renewed(door.expired, door.token))
    assert list(watching.watch("nodes", server_version, 1.0)) == []
