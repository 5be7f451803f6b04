"""Kubeconfigs as kubectl reads them: merging, credentials, and files that are none."""

from __future__ import annotations

import base64
import json
import os
import stat
import sys
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
import yaml

from shiplap.cluster.kubeconfig import Access, ExecPlugin, load, pem_of
from shiplap.errors import InvalidInput
from shiplap_cli.inputs.context_access import ExecCredential, FileToken, enter_context

PEM = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"
NOW = 1_700_000_000.0


def config(**parts: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "blue",
        "contexts": [{"name": "blue", "context": {"cluster": "c", "user": "u", "namespace": "web"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://c.example", "extensions": [{"name": "x"}]}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
        "preferences": {},
        **parts,
    }


def write(folder: Path, name: str = "config", **parts: Any) -> Path:
    path = folder / name
    path.write_text(yaml.safe_dump(config(**parts)))
    return path


def read(path: Path, context: str = "") -> Access:
    return load(path, context, environment={}, home=path.parent)


def test_the_current_context(tmp_path: Path) -> None:
    found = read(write(tmp_path))
    assert (found.context, found.server, found.namespace, found.token) == ("blue", "https://c.example", "web", "secret")


def test_what_a_kubeconfig_does_not_say_is_as_strict_as_can_be(tmp_path: Path) -> None:
    found = read(write(tmp_path))
    assert found == Access(
        context="blue",
        server="https://c.example",
        namespace="web",
        authority="",
        insecure=False,
        tls_server_name="",
        proxy="",
        user="u",
        token="secret",
        token_file=None,
        client=None,
        exec=None,
        folder=tmp_path,
        headers=(),
    )


def test_a_context_without_a_user_is_entered_as_nobody(tmp_path: Path) -> None:
    found = read(write(tmp_path, contexts=[{"name": "blue", "context": {"cluster": "c"}}], users=None))
    assert (found.server, found.namespace, found.token) == ("https://c.example", "default", "")


@pytest.mark.parametrize("instead", [{"token": "t"}, {"exec": {"command": "login"}}])
def test_an_auth_provider_is_passed_over_where_there_is_another_way(tmp_path: Path, instead: dict[str, Any]) -> None:
    user = {"auth-provider": {"name": "gcp"}, **instead}
    found = read(write(tmp_path, users=[{"name": "u", "user": user}]))
    assert (found.token, found.exec is not None) == (instead.get("token", ""), "exec" in instead)


def test_where_it_is_looked_for(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / ".kube").mkdir(parents=True)
    write(home / ".kube")
    assert load(None, "", environment={}, home=home).context == "blue"
    one = write(tmp_path, "one", **{"current-context": ""})
    two = write(
        tmp_path,
        "two",
        **{
            "current-context": "green",
            "contexts": [
                {"name": "green", "context": {"cluster": "c", "user": "u"}},
                {"name": "blue", "context": {"cluster": "elsewhere", "user": "u"}},
            ],
            "clusters": [{"name": "c", "cluster": {"server": "https://never.example"}}],
        },
    )
    both = os.pathsep.join(map(str, (one, tmp_path / "absent", two)))
    merged = load(None, "", environment={"KUBECONFIG": both}, home=home)
    assert (merged.context, merged.server, merged.namespace) == ("green", "https://c.example", "default")
    assert load(None, "blue", environment={"KUBECONFIG": both}, home=home).server == "https://c.example"


def test_json_is_yaml_too_and_lists_may_be_null(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(json.dumps(config()))
    assert read(path).token == "secret"
    path.write_text(json.dumps(config()), encoding="utf-8-sig")
    assert read(path).token == "secret", "editors of Windows begin files with a byte order mark"
    path.write_text("apiVersion: v1\nkind: Config\ncontexts: null\nclusters: null\nusers: null\ncurrent-context: ''\n")
    with pytest.raises(InvalidInput, match="there is no current context; choose one by --context: none"):
        read(path)


WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "unknown context": ({}, "bleu", "there is no context 'bleu'; did you mean blue? known are blue"),
    "no current context": ({"current-context": ""}, "", "choose one by --context: blue"),
    "no such cluster": ({"clusters": []}, "", "names cluster 'c', which is not there"),
    "no such user": ({"users": []}, "", "names user 'u', which is not there"),
    "no server": ({"clusters": [{"name": "c", "cluster": {}}]}, "", "'' is not an http or https URL"),
    "shape": ({"contexts": "blue"}, "", "not a kubeconfig: Expected array"),
    "auth-provider": (
        {"users": [{"name": "u", "user": {"auth-provider": {"name": "gcp"}}}]},
        "",
        "use an exec plugin or a token",
    ),
    "half a certificate": (
        {"users": [{"name": "u", "user": {"client-certificate-data": b64encode(PEM.encode()).decode()}}]},
        "",
        "client-key: is missing beside the other half",
    ),
    "not base64": (
        {"clusters": [{"name": "c", "cluster": {"server": "https://c", "certificate-authority-data": "?"}}]},
        "",
        "certificate-authority-data: not a PEM certificate",
    ),
    "no such file": (
        {"clusters": [{"name": "c", "cluster": {"server": "https://c", "certificate-authority": "ca.pem"}}]},
        "",
        "ca.pem cannot be read",
    ),
}


@pytest.mark.parametrize(("parts", "context", "words"), WRONG.values(), ids=WRONG.keys())
def test_what_cannot_be_used_is_said_with_a_hint(
    tmp_path: Path, parts: dict[str, Any], context: str, words: str
) -> None:
    with pytest.raises(InvalidInput) as said:
        read(write(tmp_path, **parts), context)
    assert words in str(said.value)
    assert "secret" not in str(said.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [("a: [", "not YAML"), ("just text", "expected a mapping"), ("a: 1\n---\nb: 2\n", "found 2 documents")],
)
def test_a_file_that_is_no_kubeconfig(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=words):
        read(path)


def test_no_file_and_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"kubeconfig: .*config does not exist; name a kubeconfig"):
        load(None, "", environment={}, home=tmp_path)
    with pytest.raises(InvalidInput, match="this kubeconfig does not exist"):
        read(tmp_path / "absent")
    with pytest.raises(InvalidInput, match="cannot be read: Is a directory"):
        read(tmp_path)
    (tmp_path / "latin").write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(InvalidInput, match="not UTF-8 text"):
        read(tmp_path / "latin")


def test_files_are_relative_to_the_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text(PEM)
    (tmp_path / "token").write_text("fresh\n")
    cluster = {"server": "https://c", "certificate-authority": "ca.pem", "tls-server-name": "inside"}
    cluster["proxy-url"] = "http://proxy:3128"
    found = read(
        write(
            tmp_path,
            clusters=[{"name": "c", "cluster": cluster}],
            users=[{"name": "u", "user": {"tokenFile": "token"}}],
        )
    )
    assert (found.authority, found.tls_server_name, found.proxy) == (PEM, "inside", "http://proxy:3128")
    assert found.token_file is not None
    assert FileToken(found.token_file, "blue").token() == "fresh"
    with pytest.raises(InvalidInput, match=r"tokenFile .* cannot be read"):
        FileToken(tmp_path / "absent", "blue").token()


def test_impersonation_and_passwords_are_headers(tmp_path: Path) -> None:
    user = {"as": "ann", "as-groups": ["ops", "dev"], "as-uid": "7", "username": "me", "password": "pass"}
    found = read(write(tmp_path, users=[{"name": "u", "user": user}]))
    assert found.headers == (
        ("Authorization", "Basic " + b64encode(b"me:pass").decode()),
        ("Impersonate-User", "ann"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "ops"),
        ("Impersonate-Group", "dev"),
    )
    for user in ({"username": "me", "token": "t"}, {"token": "t"}, {}):
        assert read(write(tmp_path, users=[{"name": "u", "user": user}])).headers == (), (
            "a token goes before a password"
        )


def plugin(folder: Path, prints: str, code: int = 0, says: str = "") -> Path:
    script = folder / "login"
    script.write_text(
        f"#!{sys.executable}\nimport os, sys\n"
        f"open({str(folder / 'runs')!r}, 'a').write(os.environ['KUBERNETES_EXEC_INFO'])\n"
        f"sys.stderr.write({says!r})\nprint({prints!r}.replace('$USER_TOKEN', os.environ.get('USER_TOKEN', '')))\n"
        f"sys.exit({code})\n"
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return script


def credential(**status: Any) -> str:
    kind = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential"}
    return json.dumps({**kind, "status": status})


def source(folder: Path, **parts: Any) -> ExecCredential:
    described = {"command": str(folder / "login"), "apiVersion": "client.authentication.k8s.io/v1", **parts}
    access = read(write(folder, users=[{"name": "u", "user": {"exec": described}}]))
    assert isinstance(access.exec, ExecPlugin)
    return ExecCredential(access, access.exec, clock=lambda: NOW, environment={"PATH": os.environ["PATH"]})


def test_a_plugin_is_run_once_until_its_token_is_refused(tmp_path: Path) -> None:
    plugin(tmp_path, credential(token="$USER_TOKEN", expirationTimestamp="2099-01-01T00:00:00Z"))
    found = source(tmp_path, env=[{"name": "USER_TOKEN", "value": "t"}], args=None, provideClusterInfo=True)
    assert (found.token(), found.token(), found.client()) == ("t", "t", None)
    found.discard()
    found.token()
    told = (tmp_path / "runs").read_text()
    assert told.count("ExecCredential") == 2
    assert '"server":"https://c.example"' in told


def test_a_plugin_may_give_a_certificate_and_stand_beside_the_kubeconfig(tmp_path: Path) -> None:
    plugin(tmp_path, credential(clientCertificateData=PEM, clientKeyData="key"))
    found = source(tmp_path, command="./login")
    client = found.client()
    assert client is not None
    assert (client.certificate, client.key, found.token()) == (PEM, "key", "")


FAILED: dict[str, tuple[str, int, str, dict[str, Any], str]] = {
    "exit code": (
        "",
        255,
        "Unable to\nError: token has expired\n",
        {},
        "exit code 255: Error: token has expired; log in",
    ),
    "nonsense": ("hello", 0, "", {}, "did not print an ExecCredential"),
    "another version": (
        credential(token="t"),
        0,
        "",
        {"apiVersion": "client.authentication.k8s.io/v1beta1"},
        "not an ExecCredential of client.authentication.k8s.io/v1beta1",
    ),
    "empty": (credential(), 0, "", {}, "without a token or a certificate"),
    "expired": (
        credential(token="t", expirationTimestamp="2023-11-14T22:13:19Z"),
        0,
        "",
        {},
        "gave a credential that expired at 2023-11-14T22:13:19Z; log in again",
    ),
    "no timestamp": (credential(token="t", expirationTimestamp="soon"), 0, "", {}, "expirationTimestamp that is none"),
    "not there": ("", 0, "", {"command": "aws-is-not-here", "installHint": "brew install it"}, "brew install it"),
    "needs a terminal": (credential(token="t"), 0, "", {"interactiveMode": "Always"}, "needs a terminal"),
}


@pytest.mark.parametrize(("prints", "code", "says", "parts", "words"), FAILED.values(), ids=FAILED.keys())
def test_a_plugin_that_fails(
    tmp_path: Path, prints: str, code: int, says: str, parts: dict[str, Any], words: str
) -> None:
    plugin(tmp_path, prints, code, says)
    with pytest.raises(InvalidInput) as said:
        source(tmp_path, **parts).token()
    assert words in str(said.value)
    assert str(said.value).startswith("context blue: ")


def test_a_plugin_that_cannot_be_run(tmp_path: Path) -> None:
    (tmp_path / "login").write_text("no script")
    (tmp_path / "login").chmod(0o600)
    with pytest.raises(InvalidInput, match="cannot be run: Permission denied"):
        source(tmp_path).token()


def entering(access: Access) -> None:
    enter_context(access, clock=lambda: NOW, environment={}, sleep=lambda _: None)


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"authority": "no certificate"}, "certificate-authority is not a PEM certificate"),
        ({"proxy": "socks5://localhost:1080"}, "not an http or https URL"),
        ({"proxy": "http://p", "server": "http://c"}, "for https servers only"),
    ],
)
def test_connections_that_cannot_be_made(parts: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        entering(Access(**{"context": "blue", "server": "https://c.example", **parts}))


def test_a_client_certificate_that_is_none(tmp_path: Path) -> None:
    user = {
        "client-certificate-data": b64encode(PEM.encode()).decode(),
        "client-key-data": b64encode(PEM.encode()).decode(),
    }
    with pytest.raises(InvalidInput, match="the client certificate and its key cannot be used"):
        entering(read(write(tmp_path, users=[{"name": "u", "user": user}])))


def test_an_insecure_server_behind_a_proxy_is_entered() -> None:
    entering(Access(context="blue", server="https://c.example", insecure=True, proxy="http://proxy.example:3128"))
    entering(Access(context="blue", server="https://c.example", tls_server_name="inside.example"))


@pytest.mark.parametrize("data", [base64.b64encode("Zertifikät".encode()).decode(), "no base64", "YQ="])
def test_data_that_is_no_pem_is_refused_by_its_field(tmp_path: Path, data: str) -> None:
    with pytest.raises(InvalidInput, match="not a PEM certificate or key in base64") as told:
        pem_of(tmp_path / "config", data, "file", "user u", "client-key")
    assert (told.value.field, told.value.document) == ("client-key-data", "user u")


def test_a_file_that_is_no_pem_is_refused_by_its_field(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("Schlüssel", encoding="utf-8")
    with pytest.raises(InvalidInput, match="not a PEM certificate or key: ") as told:
        pem_of(tmp_path / "config", "", "key", "user u", "client-key")
    assert told.value.field == "client-key"
    with pytest.raises(InvalidInput, match="cannot be read"):
        pem_of(tmp_path / "config", "", "absent", "user u", "client-key")
    assert pem_of(tmp_path / "config", "", "", "user u", "client-key") == ""
