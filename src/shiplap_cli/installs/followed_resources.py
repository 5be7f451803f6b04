"""The parts of an install that is followed, each looked up when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from shiplap.ports import StateStore
from shiplap.settings import ClusterSettings
from shiplap_cli.installs.find_install import DeployedInstall

LocatedInstall = Callable[[], tuple[DeployedInstall, str]]
"""An install and the cluster's name in it, looked for when it is first called."""


class FollowedResources:
    """An install, a cluster's name in it and its settings, each looked up when it is first asked for.

    All raise AwsError and InvalidInput, as whatever looks the install up does.
    """

    def __init__(self, located: LocatedInstall) -> None:
        self._located = located

    @property
    def install(self) -> DeployedInstall:
        """The install."""
        return self._located()[0]

    @property
    def cluster(self) -> str:
        """The cluster's name."""
        return self._located()[1]

    @cached_property
    def state(self) -> StateStore:
        """Table `state`."""
        return self.install.state()

    @cached_property
    def settings(self) -> ClusterSettings:
        """Return the settings of the functions in service."""
        from shiplap_cli.installs.installed import cluster_settings_of  # noqa: PLC0415 - only where it is on

        return cluster_settings_of(self.install, self.cluster)
