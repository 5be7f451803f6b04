"""Deploys installs in waves: each wave rests before the next one, and the first failure or alarm stops the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from itertools import groupby
from math import ceil

from shiplap.manifests.files.described_installs import DescribedInstall
from shiplap_cli.output import Printed

LOOK_S = 30.0
"""Seconds between two looks at the alarms while a wave rests."""


class DeploymentOutcome(StrEnum):
    """The result of an install's deployment; `left` was not touched."""

    DEPLOYED = "deployed"
    FAILED = "failed"
    ALARM = "alarm"
    LEFT = "left"


class InstallDeployment(Printed, frozen=True):
    """An install of a fleet's deployment; `reasons` are why it stopped there."""

    install: str
    wave: int
    outcome: DeploymentOutcome
    reasons: tuple[str, ...] = ()


Deploy = Callable[[DescribedInstall], str]
"""Deploys an install; returns why that failed, or nothing."""
Alarms = Callable[[DescribedInstall], Sequence[str]]
"""Names of the alarms of an install that are in alarm, or why they cannot be known."""


def deploy_in_waves(
    installs: Iterable[DescribedInstall],
    deploy: Deploy,
    alarms: Alarms,
    wait: Callable[[float], None],
    rest_s: float,
) -> tuple[InstallDeployment, ...]:
    """Deploy installs that are sorted by wave; what became of each, in this order.

    Before an install is deployed, and while its wave rests for `rest_s` seconds, it must have no alarm. Installs of
    earlier waves are looked at as long as anything is deployed. `wait` waits for seconds.
    """
    waves = [list(wave) for _, wave in groupby(installs, key=lambda item: item.wave)]
    stopped: dict[str, InstallDeployment] = {}
    deployed: list[DescribedInstall] = []
    for number, wave in enumerate(waves):
        for install in wave:
            stopped |= _in_alarm([install], alarms) or _failed(install, deploy)
            if stopped:
                break
            deployed.append(install)
        stopped |= _in_alarm(deployed, alarms)
        # The last wave rests, too: who reads that all is deployed wants to know that it went well.
        for _ in range(0 if stopped else ceil(rest_s / LOOK_S)):
            wait(LOOK_S)
            stopped |= _in_alarm(deployed, alarms)
            if stopped:
                break
        if stopped:
            left = [install for later in waves[number:] for install in later if install not in deployed]
            return tuple(
                stopped.get(item.name) or InstallDeployment(item.name, item.wave, outcome)
                for items, outcome in ((deployed, DeploymentOutcome.DEPLOYED), (left, DeploymentOutcome.LEFT))
                for item in items
            )
    return tuple(InstallDeployment(item.name, item.wave, DeploymentOutcome.DEPLOYED) for item in deployed)


def _failed(install: DescribedInstall, deploy: Deploy) -> dict[str, InstallDeployment]:
    reason = deploy(install)
    if not reason:
        return {}
    return {install.name: InstallDeployment(install.name, install.wave, DeploymentOutcome.FAILED, (reason,))}


def _in_alarm(installs: Iterable[DescribedInstall], alarms: Alarms) -> dict[str, InstallDeployment]:
    known = ((item, tuple(alarms(item))) for item in installs)
    return {
        item.name: InstallDeployment(item.name, item.wave, DeploymentOutcome.ALARM, names)
        for item, names in known
        if names
    }
