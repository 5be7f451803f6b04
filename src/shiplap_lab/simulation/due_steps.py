"""The promise that what is due is done at once, where nothing keeps functions from their work.

Each step has an event that calls for it. A step that only a sweep finds, a minute later, had its event lost.
"""

from __future__ import annotations

from collections.abc import Iterator

from shiplap_lab.judge import raw_json
from shiplap_lab.simulation.region_facts import ClaimFacts, RegionFacts, allocatable

SOON_S = 30.0
"""So soon each step follows, in seconds: a launch takes three, and rounds of a node that spot takes back five."""

SWEPT_S = 90.0
"""So soon follows what only a sweep finds, in seconds: startup taints that are taken away, pods that leave in time."""

_BEFORE_LAUNCH = ("Planned", "Launching")
_COMING = (*_BEFORE_LAUNCH, "Launched", "Registered")
_SERVES = ("Registered", "Initialized", "Disrupting")


class DueSteps:
    """Looks from time to time for steps that are possible, and for how long they have been."""

    def __init__(self, facts: RegionFacts) -> None:
        self._facts = facts
        self._since: dict[str, float] = {}

    def late(self, now: float) -> str:
        """One step that is late; empty if none is. `now` is epoch seconds."""
        due = dict(self._due())
        self._since = {step: self._since.get(step, now) for step in due}
        late = [step for step, since in self._since.items() if now - since > due[step]]
        return f"{late[0]} for {now - self._since[late[0]]:.0f} s" if late else ""

    def _due(self) -> Iterator[tuple[str, float]]:
        """Steps that are possible now, and after how many seconds they are late."""
        for claim in self._facts.open_claims():
            most_s = self._patience_s(claim)
            if most_s:
                yield f"{claim.name} is {claim.state}", most_s
        # A pod may have room on a node that is on its way for others.
        coming = {claim.cluster for claim in self._facts.open_claims() if claim.state in _COMING}
        for cluster in sorted(self._facts.pods.keys() - coming):
            for uid, pod in self._facts.waiting(cluster).items():
                if (cluster, uid) not in self._facts.explained:
                    yield f"{pod['metadata']['name']} waits, and was not told why,", SOON_S

    def _patience_s(self, claim: ClaimFacts) -> float:
        """Return how long a claim may stay as it is, in seconds; 0 if nothing calls for a step."""
        facts, state, node = self._facts, claim.state, self._facts.node_of(claim)
        runs = claim.instance_id in facts.running
        loses_instance = state in _SERVES and (not runs or claim.instance_id in facts.warned)
        if state in _BEFORE_LAUNCH or state == "Terminating" or loses_instance:
            return SOON_S
        if not runs or node is None:
            return 0.0
        is_complete = raw_json.is_ready(node) and not node["spec"].get("taints")
        if (state == "Launched" and allocatable(node)) or (state == "Registered" and is_complete):
            return SWEPT_S if state == "Registered" and claim.startup_taints else SOON_S
        if state == "Draining" and not self._has_pods(claim):
            return SOON_S if claim.failure == "SpotInterruption" else SWEPT_S
        return 0.0

    def _has_pods(self, claim: ClaimFacts) -> bool:
        """True if a claim's node has pods that should leave it."""
        pods = self._facts.pods.get(claim.cluster, {}).values()
        on_node = (pod for pod in pods if pod["spec"].get("nodeName") == claim.node_name)
        return any(not raw_json.is_finished(pod) and not raw_json.stays_to_the_end(pod) for pod in on_node)
