"""Records a run for a report: samples of figures, events, and pictures of the cluster. It does not change the run.

Records of a minute and of a month have the same size: when there are too many entries, every other one is dropped and
the interval doubles.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from shiplap.drawing.capture import picture_of_cluster
from shiplap.drawing.picture import ClusterPicture
from shiplap.instances.capacity.capacity_setting import cluster_setting
from shiplap.instances.catalog.ec2_catalog import Catalog
from shiplap.instances.offerings.offerings import catalog_prices
from shiplap.instances.resolve import instance_types
from shiplap.kubernetes.objects import Pod
from shiplap.kubernetes.pod_requests import pod_requests
from shiplap.kubernetes.quantity import CPU, MEMORY, PODS
from shiplap.manifests.custom_resources import Manifests
from shiplap.ports import Instance
from shiplap.records.disruption_record import Headline, headline
from shiplap.scheduling.model.snapshot import NodeClassCatalog, Snapshot
from shiplap.settings import ClusterSettings
from shiplap_lab.cluster_simulator.simulated_cluster import SimulatedCluster
from shiplap_lab.fakes.stores import FakeRecorder
from shiplap_lab.faults.fault import Fault
from shiplap_lab.scenarios.scenario import Play
from shiplap_lab.simulation.packing_bounds import Offers, hourly_bound, merged_offers, offers_of
from shiplap_lab.simulation.run import RunOutcome, Simulation
from shiplap_lab.simulation.timeline import Frame, Sample, Timeline, TimelineEvent
from shiplap_lab.virtual_time.supply import REGION

_MOST_SAMPLES = 2000
_MOST_FRAMES = 100
_MOST_HAPPENINGS = 20_000
_MIB = 2**20

_TITLES = {
    "wave": "replicas change",
    "fault": "fault",
    "launched": "launched",
    "will not join": "will not join",
    "node joined": "node joined",
    "spot warning": "spot warning",
    "instance ended": "instance ended",
    "node gone": "node gone",
    "died": "function died",
    "refused": "request refused",
    "answer lost": "answer lost",
    "settled": "all at rest",
}
"""The lines of a trace that a report shows, with their titles."""

_BAD = frozenset({"fault", "will not join", "spot warning", "died", "refused", "answer lost"})
"""Those of them that are faults or their consequences."""

_STEPS = {
    "launched": "launch",
    "spot warning": "interrupt",
    "node joined": "lifecycle",
    "will not join": "lifecycle",
    "instance ended": "lifecycle",
    "node gone": "lifecycle",
}
"""Those of them that are listed among the recorded decisions, with their kind."""

Entry = TypeVar("Entry")


class Recording:
    """Records one run; `timeline` returns everything recorded."""

    def __init__(self, simulation: Simulation, play: Play) -> None:
        self._simulation = simulation
        self._start = simulation.loop.now()
        self._samples: list[Sample] = []
        self._frames: list[Frame] = []
        self._looks = 0
        self._sample_every = self._frame_every = 1
        self._prices = catalog_prices(simulation.sold)
        self._offers = offers_of_clusters(tuple(play.manifests.values()), simulation.sold)
        self._requests: dict[str, tuple[int, int]] = {}
        self._bounds: dict[tuple[int, int, int], float | None] = {}
        simulation.observers.append(self.look)

    def look(self) -> None:
        """Take a sample and a picture, each if it is due."""
        if self._looks % self._sample_every == 0:
            self._samples.append(self._sample())
            if len(self._samples) > _MOST_SAMPLES:
                self._samples, self._sample_every = _every_other(self._samples), 2 * self._sample_every
        if self._looks % self._frame_every == 0:
            self._frames.append(self._frame())
            if len(self._frames) > _MOST_FRAMES:
                self._frames, self._frame_every = _every_other(self._frames), 2 * self._frame_every
        self._looks += 1

    def timeline(self, outcome: RunOutcome) -> Timeline:
        """Everything recorded until the end, with the events of the outcome's trace."""
        last, happenings = self._frame(), _timeline_events(outcome)
        frames = [frame for frame in self._frames if frame.at_s < last.at_s]
        return Timeline(
            ends_s=max(outcome.ended_at, last.at_s),
            samples=(*self._samples, self._sample()),
            happenings=happenings,
            frames=(*frames, last),
            decisions=self._decisions(happenings),
        )

    def records(self) -> dict[str, bytes]:
        """Every recorded decision by its id."""
        return {name: recorder.document(name) for recorder in self._recorders() for name in recorder.records}

    def _recorders(self) -> list[FakeRecorder]:
        installs = self._simulation.installs.values()
        return [recorder for install in installs for recorder in install.recorders.values()]

    def _decisions(self, happenings: Iterable[TimelineEvent]) -> tuple[Headline, ...]:
        lines = [
            headline(document, name) for recorder in self._recorders() for name, document in recorder.records.items()
        ]
        lines += (
            Headline(self._start + event.at_s, _STEPS[event.kind], f"{event.kind}: {event.text}")
            for event in happenings
            if event.kind in _STEPS
        )
        return tuple(sorted(lines, key=lambda line: (line.at, line.record)))

    def _passed(self) -> float:
        return self._simulation.loop.now() - self._start

    def _sample(self) -> Sample:
        """Nodes count as soon as they are paid for: by instance, whether or not they have joined."""
        many = len(self._simulation.clusters) > 1
        nodes: dict[str, int] = {}
        hourly = listed = 0.0
        paid = (
            (self._simulation.price(instance), instance)
            for instance in self._simulation.instances.values()
            if instance.id not in self._simulation.ended
        )
        for price, instance in paid:
            pool = _named(instance.cluster, instance.node_pool, many=many)
            nodes[pool] = nodes.get(pool, 0) + 1
            hourly += price
            listed += self._prices.listed(instance.instance_type) or price
        return Sample(
            at_s=self._passed(),
            pending=len(self._simulation.pending()),
            nodes={pool: nodes[pool] for pool in sorted(nodes)},
            hourly=round(hourly, 6),
            list_hourly=round(listed, 6),
            bound_hourly=self._bound(),
        )

    def _bound(self) -> float | None:
        if self._offers is None:
            return None
        millicores = memory = count = 0
        for cluster in self._simulation.clusters.values():
            for pod in cluster.informer.pods.values():
                if pod.spec.node_name:
                    cpu, more = self._requested(pod)
                    millicores, memory, count = millicores + cpu, memory + more, count + 1
        asked = (millicores, memory, count)
        if asked not in self._bounds:
            self._bounds[asked] = hourly_bound(self._offers, {CPU: millicores, MEMORY: memory, PODS: count})
        return self._bounds[asked]

    def _requested(self, pod: Pod) -> tuple[int, int]:
        """Pods of a group ask for the same."""
        group = f"{pod.metadata.namespace}/{pod.metadata.labels.get('app', pod.metadata.name)}"
        known = self._requests.get(group)
        if known is None:
            requests = pod_requests(pod)
            known = self._requests[group] = requests.get(CPU, 0), requests.get(MEMORY, 0)
        return known

    def _frame(self) -> Frame:
        clusters = self._simulation.clusters
        pictures = [self._picture(cluster) for _, cluster in sorted(clusters.items())]
        return Frame(self._passed(), pictures[0] if len(pictures) == 1 else merged(pictures))

    def _picture(self, cluster: SimulatedCluster[Instance]) -> ClusterPicture:
        known = (claim for install in self._simulation.installs.values() for claim in install.state.written.values())
        claims = [claim for claim in known if claim.cluster == cluster.name]
        nodes, pods = cluster.informer.nodes, cluster.informer.pods
        return picture_of_cluster(
            cluster.name,
            self._simulation.loop.now(),
            [nodes[name] for name in sorted(nodes)],
            [pods[key] for key in sorted(pods)],
            claims,
            self._prices,
        )


