"""The lines of `shiplap top` about sleep."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shiplap.policies.sleep.sleep_input import SleepInput
from shiplap.policies.sleep.sleep_settings import SleepSettings
from shiplap.policies.sleep.sleep_state import SleepNotes, sleep_state
from shiplap_cli.installs.followed_resources import FollowedResources
from shiplap_cli.policies.sleep_notes import sleep_notes
from shiplap_cli.render.sleep_lines import sleep_lines

UNSEEN = "what sleeps is not seen"


def lines_reader(resources: FollowedResources, clock: Callable[[], float]) -> Callable[[], Sequence[str]]:
    """Reads what sleeps in a cluster from table `state`, where it has slept or has been rehearsed or woken.

    The windows are those that the functions had when they were first looked up. Where NodePools are read from the
    cluster, nothing is said: their annotations are not known here.
    """

    def read() -> Sequence[str]:
        notes = sleep_notes(resources.install).read(resources.cluster)
        if notes == SleepNotes():  # the settings are not looked up for nothing
            return ()
        wanted = resources.settings.policy(SleepSettings)
        if wanted is None or resources.settings.live_manifests:
            return ()
        joins = resources.install.joins().read(resources.cluster)
        pools = resources.settings.manifests.node_pools
        return tuple(sleep_lines(SleepInput(sleep_state(wanted, pools, joins, notes, clock()))))

    return read
