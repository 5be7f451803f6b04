"""From a context of a kubeconfig to a connection with its API server.

The kubeconfig of a function is a secret: JSON as `kubectl config view --raw --flatten -o json` prints it. Functions
have no YAML and no files, so nothing in it may refer to a file or a command. A token that the API server refuses is
read again, so that a rotated secret is found without a deployment.
"""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import msgspec
import urllib3

from shiplap.cluster.client import KubernetesClient
from shiplap.cluster.kubeconfig import Access, Pem, access_of
from shiplap.cluster.transport import KEPT_ALIVE, MOST_ANSWER_BYTES, StaticToken, TokenSource, Transport
from shiplap.errors import InvalidInput

_CONNECTIONS = 4
_BACK_OFF_S = (0.2, 1.0)


def context_transport(
    access: Access,
    token: TokenSource,
    *,
    client: Pem | None,
    sleep: Callable[[float], None],
    most_bytes: int = MOST_ANSWER_BYTES,
) -> Transport:
    """A connection for the context; nothing is sent yet. `client` is the certificate that is shown, if any.

    Raises:
        InvalidInput: the certificates are unusable.
    """
    options: dict[str, Any] = {"maxsize": _CONNECTIONS, "block": True, "socket_options": KEPT_ALIVE}
    if access.server.startswith("https:"):
        options["ssl_context"] = _tls(access, client)
        if access.tls_server_name:
            options |= {"server_hostname": access.tls_server_name, "assert_hostname": access.tls_server_name}
        elif access.insecure:
            options["assert_hostname"] = False
    return Transport(
        access.server,
        token,
        pool=_pool(access, options),
        sleep=sleep,
        back_off_s=_BACK_OFF_S,
        headers=access.headers,
        most_bytes=most_bytes,
        most_object_bytes=max(most_bytes, MOST_ANSWER_BYTES),
    )


def _pool(access: Access, options: dict[str, Any]) -> urllib3.HTTPConnectionPool:
    """Connections to the server, through the proxy of the kubeconfig or of the environment where there is one."""
    split = urlsplit(access.server)
    proxy = access.proxy
    if not proxy and not proxy_bypass(split.hostname or ""):
        proxy = getproxies().get(split.scheme, "") if split.scheme == "https" else ""
    if not proxy:
        return urllib3.connection_from_url(access.server, **options)
    if urlsplit(proxy).scheme not in ("http", "https"):
        reason = f"proxy {proxy} is not an http or https URL; other kinds of proxies are not spoken to"
        raise InvalidInput(f"context {access.context}", reason, field="proxy-url")
    if split.scheme != "https":
        raise InvalidInput(f"context {access.context}", "a proxy is used for https servers only", field="proxy-url")
    manager = urllib3.ProxyManager(proxy, **options)
    return manager.connection_from_url(access.server)


def _tls(access: Access, client: Pem | None) -> ssl.SSLContext:
    """Verifies certificate and host name, unless the kubeconfig forgoes it, and shows the client's certificate.

    Not ssl.create_default_context: since Python 3.13 that refuses authorities without an Authority Key Identifier.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if access.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif access.authority:
        try:
            context.load_verify_locations(cadata=access.authority)
        except ssl.SSLError as error:
            raise _refused(access, f"certificate-authority is not a PEM certificate: {error}") from error
    else:
        context.load_default_certs()
    if client is not None:
        _show(context, client, access)
    return context


def _show(context: ssl.SSLContext, client: Pem, access: Access) -> None:
    """Python takes a client's certificate from files only: these are readable by their owner, and gone at once."""
    with tempfile.TemporaryDirectory(prefix="shiplap-") as folder:
        certificate, key = Path(folder, "certificate"), Path(folder, "key")
        certificate.write_text(client.certificate, encoding="ascii")
        key.touch(mode=0o600)
        key.write_text(client.key, encoding="ascii")
        try:
            context.load_cert_chain(certificate, key, password=_no_password)
        except (ValueError, OSError) as error:
            raise _refused(access, f"the client certificate and its key cannot be used: {error}") from error


def _no_password() -> str:
    raise ValueError("the key is encrypted")


def _refused(access: Access, reason: str) -> InvalidInput:
    return InvalidInput(f"context {access.context}", reason)


_FILES = "certificate-authority", "client-certificate", "client-key", "tokenFile", "exec"
"""Fields of a kubeconfig that refer to something outside of it."""


class _Anything(msgspec.Struct, frozen=True):
    """Only what must not be there is looked for."""

    clusters: tuple[dict[str, object], ...] | None = None
    users: tuple[dict[str, object], ...] | None = None


def parse_secret(text: str, source: str) -> Access:
    """The current context of a kubeconfig in JSON.

    Raises:
        InvalidInput: it is none, or refers to something that is not in it.
    """
    try:
        written = msgspec.json.decode(text, type=_Anything)
        document = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        hint = "store what `kubectl config view --raw --flatten --minify -o json` prints"
        raise InvalidInput(source, f"not a kubeconfig in JSON: {error}; {hint}") from error
    for kind, entries in (("cluster", written.clusters), ("user", written.users)):
        for entry in entries or ():
            inner = entry.get(kind)
            for field in _FILES if isinstance(inner, dict) else ():
                if isinstance(inner, dict) and inner.get(field):
                    reason = "a function has neither files nor commands; use --flatten and a token or certificate data"
                    raise InvalidInput(source, reason, document=f"{kind} {entry.get('name')}", field=field)
    return access_of(Path(source), document)


class SecretToken:
    """A TokenSource that reads the secret when it is first asked, and again after the API server has refused."""

    def __init__(self, read: Callable[[], Access], first: Access) -> None:
        self._read = read
        self._token: str | None = first.token

    def token(self) -> str:
        """Raises AwsError, InvalidInput."""
        if self._token is None:
            self._token = self._read().token
        return self._token

    def discard(self) -> None:
        """The next request reads the secret again."""
        self._token = None


def secret_client(
    read: Callable[[], str], source: str, *, sleep: Callable[[float], None], page_bytes: int = MOST_ANSWER_BYTES
) -> KubernetesClient:
    """A client for the cluster of a secret; `read` gives its text. Raises what `read` and `parse_secret` do."""

    def again() -> Access:
        return parse_secret(read(), source)

    first = again()
    token = SecretToken(again, first) if first.token else StaticToken("")
    return KubernetesClient(context_transport(first, token, client=first.client, sleep=sleep, most_bytes=page_bytes))