def run_recorded(
    play: Play, seed: int, faults: Sequence[Fault], hours: float | None = None
) -> tuple[RunOutcome, Recording]:
    """A run with these faults and its recording; the outcome is the same as without a recording."""
    simulation = Simulation(play, seed, faults, play.scenario.hours if hours is None else hours)
    recording = Recording(simulation, play)
    return simulation.play(), recording


def run_with_timeline(
    play: Play, seed: int, faults: Sequence[Fault], hours: float | None = None
) -> tuple[RunOutcome, Timeline]:
    """As `run_recorded`, with the timeline."""
    outcome, recording = run_recorded(play, seed, faults, hours)
    return outcome, recording.timeline(outcome)


def merged(pictures: Sequence[ClusterPicture]) -> ClusterPicture:
    """Several clusters as one picture: each pool is called after its cluster."""
    nodes = [
        replace(node, pool=_named(picture.cluster, node.pool, many=True))
        for picture in pictures
        for node in picture.nodes
    ]
    pending = [pod for picture in pictures for pod in picture.pending]
    return ClusterPicture(
        cluster=", ".join(picture.cluster for picture in pictures),
        taken_at=pictures[0].taken_at,
        nodes=tuple(sorted(nodes, key=lambda node: (node.name, node.pool))),
        pending=tuple(sorted(pending, key=lambda pod: (-pod.age_s, pod.namespace, pod.name))),
    )


