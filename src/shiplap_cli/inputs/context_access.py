"""The way into the cluster of a kubeconfig's context, with credentials from a file or a command where it names one.

Kubeconfigs of EKS, GKE and most others name a command (`client.authentication.k8s.io`).
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from shiplap.cluster.enter import context_transport
from shiplap.cluster.kubeconfig import Access, ExecPlugin, Pem
from shiplap.cluster.transport import StaticToken, TokenSource, Transport
from shiplap.errors import InvalidInput
from shiplap.kubernetes.timestamps import epoch

_GROUP = "client.authentication.k8s.io/"
_MOST_ANSWER_BYTES = 256 * 2**20
"""A person's machine can hold it: 5,000 pods have 75 MiB, and a list from the watch cache is one page."""
_LONGEST_S = 120
"""A plugin that has not answered for so long, in seconds, will not: logging in by hand takes less."""


def enter_context(
    access: Access,
    *,
    clock: Callable[[], float],
    environment: Mapping[str, str],
    sleep: Callable[[float], None],
) -> Transport:
    """A connection for the context; nothing is sent yet, but an exec plugin is run, for it may give a certificate.

    Raises:
        InvalidInput: the credentials or certificates are unusable.
    """
    token: TokenSource = StaticToken(access.token)
    client = access.client
    if access.token_file is not None:
        token = FileToken(access.token_file, access.context)
    elif access.exec is not None:
        plugin = ExecCredential(access, access.exec, clock=clock, environment=environment)
        client, token = plugin.client() or client, plugin
    return context_transport(access, token, client=client, sleep=sleep, most_bytes=_MOST_ANSWER_BYTES)


class FileToken:
    """A TokenSource that reads a file whenever a token is needed: whatever renews the token writes it there."""

    def __init__(self, path: Path, context: str) -> None:
        self._path = path
        self._context = context

    def token(self) -> str:
        """Raises InvalidInput."""
        try:
            return self._path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInput(f"context {self._context}", f"tokenFile {self._path} cannot be read: {error}") from error

    def discard(self) -> None:
        """The file is read again anyway."""


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    token: str = ""
    expiration_timestamp: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""


class _ExecCredential(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str = ""
    kind: str = ""
    status: _Status | None = None


class ExecCredential:
    """A TokenSource that runs the plugin of a context when a token is first needed, and again when one is refused.

    `clock` gives epoch seconds; `environment` is that of the plugin, before its own variables are added.
    """

    def __init__(
        self, access: Access, plugin: ExecPlugin, *, clock: Callable[[], float], environment: Mapping[str, str]
    ) -> None:
        self._access = access
        self._plugin = plugin
        self._clock = clock
        self._environment = environment
        self._known: _Status | None = None

    def token(self) -> str:
        """The token, empty when the plugin gives only a certificate. Raises InvalidInput."""
        return self._status().token

    def discard(self) -> None:
        """Run the plugin again next time."""
        self._known = None

    def client(self) -> Pem | None:
        """The certificate and key that the plugin gives, if it does. Raises InvalidInput."""
        status = self._status()
        if not status.client_certificate_data:
            return None
        return Pem(status.client_certificate_data, status.client_key_data)

    def _status(self) -> _Status:
        if self._known is None:
            self._known = self._run()
        return self._known

    def _run(self) -> _Status:
        plugin, shown = self._plugin, " ".join((self._plugin.command, *(self._plugin.args or ())))
        interactive = plugin.interactive_mode != "Never" and sys.stdin is not None and sys.stdin.isatty()
        if plugin.interactive_mode == "Always" and not interactive:
            raise self._refusal(f"`{shown}` needs a terminal to ask questions on")
        try:
            done = subprocess.run(  # noqa: S603 - the user's own kubeconfig names it, as it does for kubectl
                [self._command(), *(plugin.args or ())],
                env={
                    **self._environment,
                    **{item.name: item.value for item in plugin.env or ()},
                    "KUBERNETES_EXEC_INFO": self._info(interactive=interactive),
                },
                stdin=None if interactive else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=None if interactive else subprocess.PIPE,
                timeout=_LONGEST_S,
                check=False,
            )
        except FileNotFoundError as error:
            hint = f" {plugin.install_hint.strip()}" if plugin.install_hint else " install it, or fix the kubeconfig"
            raise self._refusal(f"the command {plugin.command!r} that gives credentials is not there;{hint}") from error
        except subprocess.TimeoutExpired as error:
            raise self._refusal(f"`{shown}` gave no credentials within {_LONGEST_S} s") from error
        except OSError as error:
            raise self._refusal(f"`{shown}` cannot be run: {error.strerror or error}") from error
        if done.returncode:
            said = [line for line in (done.stderr or b"").decode(errors="replace").splitlines() if line.strip()]
            why = f": {said[-1].strip()}" if said else ""
            raise self._refusal(f"`{shown}` failed with exit code {done.returncode}{why}; log in again and repeat")
        return self._checked(done.stdout, shown)

    def _command(self) -> str:
        """A relative path is meant from the kubeconfig's folder; a bare name is looked for on the PATH."""
        command = self._plugin.command
        return str(self._access.folder / command) if os.sep in command else command

    def _info(self, *, interactive: bool) -> str:
        spec: dict[str, Any] = {"interactive": interactive}
        if self._plugin.provide_cluster_info:
            spec["cluster"] = {
                "server": self._access.server,
                "insecure-skip-tls-verify": self._access.insecure,
                "tls-server-name": self._access.tls_server_name,
            }
        version = self._plugin.api_version or f"{_GROUP}v1"
        return msgspec.json.encode({"apiVersion": version, "kind": "ExecCredential", "spec": spec}).decode()

    def _checked(self, printed: bytes, shown: str) -> _Status:
        try:
            credential = msgspec.json.decode(printed, type=_ExecCredential)
        except (msgspec.DecodeError, RecursionError) as error:
            raise self._refusal(f"`{shown}` did not print an ExecCredential: {error}") from error
        wanted = self._plugin.api_version
        if credential.kind != "ExecCredential" or (wanted and credential.api_version != wanted):
            got = f"{credential.kind or 'nothing'} of {credential.api_version or 'no version'}"
            raise self._refusal(f"`{shown}` printed {got}, not an ExecCredential of {wanted or _GROUP + 'v1'}")
        status = credential.status
        if status is None or not (status.token or (status.client_certificate_data and status.client_key_data)):
            raise self._refusal(f"`{shown}` printed an ExecCredential without a token or a certificate with its key")
        if status.expiration_timestamp:
            try:
                expired = epoch(status.expiration_timestamp) <= self._clock()
            except ValueError as error:
                raise self._refusal(f"`{shown}` printed an expirationTimestamp that is none: {error}") from error
            if expired:
                when = status.expiration_timestamp
                raise self._refusal(f"`{shown}` gave a credential that expired at {when}; log in again and repeat")
        return status

    def _refusal(self, reason: str) -> InvalidInput:
        return InvalidInput(f"context {self._access.context}", reason)
