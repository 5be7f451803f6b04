"""The way into a cluster whose kubeconfig is a secret: JSON as `kubectl config view --raw --flatten -o json` prints it.

Functions have no YAML and no files, so nothing in it may refer to a file or a command. A token that the API server
refuses is read again, so that a rotated secret is found without a deployment.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from shiplap.cluster.client import KubernetesClient
from shiplap.cluster.enter import context_transport
from shiplap.cluster.kubeconfig import Access, access_of
from shiplap.cluster.transport import StaticToken
from shiplap.errors import InvalidInput

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


def secret_client(read: Callable[[], str], source: str, *, sleep: Callable[[float], None]) -> KubernetesClient:
    """A client for the cluster of a secret; `read` gives its text. Raises what `read` and `parse_secret` do."""

    def again() -> Access:
        return parse_secret(read(), source)

    first = again()
    token = SecretToken(again, first) if first.token else StaticToken("")
    return KubernetesClient(context_transport(first, token, client=first.client, sleep=sleep))
