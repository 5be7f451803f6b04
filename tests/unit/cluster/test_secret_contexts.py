"""Kubeconfigs in secrets: what they may hold, when they are read again, and which proxy leads to a server."""

from __future__ import annotations

import json
import ssl
from pathlib import Path
from typing import Any

import pytest
import urllib3

from shiplap.cluster import enter
from shiplap.cluster.enter import SecretToken, context_transport, parse_secret, secret_client
from shiplap.cluster.kubeconfig import Access
from shiplap.cluster.transport import KEPT_ALIVE, StaticToken
from shiplap.errors import InvalidInput


def kubeconfig(cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None, **more: Any) -> str:
    body = {
        "current-context": "edge",
        "contexts": [{"name": "edge", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://edge.example", **(cluster or {})}}],
        "users": [{"name": "u", "user": {"token": "first", **(user or {})}}],
    }
    return json.dumps(body | more)


def test_the_current_context_of_a_secret_is_entered() -> None:
    access = parse_secret(kubeconfig({"tls-server-name": "api", "insecure-skip-tls-verify": True}), "secret x")
    assert (access.context, access.server, access.token) == ("edge", "https://edge.example", "first")
    assert (access.tls_server_name, access.insecure, access.user) == ("api", True, "u")
    assert not parse_secret(kubeconfig(), "secret x").insecure


@pytest.mark.parametrize(
    ("cluster", "user", "document", "field"),
    [
        ({"certificate-authority": "/ca"}, {}, "cluster c", "certificate-authority"),
        ({}, {"client-certificate": "/crt"}, "user u", "client-certificate"),
        ({}, {"client-key": "/key"}, "user u", "client-key"),
        ({}, {"tokenFile": "/token"}, "user u", "tokenFile"),
        ({}, {"exec": {"command": "aws"}}, "user u", "exec"),
    ],
)
def test_a_secret_refers_to_nothing_outside_of_it(
    cluster: dict[str, Any], user: dict[str, Any], document: str, field: str
) -> None:
    with pytest.raises(InvalidInput, match="neither files nor commands") as told:
        parse_secret(kubeconfig(cluster, user), "secret x")
    assert (told.value.source, told.value.document, told.value.field) == ("secret x", document, field)


DEEP = '{"more": ' + "[" * 10_000 + "]" * 10_000 + "}"


@pytest.mark.parametrize("text", ["", "{", "[]", "[" * 10_000, DEEP, '{"clusters": 3}', "\ud800"])
def test_what_is_no_kubeconfig_in_json_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(InvalidInput, match="kubectl config view --raw --flatten --minify -o json"):
        parse_secret(text, "secret x")


@pytest.mark.parametrize("more", [{"clusters": None}, {"users": None}, {"users": [{"name": "u", "user": None}]}])
def test_lists_that_are_null_are_looked_through(more: dict[str, Any]) -> None:
    if "clusters" in more or more["users"] is None:
        with pytest.raises(InvalidInput, match="which is not there"):
            parse_secret(kubeconfig(**more), "secret x")
    else:
        with pytest.raises(InvalidInput):
            parse_secret(kubeconfig(**more), "secret x")


def test_a_secret_is_read_again_once_its_token_was_refused() -> None:
    reads: list[str] = []

    def read() -> Access:
        reads.append("read")
        return Access(context="c", server="https://c", token="second")

    token = SecretToken(read, Access(context="c", server="https://c", token="first"))
    assert (token.token(), token.token(), reads) == ("first", "first", [])
    token.discard()
    assert (token.token(), token.token(), reads) == ("second", "second", ["read"])


@pytest.mark.parametrize(("token", "kind"), [("first", SecretToken), ("", StaticToken)])
def test_a_secret_without_a_token_has_none_to_renew(
    monkeypatch: pytest.MonkeyPatch, token: str, kind: type[object]
) -> None:
    made: list[tuple[Any, ...]] = []
    monkeypatch.setattr(enter, "context_transport", lambda *given, **_: made.append(given))
    texts = [kubeconfig(user={"token": token}), kubeconfig(user={"token": "renewed"})]
    secret_client(lambda: texts.pop(0), "secret x", sleep=lambda _: None)
    ((access, source),) = made
    assert access.server == "https://edge.example"
    assert isinstance(source, kind)
    assert source.token() == token  # type: ignore[attr-defined]
    source.discard()  # type: ignore[attr-defined]
    assert source.token() == ("renewed" if token else "")  # type: ignore[attr-defined]


@pytest.mark.parametrize("error", [ssl.SSLError("bad"), ValueError("encrypted"), OSError("no")])
def test_a_client_certificate_that_cannot_be_used_is_said_and_its_files_are_gone(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    seen: list[Path] = []

    class Context:
        def load_cert_chain(self, certificate: Path, key: Path, *, password: Any) -> None:
            assert (certificate.read_text(), key.read_text()) == ("CERT", "KEY")
            assert key.stat().st_mode & 0o077 == 0
            assert password is enter._no_password
            seen.extend((certificate, key))
            raise error

    access = Access(context="edge", server="https://c")
    with pytest.raises(InvalidInput, match="the client certificate and its key cannot be used"):
        enter._show(Context(), enter.Pem("CERT", "KEY"), access)  # type: ignore[arg-type]
    assert seen
    assert not any(path.exists() for path in seen)


class Proxied:
    def __init__(self, proxy: str, **options: Any) -> None:
        self.proxy, self.options = proxy, options

    def connection_from_url(self, server: str) -> tuple[str, str]:
        return self.proxy, server


@pytest.mark.parametrize(
    ("server", "written", "environment", "used"),
    [
        ("https://c.example", "", {}, None),
        ("https://c.example", "http://own:3128", {}, "http://own:3128"),
        ("https://c.example", "https://own:3128", {"https_proxy": "http://other"}, "https://own:3128"),
        ("https://c.example", "", {"https_proxy": "http://other:3128"}, "http://other:3128"),
        ("https://c.example", "", {"https_proxy": "http://other:3128", "no_proxy": "c.example"}, None),
        ("http://c.example", "", {"http_proxy": "http://other:3128"}, None),
        ("https://c.example", "", {"http_proxy": "http://other:3128"}, None),
    ],
)
def test_the_proxy_of_the_kubeconfig_or_of_the_environment_leads_to_a_server(
    monkeypatch: pytest.MonkeyPatch, server: str, written: str, environment: dict[str, str], used: str | None
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    direct: list[dict[str, Any]] = []
    monkeypatch.setattr(urllib3, "ProxyManager", Proxied)
    monkeypatch.setattr(urllib3, "connection_from_url", lambda _, **options: direct.append(options))
    pool: Any = enter._pool(Access(context="c", server=server, proxy=written), {"maxsize": 3})
    assert pool == (None if used is None else (used, server))
    assert direct == ([{"maxsize": 3}] if used is None else [])


@pytest.mark.parametrize(("server", "proxy"), [("https://c", "socks5://own"), ("http://c", "http://own")])
def test_proxies_that_are_not_spoken_to_are_refused(server: str, proxy: str) -> None:
    with pytest.raises(InvalidInput) as told:
        enter._pool(Access(context="c", server=server, proxy=proxy), {})
    assert told.value.field == "proxy-url"


def test_connections_are_kept_alive_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[str, Any] = {}
    monkeypatch.setattr(enter, "_pool", lambda _, options: made.update(options))
    access = Access(context="c", server="http://c.example", headers=(("a", "b"),))
    talks = context_transport(access, StaticToken(""), client=None, sleep=lambda _: None)
    assert made["socket_options"] is KEPT_ALIVE
    assert made["block"] is True
    assert "ssl_context" not in made
    assert talks._headers == (("a", "b"),)
