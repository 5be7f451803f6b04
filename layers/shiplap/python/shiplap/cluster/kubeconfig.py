"""A kubeconfig as kubectl reads it: one context of it, with the cluster it names and how its user enters.

Several files are merged as kubectl merges them: of two entries of one name the first counts. Only people's
machines have kubeconfigs; functions enter clusters by their settings (see `connect`).
"""

from __future__ import annotations

import os
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import msgspec

from shiplap.errors import InvalidInput

_DEFAULT = Path(".kube", "config")


class _Part(msgspec.Struct, frozen=True, rename="kebab"):
    """Base: the file's own kebab-case; fields that only concern kubectl's display are passed over."""


class ExecVariable(msgspec.Struct, frozen=True):
    """An environment variable that an exec plugin gets beside those of this process."""

    name: str
    value: str


class ExecPlugin(msgspec.Struct, frozen=True, rename="camel"):
    """A command that prints an ExecCredential (`client.authentication.k8s.io`)."""

    command: str
    api_version: str = ""
    args: tuple[str, ...] | None = None
    env: tuple[ExecVariable, ...] | None = None
    install_hint: str = ""
    interactive_mode: str = "IfAvailable"
    provide_cluster_info: bool = False


class ClusterEntry(_Part, frozen=True):
    """The way to reach an API server; data fields hold base64 of PEM."""

    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""


class UserEntry(_Part, frozen=True):
    """The credentials of a user; data fields hold base64 of PEM."""

    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    username: str = ""
    password: str = ""
    exec: ExecPlugin | None = None
    auth_provider: dict[str, Any] | None = None
    impersonate: str = msgspec.field(default="", name="as")
    impersonate_uid: str = msgspec.field(default="", name="as-uid")
    impersonate_groups: tuple[str, ...] | None = msgspec.field(default=None, name="as-groups")


class _ContextEntry(_Part, frozen=True):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _NamedCluster(_Part, frozen=True):
    name: str
    cluster: ClusterEntry = ClusterEntry()


class _NamedUser(_Part, frozen=True):
    name: str
    user: UserEntry = UserEntry()


class _NamedContext(_Part, frozen=True):
    name: str
    context: _ContextEntry = _ContextEntry()


class _File(_Part, frozen=True):
    """Lists may be written as null, as kubectl itself does in an empty file."""

    clusters: tuple[_NamedCluster, ...] | None = None
    users: tuple[_NamedUser, ...] | None = None
    contexts: tuple[_NamedContext, ...] | None = None
    current_context: str | None = None


class Pem(msgspec.Struct, frozen=True):
    """A client's certificate and key."""

    certificate: str
    key: str


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """One context, everything of it found and read.

    `authority` is PEM text, empty for the machine's own authorities; `folder` is where relative commands are found.
    """

    context: str
    server: str
    namespace: str = "default"
    authority: str = ""
    insecure: bool = False
    tls_server_name: str = ""
    proxy: str = ""
    user: str = ""
    token: str = ""
    token_file: Path | None = None
    client: Pem | None = None
    exec: ExecPlugin | None = None
    folder: Path = Path()
    headers: tuple[tuple[str, str], ...] = ()


def files_of(given: Path | None, environment: Mapping[str, str], home: Path) -> tuple[Path, ...]:
    """The files that count: the one given, else those of $KUBECONFIG, else ~/.kube/config."""
    if given is not None:
        return (given,)
    listed = [Path(part) for part in environment.get("KUBECONFIG", "").split(os.pathsep) if part]
    return tuple(listed) or (home / _DEFAULT,)


def load(given: Path | None, context: str, *, environment: Mapping[str, str], home: Path, instead: str = "") -> Access:
    """The access of a context, or of the current one when none is named.

    Args:
        given: the file to read; where kubectl looks without.
        context: its name, or empty.
        environment: KUBECONFIG of it counts.
        home: where the file is by default.
        instead: a hint for users without a kubeconfig.

    Raises:
        InvalidInput: there is no such file or context, or something in it cannot be used; it says what to do.
    """
    paths = files_of(given, environment, home)
    found = [(path, _parsed(path, text)) for path in paths if (text := _text(path, given)) is not None]
    if not found:
        names = os.pathsep.join(map(str, paths))
        hint = f"name a kubeconfig by --kubeconfig or $KUBECONFIG{instead}"
        raise InvalidInput("kubeconfig", f"{names} does not exist; {hint}")
    return _access(found, context)


