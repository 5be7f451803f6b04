"""Rollouts on the command line: the pods that would move by restarts, and those that no restart can move."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from shiplap.disruption.disruption_snapshot import DisruptionInput
from shiplap.policies.rollouts.rollouts_input import MovedPod, RolloutsInUse
from shiplap_cli.policy_views import PolicyView

_MOST = 20


class RolloutsView(PolicyView):
    """Tells of each pod what becomes of it if its node leaves."""

    def of_disruption(self, inputs: Iterable[DisruptionInput]) -> Iterator[str]:
        """Yield a line for each pod that is restarted or held back."""
        moved = [item for known in inputs if isinstance(known, RolloutsInUse) for item in known.moved]
        if moved:
            yield "\nPods that move by restarts of their Deployments if their node leaves:"
        for item in moved[:_MOST]:
            yield _line(item)
        if len(moved) > _MOST:
            yield f"  … and {len(moved) - _MOST} more"


VIEW = RolloutsView()


def _line(item: MovedPod) -> str:
    after = f"after {item.within_s:.0f} s it is evicted" if item.evicts else "it stays until then"
    does = item.problem or f"{item.workload} is restarted"
    return f"  {item.pod} on {item.node}: {does}; {after}"