def _named(cluster: str, pool: str, *, many: bool) -> str:
    return f"{cluster}/{pool}" if many and pool else pool


def _every_other(entries: Sequence[Entry]) -> list[Entry]:
    return list(entries[::2])


def offers_of_clusters(manifests: Sequence[Manifests], sold: Catalog) -> Offers | None:
    """Return the nodes that any of the clusters may launch; clusters with the same manifests count once."""
    different = [item for index, item in enumerate(manifests) if item not in manifests[:index]]
    return merged_offers([_offers(item, sold) for item in different])


def _offers(manifests: Manifests, sold: Catalog) -> Offers | None:
    """All types with the memory that EC2 states: nodes never have more, so the result is a lower bound."""
    nominal = {item.instance_type: item.memory_info.size_in_mi_b * _MIB for item in sold.types}
    setting = cluster_setting(ClusterSettings(name="bound", region=REGION), ())
    catalogs = []
    for node_class in manifests.node_classes:
        types = instance_types(sold, node_class, setting, resolved=None, learned=(), unavailable=())
        whole = ({**kind.capacity, MEMORY: nominal[kind.name]} for kind in types)
        full = (replace(kind, capacity=capacity, verified=True) for kind, capacity in zip(types, whole, strict=True))
        catalogs.append(NodeClassCatalog(node_class.metadata.name, tuple(full)))
    return offers_of(Snapshot(cluster="bound", now=0.0, manifests=manifests, catalogs=tuple(catalogs)))


def _timeline_events(outcome: RunOutcome) -> tuple[TimelineEvent, ...]:
    broken = "promise broken"
    events = [TimelineEvent(item.at, broken, f"{item.promise}: {item.detail}", bad=True) for item in outcome.violations]
    for line in outcome.lines:
        facts: dict[str, Any] = msgspec.json.decode(line)
        what, at_s = str(facts.pop("what")), float(facts.pop("t"))
        if what in _TITLES and len(events) < _MOST_HAPPENINGS:
            events.append(TimelineEvent(at_s, _TITLES[what], _fact_text(facts), bad=what in _BAD))
    return tuple(sorted(events, key=lambda event: event.at_s))


def _fact_text(facts: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in _known(facts))


def _known(facts: dict[str, Any]) -> Iterable[tuple[str, Any]]:
    return ((name, value) for name, value in facts.items() if name != "token" and value not in ("", 0, 0.0))