def _text(path: Path, given: Path | None) -> str | None:
    """None for a file that is merely looked for and is not there."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        if given is None:
            return None
        raise InvalidInput(str(path), "this kubeconfig does not exist") from None
    except UnicodeDecodeError as error:
        raise InvalidInput(str(path), f"not UTF-8 text: byte {error.start} cannot be decoded") from error
    except OSError as error:
        raise InvalidInput(str(path), f"cannot be read: {error.strerror or error}") from error


def access_of(source: Path, document: Any) -> Access:
    """The access of the current context of a kubeconfig that is decoded already. Raises InvalidInput."""
    return _access([(source, _converted(source, document))], "")


def _parsed(path: Path, text: str) -> _File:
    from shiplap.manifests.files.documents import read_text  # noqa: PLC0415 - functions have no YAML, and read JSON from secrets

    documents = read_text(str(path), text)
    if not documents:
        return _File()
    if len(documents) > 1:
        raise InvalidInput(str(path), f"expected one kubeconfig, found {len(documents)} documents")
    return _converted(path, documents[0].data)


def _converted(path: Path, document: Any) -> _File:
    try:
        return msgspec.convert(document, _File)
    except msgspec.ValidationError as error:
        reason = str(error).replace("`", "").replace(" - at $.", " at ")
        raise InvalidInput(str(path), f"not a kubeconfig: {reason}") from error


def _access(files: Sequence[tuple[Path, _File]], wanted: str) -> Access:
    sources = ", ".join(str(path) for path, _ in files)
    contexts = {
        entry.name: (path, entry.context) for path, file in reversed(files) for entry in reversed(file.contexts or ())
    }
    name = wanted or next((file.current_context for _, file in files if file.current_context), "")
    if not name:
        raise InvalidInput(sources, f"there is no current context; choose one by --context: {_known(contexts)}")
    if name not in contexts:
        near = get_close_matches(name, sorted(contexts))
        hint = f"did you mean {near[0]}? " if near else ""
        raise InvalidInput(sources, f"there is no context {name!r}; {hint}known are {_known(contexts)}")
    source, context = contexts[name]
    clusters = {e.name: (path, e.cluster) for path, file in reversed(files) for e in reversed(file.clusters or ())}
    users = {e.name: (path, e.user) for path, file in reversed(files) for e in reversed(file.users or ())}
    if context.cluster not in clusters:
        raise InvalidInput(
            str(source), f"names cluster {context.cluster!r}, which is not there", document=f"context {name}"
        )
    if context.user and context.user not in users:
        raise InvalidInput(str(source), f"names user {context.user!r}, which is not there", document=f"context {name}")
    path, cluster = clusters[context.cluster]
    where, user = users.get(context.user, (source, UserEntry()))
    if not cluster.server.startswith(("https://", "http://")):
        reason = f"{cluster.server!r} is not an http or https URL"
        raise InvalidInput(str(path), reason, document=f"cluster {context.cluster}", field="server")
    if user.auth_provider is not None and not (user.token or user.exec):
        reason = "auth-provider is read by no kubectl since 1.26 either; use an exec plugin or a token"
        raise InvalidInput(str(where), reason, document=f"user {context.user}", field="auth-provider")
    return Access(
        context=name,
        server=cluster.server,
        namespace=context.namespace or "default",
        authority=pem_of(
            path,
            cluster.certificate_authority_data,
            cluster.certificate_authority,
            f"cluster {context.cluster}",
            "certificate-authority",
        ),
        insecure=cluster.insecure_skip_tls_verify,
        tls_server_name=cluster.tls_server_name,
        proxy=cluster.proxy_url,
        user=context.user,
        token=user.token,
        token_file=where.parent / user.token_file if user.token_file else None,
        client=_client(where, user, f"user {context.user}"),
        exec=user.exec if not user.token and not user.token_file else None,
        folder=where.parent,
        headers=_headers(user),
    )


def _known(contexts: Mapping[str, object]) -> str:
    return ", ".join(sorted(contexts)) or "none"


def _client(path: Path, user: UserEntry, document: str) -> Pem | None:
    certificate = pem_of(path, user.client_certificate_data, user.client_certificate, document, "client-certificate")
    key = pem_of(path, user.client_key_data, user.client_key, document, "client-key")
    if bool(certificate) != bool(key):
        missing = "client-key" if certificate else "client-certificate"
        raise InvalidInput(str(path), "is missing beside the other half", document=document, field=missing)
    return Pem(certificate, key) if certificate else None


def pem_of(path: Path, data: str, file: str, document: str, field: str) -> str:
    """PEM text from base64 in the kubeconfig, or from a file, relative to the kubeconfig; data counts first."""
    try:
        if data:
            return b64decode(data, validate=True).decode("ascii")
        return (path.parent / file).read_text(encoding="ascii") if file else ""
    except (Base64Error, UnicodeDecodeError) as error:
        name = f"{field}-data" if data else field
        reason = f"not a PEM certificate or key{' in base64' if data else ''}: {error}"
        raise InvalidInput(str(path), reason, document=document, field=name) from error
    except OSError as error:
        reason = f"{path.parent / file} cannot be read: {error.strerror or error}"
        raise InvalidInput(str(path), reason, document=document, field=field) from error


def _headers(user: UserEntry) -> tuple[tuple[str, str], ...]:
    """Return the further headers of each request: a password, and the user, uid and groups to impersonate."""
    headers: list[tuple[str, str]] = []
    if user.username and not user.token:
        pair = b64encode(f"{user.username}:{user.password}".encode()).decode()
        headers.append(("Authorization", f"Basic {pair}"))
    if user.impersonate:
        headers.append(("Impersonate-User", user.impersonate))
    if user.impersonate_uid:
        headers.append(("Impersonate-Uid", user.impersonate_uid))
    headers += (("Impersonate-Group", group) for group in user.impersonate_groups or ())
    return tuple(headers)
