"""A stage whose neighbour taints every node as it comes."""

from __future__ import annotations

from tests.integration.flows.disrupted import Disrupted
from tests.integration.flows.stage import Stage

TOLERATED = {"key": "neighbour.example.com/mine", "operator": "Exists"}
HOSTILE = {"key": "neighbour.example.com/mine", "effect": "NoSchedule"}


class Besieged(Disrupted):
    """A neighbour taints every node as it comes, as long as `hostile`."""

    hostile = True

    def around(self) -> None:
        """A minute in which no new node ever takes a pod."""
        self.sweep()
        self.join()
        self.attend(*self.due())
        self.attend()
        if self.hostile:
            self.taint()
        self.cloud_controller()
        self.bind()
        self.run_pods()
        self.clock.advance(60)

    def taint(self) -> None:
        for item in self.server.list("nodes").items:
            taints = item["spec"].get("taints", [])
            if not any(taint["key"] == HOSTILE["key"] for taint in taints):
                self.server.patch("nodes", item["metadata"]["name"], {"spec": {"taints": [*taints, HOSTILE]}})

    def waiting(self) -> list[dict]:
        """Pods without a node."""
        return [item for item in self.server.list("pods").items if not item["spec"].get("nodeName")]

    def events(self) -> list[str]:
        return [item["message"] for item in self.server.list("events").items]


def launched_within(stage: Stage, seconds: float, since: float = 0.0) -> int:
    """The most nodes that were launched within so many seconds, those before `since` left out."""
    times = sorted(item.launched_at for item in stage.compute.launches if item.launched_at >= since)
    return max((sum(at - seconds < other <= at for other in times) for at in times), default=0)


def own_toleration(kind: int) -> dict[str, str]:
    """Makes pods unlike others, on the same nodes."""
    return {"key": f"kind-{kind}.example.com", "operator": "Exists"}
