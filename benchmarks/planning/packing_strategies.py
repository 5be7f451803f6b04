"""Shows what each strategy of the packer earns: batches are planned with all of them, and again without each.

Batches have 1 to 500 pods: spreads, affinity, GPUs, DaemonSets, taints; a tainted NodePool is the heavier one. Every
second batch is scarce: its pods have priorities and preferences, and the limits of its NodePools allow a part of the
nodes of its first plan. A row sums over the batches in which its strategy was tried. Dollars are compared where as many
pods have a place without it; where the numbers differ, pods count. The last line is a digest of all plans, to compare
two versions of the planner.

    python -m benchmarks.planning.packing_strategies --batches 200 --seed 4602
"""

from __future__ import annotations

import argparse
import hashlib
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, islice
from unittest.mock import patch

import msgspec
from msgspec.structs import replace
from rich.console import Console
from rich.table import Table

from benchmarks.karpenter.random_batches import HOST, NODE_CLASS, Batch, Json, drawn, estimated_catalogues
from shiplap.kubernetes.quantity import CPU
from shiplap.scheduling.model.scheduling_plan import Plan
from shiplap.scheduling.model.snapshot import NodeClassCatalog, Snapshot
from shiplap.scheduling.packing import strategies
from shiplap.scheduling.packing.pack import Packing
from shiplap.scheduling.packing.strategies import Strategy
from shiplap.scheduling.planner import plan
from shiplap.scheduling.search.improve import clear_cache

MOST_PODS = 500
IMPROVE_S = 0.3


@dataclass
class Earned:
    """What leaving one strategy out does, summed over batches."""

    tried: int = 0
    changed: int = 0
    seconds: float = 0.0
    dollars: float = 0.0
    without: float = 0.0
    most: float = 0.0
    more_left_out: int = 0
    more_important: int = 0


def snapshots(number: int, seed: int) -> Iterator[tuple[str, Snapshot]]:
    """So many batches of a seed, each with its name."""
    found = (item for place in count(1) if (item := snapshot_at(seed, place)) is not None)
    return islice(found, number)


def snapshot_at(seed: int, place: int) -> tuple[str, Snapshot] | None:
    """One batch of a seed; none where the draw is too large. Those at even places are scarce."""
    batch = _weighted(drawn(1, seed * 10_000 + place)[0])
    if len(batch.pods) > MOST_PODS:
        return None
    if place % 2 == 0:
        batch = _scarce(batch, random.Random(f"{seed}-{place}"))
    return batch.name, _snapshot(batch, IMPROVE_S)


def _snapshot(batch: Batch, improve_s: float) -> Snapshot:
    """Return the planner's input at prices that are the same on every machine."""
    types = estimated_catalogues()[batch.catalogue]
    return replace(batch.snapshot(improve_s), catalogs=(NodeClassCatalog(NODE_CLASS["name"], types),))


def _weighted(batch: Batch) -> Batch:
    """The batch with a heavier second NodePool, where it has two."""
    first, *others = batch.node_pools
    heavier = [{**pool, "spec": {**pool["spec"], "weight": 10}} for pool in others]
    return Batch(batch.name, batch.catalogue, [first, *heavier], batch.pods, batch.daemon_sets)


def _scarce(batch: Batch, source: random.Random) -> Batch:
    """The batch with priorities and preferences, and with limits below what its plan takes."""
    kinds: dict[str, Json] = {}
    pods = []
    for pod in batch.pods:
        app = pod["metadata"]["labels"]["app"]
        if app not in kinds:
            kinds[app] = {"priority": source.choice((0, 0, 100, 1000)), **_preference(pod, app, source)}
        pods.append({**pod, "spec": {**pod["spec"], **kinds[app]}})
    open_ended = Batch(f"{batch.name}, scarce", batch.catalogue, batch.node_pools, pods, batch.daemon_sets)
    first = plan(_snapshot(open_ended, 0.0))
    cpus = {item.name: item.capacity[CPU] for item in batch.types}
    part, by_nodes = source.uniform(0.3, 0.95), source.random() < 0.3
    pools = []
    for pool in batch.node_pools:
        name = pool["metadata"]["name"]
        launched = [claim.launch.instance_type for claim in first.node_claims if claim.node_pool == name]
        amount = len(launched) if by_nodes else sum(cpus[item] for item in launched) / 1000
        limits = {"nodes" if by_nodes else "cpu": str(max(1, int(amount * part)))}
        pools.append({**pool, "spec": {**pool["spec"], "limits": limits}})
    return Batch(open_ended.name, batch.catalogue, pools, pods, batch.daemon_sets)


