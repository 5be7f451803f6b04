"""Measures how long, and how large, pods can make one decision, if somebody writes them to do so.

Every seed draws 1,000 pods and what goes with them, in two ways: many constraints that hardly two pods share
(`tests.adversarial`), and objects as large as an API server stores them (`tests.hostile_clusters`): pods, nodes,
NodePools, PodDisruptionBudgets, DaemonSets. Each decision runs in a process of its own, from lists as JSON to the plan
and the budgets of all pods. Times are its process time, memory is its most. What bounds both is counted, not timed
(`kubernetes/objects.py`, `scheduling/packing`), so that plans are the same everywhere.

    python -m benchmarks.planning.adversarial [seeds] [first seed] [pods]

The exit code is 1 if a seed is beyond a bar.
"""

from __future__ import annotations

import logging
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.shared.bars import exit_code
from shiplap.scheduling.model.protected_pods import pdb_limits_of
from shiplap.scheduling.model.snapshot import Snapshot
from shiplap.scheduling.planner import plan
from tests.adversarial import drawn
from tests.hostile_clusters import HostileCluster, drawn_cluster, snapshot_of

_BAR_S, _BAR_MIB = 5.0, 512
_GIVEN_UP_S = 60
_WORST = 5


class Decided(msgspec.Struct, order=True):
    """One decision. `kind` is how its pods were drawn, `what` what they consist of; `claims` is -1 if it has no end."""

    took_s: float
    most_mib: float
    kind: str
    seed: int
    claims: int = -1
    left: int = 0
    what: str = ""


def _apart(work: Callable[[], bytes]) -> tuple[bytes, resource.struct_rusage]:
    """Return the answer of work in a process of its own, nothing if it is given up, and what that process used."""
    with tempfile.TemporaryFile() as answer:
        child = os.fork()
        if not child:
            resource.setrlimit(resource.RLIMIT_CPU, (_GIVEN_UP_S, _GIVEN_UP_S + 1))
            try:
                os.write(answer.fileno(), work())
            finally:
                os._exit(0)
        _, _, used = os.wait4(child, 0)
        answer.seek(0)
        return answer.read(), used


def _decided(kind: str, seed: int, snapshot: Callable[[], Snapshot], what: str = "") -> Decided:
    """The decision about a snapshot; making it counts where that is reading lists."""

    def work() -> bytes:
        started = time.process_time()
        given = snapshot()
        if not what:
            started = time.process_time()
        result = plan(given)
        pdb_limits_of(given.view.pod_disruption_budgets, given.view.pods)
        took_s = time.process_time() - started
        return msgspec.json.encode((took_s, len(result.node_claims), len(result.unschedulable)))

    answer, used = _apart(work)
    most_mib = used.ru_maxrss / 1024
    if not answer:
        return Decided(used.ru_utime + used.ru_stime, most_mib, kind, seed, what=what)
    took_s, claims, left = msgspec.json.decode(answer)
    return Decided(took_s, most_mib, kind, seed, claims, left, what)


def _large(seed: int, pods: int) -> Decided:
    """A decision about large objects, drawn in another process: what drawing them holds must not count."""
    stored, _ = _apart(lambda: msgspec.msgpack.encode(drawn_cluster(seed, pods)))
    cluster = msgspec.msgpack.decode(stored, type=HostileCluster)
    del stored
    return _decided("large objects", seed, lambda: snapshot_of(cluster), ", ".join(cluster.drawn))


def main(seeds: int, first: int, pods: int) -> int:
    """Print the worst seeds; 1 if one of them is beyond a bar."""
    logging.disable()  # each object that is set aside is logged
    found = []
    for seed in range(first, first + seeds):
        for decided in (_large(seed, pods), _decided("constraints", seed, lambda: drawn(seed, pods))):  # noqa: B023
            found.append(decided)
            print(msgspec.json.encode(decided).decode(), file=sys.stderr, flush=True)
    table = Table("drawn as", "seed", "s", "MiB", "claims", "left out", "of", title=f"{seeds} seeds of {pods:,} pods")
    slowest, largest = sorted(found, reverse=True), sorted(found, key=lambda each: -each.most_mib)
    for each in dict.fromkeys(map(msgspec.structs.astuple, [*slowest[:_WORST], *largest[:_WORST]])):
        took_s, most_mib, kind, seed, claims, left, what = each
        table.add_row(kind, str(seed), f"{took_s:.2f}", f"{most_mib:.0f}", str(claims), str(left), what)
    Console().print(table)
    missed = [
        f"seed {each.seed} of {each.kind}: {each.took_s:.2f} s, {each.most_mib:.0f} MiB"
        for each in slowest
        if each.took_s > _BAR_S or each.most_mib > _BAR_MIB or each.claims < 0
    ]
    return exit_code(missed, f"at most {slowest[0].took_s:.2f} s and {largest[0].most_mib:.0f} MiB")


if __name__ == "__main__":
    given = [int(argument) for argument in sys.argv[1:]]
    sys.exit(main(*(given + [200, 1, 1000][len(given) :])))
