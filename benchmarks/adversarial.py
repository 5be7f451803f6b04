"""How long pods can keep one decision busy, if they are written to do so.

Every seed draws 1,000 pods over spread, affinity, preferences, selectors, volumes and tolerations, with NodePools and
nodes that go with them (`tests.adversarial`). Times are process time of one decision on one core, reading the pods
aside. What bounds them is counted, not timed (`scheduling/packing/pack.py`), so that plans are the same everywhere.

    python benchmarks/adversarial.py [seeds] [first seed] [pods]
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent.parent))

from shiplap.scheduling.planner import plan
from tests.adversarial import drawn

_BAR_S = 5.0
_WORST = 5


def main(seeds: int, first: int, pods: int) -> int:
    """Print the worst seeds; 1 if one of them is beyond the bar."""
    rows = []
    for seed in range(first, first + seeds):
        snapshot = drawn(seed, pods)
        started = time.process_time()
        result = plan(snapshot)
        took_s = time.process_time() - started
        rows.append((took_s, seed, len(result.node_claims), len(result.unschedulable)))
        print(*rows[-1], file=sys.stderr, flush=True)
    rows.sort(reverse=True)
    table = Table("seed", "s", "claims", "left out", title=f"the worst of {seeds} seeds of {pods:,} pods")
    for took_s, seed, claims, left in rows[:_WORST]:
        table.add_row(str(seed), f"{took_s:.2f}", str(claims), str(left))
    Console().print(table)
    Console().print(f"bar: {_BAR_S:g} s; worst: {rows[0][0]:.2f} s; all of them: {sum(row[0] for row in rows):.0f} s")
    return int(rows[0][0] > _BAR_S)


if __name__ == "__main__":
    given = [int(argument) for argument in sys.argv[1:]]
    sys.exit(main(*(given + [200, 1, 1000][len(given) :])))
