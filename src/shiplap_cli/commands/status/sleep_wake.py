"""`shiplap status wake`: ends the sleep of a cluster now, until its windows end or a given time."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from shiplap.errors import AwsError, InvalidInput, StoreError
from shiplap.kubernetes.timestamps import epoch, rfc3339
from shiplap.manifests.times import go_seconds
from shiplap.policies.sleep.sleep_settings import SleepSettings
from shiplap.policies.sleep.sleep_state import is_any_open
from shiplap.settings import ClusterSettings
from shiplap_cli.hints import with_hint
from shiplap_cli.installs.find_install import STACK, Dev, Stack, find_install, sole_cluster
from shiplap_cli.installs.installed import cluster_settings_of
from shiplap_cli.output import Format, Output, Printed, emit, fail
from shiplap_cli.policies.sleep_notes import sleep_notes


class WakeDocument(Printed, frozen=True):
    """The output of the command: `until` is empty where the wake ends with the windows that are open now."""

    cluster: str
    woken_at: str
    until: str = ""

    @property
    def text(self) -> str:
        """For people."""
        end = f"until {self.until}" if self.until else "until the windows that are open now end"
        return f"{self.cluster} is awake {end}; its pods are planned for within a minute"


def wake(
    cluster: Annotated[str, typer.Argument(help="The cluster; the install's only one without.")] = "",
    *,
    until: Annotated[
        str,
        typer.Option(
            help="A time such as 2026-12-24T20:00:00Z, or a duration such as 2h; until the windows end without.",
            metavar="TIME",
        ),
    ] = "",
    stack: Stack = STACK,
    dev: Dev = False,
    output: Output = Format.TABLE,
) -> int:
    """Ends the sleep of a cluster now: it wins over every window and takes effect within a minute.

    It writes one item into the install's table `state`. The last wake counts; `--until 0s` lets the cluster sleep on.
    Nodes that drain for sleep go on in service, but for those that are being ended. Exit code 0 when it was written, 1
    when nothing of the cluster may sleep or no window is open, 2 for bad input and when AWS could not be asked.

    Example: shiplap status wake

    Example: shiplap status wake dev --until 2h
    """
    now = int(time.time())
    awake_until = _moment(until, now) if until else 0
    try:
        install = find_install(bucket="", stack=stack, dev=dev)
        name = cluster or sole_cluster(install, "CLUSTER")
        if refused := _refusal(cluster_settings_of(install, name), name, now, given=bool(until)):
            fail(refused)
            return 1
        sleep_notes(install).wake(name, now, awake_until)
    except (AwsError, StoreError) as error:
        raise InvalidInput(f"stack {stack}", f"nothing was woken: {with_hint(error)}") from error
    document = WakeDocument(name, rfc3339(now), rfc3339(awake_until) if until else "")
    emit(document, output, lambda: document.text)
    return 0


def _refusal(settings: ClusterSettings, cluster: str, now: float, *, given: bool) -> str:
    """Return why there is nothing to wake; empty if there is something."""
    sleep = settings.policy(SleepSettings)
    if sleep is None:
        return f"nothing of cluster {cluster} may sleep: shiplap.yaml has no `sleep` for it"
    if not given and not is_any_open(sleep, now):
        return f"no window of cluster {cluster} is open: name a time by --until to keep it awake until then"
    return ""


def _moment(text: str, now: int) -> int:
    """A time, or a duration from now, as epoch seconds. Raises InvalidInput."""
    try:
        return now + int(go_seconds(text))
    except ValueError:
        pass
    try:
        return int(epoch(text))
    except ValueError:
        reason = f"{text!r} is neither a time such as 2026-12-24T20:00:00Z nor a duration such as 2h"
        raise InvalidInput("--until", reason) from None
