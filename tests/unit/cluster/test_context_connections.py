"""The TLS settings of a kubeconfig's cluster reach the connection."""

from __future__ import annotations

import socket
import ssl
from typing import Any

import pytest

from shiplap.cluster.connect import ApiEndpoint, endpoint_transport
from shiplap.cluster.enter import context_transport
from shiplap.cluster.kubeconfig import Access
from shiplap.cluster.transport import KEPT_ALIVE
from shiplap.settings import ClusterSettings
from shiplap_lab.fakes.signals import FakeClock


class Context:
    """Stands in for ssl.SSLContext and notes what was loaded."""

    def __init__(self, _: int) -> None:
        self.loaded: list[str] = []
        self.check_hostname, self.verify_mode = True, ssl.CERT_REQUIRED

    def load_default_certs(self) -> None:
        self.loaded.append("machine")

    def load_verify_locations(self, *, cadata: str) -> None:
        self.loaded.append(cadata)


def noted(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the dict that will hold the options with which connections are made."""
    for name in ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(ssl, "SSLContext", Context)
    made: dict[str, Any] = {}
    monkeypatch.setattr("urllib3.connection_from_url", lambda _, **options: made.update(options))
    return made


def connected(monkeypatch: pytest.MonkeyPatch, **access: Any) -> dict[str, Any]:
    """The options that connections are made with."""
    made = noted(monkeypatch)
    context_transport(
        Access(context="c", server="https://c.example", **access),
        lambda: "token",
        client=None,
        sleep=lambda _: None,
    )
    return made


def test_without_an_authority_the_machines_own_count(monkeypatch: pytest.MonkeyPatch) -> None:
    context = connected(monkeypatch)["ssl_context"]
    assert context.loaded == ["machine"]
    assert (context.check_hostname, context.verify_mode) == (True, ssl.CERT_REQUIRED)


def test_connections_to_clusters_of_settings_are_kept_alive_and_trust_what_the_machine_trusts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = noted(monkeypatch)
    settings = ClusterSettings(name="prod", region="eu-west-1", token="t")
    endpoint_transport(
        settings, ApiEndpoint("https://c.example"), credentials=no_credentials, clock=FakeClock(), sleep=lambda _: None
    )
    assert made["ssl_context"].loaded == ["machine"]
    assert made["socket_options"] == connected(monkeypatch)["socket_options"] == KEPT_ALIVE
    assert made["maxsize"] == 8, "as many watches may last side by side"


def no_credentials() -> Any:
    raise AssertionError("a token of its own needs no credentials")


def test_a_silent_connection_is_probed_each_minute_and_a_lost_one_ends_within_seconds() -> None:
    """NAT gateways and load balancers forget one that is silent for 350 seconds."""
    tcp = socket.IPPROTO_TCP
    assert {
        (tcp, socket.TCP_NODELAY, 1),
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (tcp, socket.TCP_KEEPIDLE, 60),
        (tcp, socket.TCP_KEEPINTVL, 15),
        (tcp, socket.TCP_KEEPCNT, 4),
        (tcp, socket.TCP_USER_TIMEOUT, 10_000),
    } == set(KEPT_ALIVE)


def test_an_authority_counts_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert connected(monkeypatch, authority="PEM")["ssl_context"].loaded == ["PEM"]


@pytest.mark.parametrize("authority", ["", "PEM"])
def test_an_insecure_cluster_is_not_verified(monkeypatch: pytest.MonkeyPatch, authority: str) -> None:
    made = connected(monkeypatch, insecure=True, authority=authority)
    assert made["ssl_context"].loaded == []
    assert (made["ssl_context"].check_hostname, made["ssl_context"].verify_mode) == (False, ssl.CERT_NONE)
    assert made["assert_hostname"] is False


@pytest.mark.parametrize("insecure", [False, True])
def test_a_server_name_is_asked_for_and_compared(monkeypatch: pytest.MonkeyPatch, insecure: bool) -> None:
    made = connected(monkeypatch, tls_server_name="api.internal", insecure=insecure)
    assert (made["server_hostname"], made["assert_hostname"]) == ("api.internal", "api.internal")