def _preference(pod: Json, app: str, source: random.Random) -> Json:
    """For a part of the pods without required affinity: rather not on one node."""
    if "affinity" in pod["spec"] or source.random() < 0.7:
        return {}
    term = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": app}}}
    preferred = [{"weight": 1, "podAffinityTerm": term}]
    return {"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}}


def _noting(strategy: Strategy, seconds: dict[str, float]) -> Strategy:
    """The strategy, which notes how long it takes."""

    def packings(*given: object) -> Iterator[Packing]:
        found = strategy.packings(*given)  # type: ignore[arg-type] - as it was called
        while True:
            start = time.process_time()
            other = next(found, None)
            seconds[strategy.name] = seconds.get(strategy.name, 0.0) + time.process_time() - start
            if other is None:
                return
            yield other

    return replace(strategy, packings=packings)


def planned(snapshot: Snapshot, used: tuple[Strategy, ...]) -> Plan:
    """The plan by these strategies, as in a new process."""
    clear_cache()
    with patch.object(strategies, "STRATEGIES", used):
        return plan(snapshot)


def measured(number: int, seed: int, console: Console) -> tuple[dict[str, Earned], str]:
    """What each strategy earns over so many batches, and the digest of all plans."""
    earned = {strategy.name: Earned() for strategy in strategies.STRATEGIES}
    digest = hashlib.sha256()
    for name, snapshot in snapshots(number, seed):
        seconds: dict[str, float] = {}
        whole = planned(snapshot, tuple(_noting(strategy, seconds) for strategy in strategies.STRATEGIES))
        digest.update(msgspec.json.encode(whole))
        for left_out, taken in seconds.items():
            one = earned[left_out]
            rest = tuple(strategy for strategy in strategies.STRATEGIES if strategy.name != left_out)
            other = planned(snapshot, rest)
            one.tried += 1
            one.seconds += taken
            one.changed += other != whole
            more = len(other.unschedulable) - len(whole.unschedulable)
            one.more_left_out += more
            one.more_important += important_left_out(other, snapshot) - important_left_out(whole, snapshot)
            if not more:
                one.dollars += whole.hourly
                one.without += other.hourly
                one.most = max(one.most, other.hourly / whole.hourly - 1 if whole.hourly else 0.0)
            if other != whole:
                console.log(f"{left_out}: {name}: {whole.hourly} → {other.hourly}, {more:+} pods left out")
    return earned, digest.hexdigest()[:16]


def important_left_out(made: Plan, snapshot: Snapshot) -> int:
    """The number of pods with a priority that a plan leaves out."""
    with_priority = {pod.metadata.name for pod in snapshot.view.pods if pod.spec.priority}
    return sum(entry.pod.name in with_priority for entry in made.unschedulable)


def main() -> None:
    """Print the table."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--batches", type=int, default=200)
    arguments.add_argument("--seed", type=int, default=4601)
    options = arguments.parse_args()
    earned, digest = measured(options.batches, options.seed, Console(stderr=True))
    pods = ("pods more left out", "with priority")
    table = Table("strategy left out", "tried", "changes", "USD/h", "without it", "at most", *pods, "CPU s")
    for name, one in earned.items():
        part = f" ({one.without / one.dollars - 1:+.2%})" if one.dollars else ""
        table.add_row(
            name,
            str(one.tried),
            str(one.changed),
            f"{one.dollars:.2f}",
            f"{one.without:.2f}{part}",
            f"{one.most:+.1%}",
            f"{one.more_left_out:+}",
            f"{one.more_important:+}",
            f"{one.seconds:.1f}",
        )
    Console(width=120).print(table)
    Console(width=120).print(f"plans {digest}")


if __name__ == "__main__":
    main()
