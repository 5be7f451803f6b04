"""Measures what explanations cost a decision, and what it costs to explain one pod in full.

The first rows are decisions in which every pod gets a place; there the share of explanations is to stay under 2 %. The
others show what it takes to tell many pods why they have none, and `shiplap explain pod` with the changes it tries.
Times are process time, the best of several runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.planning.decoding import unseen
from benchmarks.planning.scheduling import decoded, snapshot
from benchmarks.shared.karpenter_workload import verified
from shiplap.manifests.custom_resources import Manifests, NodePool
from shiplap.scheduling.explain.unschedulable import Explainer
from shiplap.scheduling.model.snapshot import Snapshot
from shiplap.scheduling.planner import plan, solve
from shiplap_cli.accounts.pod_account import pod_account_of
from tests.conformance.catalogues import incrementing_types

_BAR_PERCENT = 2.0
_LIMITED = "1,000 diverse pods, limits that leave most of them out"
_TAINTED = {"taints": [{"key": "dedicated", "value": "x", "effect": "NoSchedule"}]}


def best_s(work: Callable[[], object], runs: int = 5) -> float:
    """The shortest process time of several runs, seconds."""
    times = []
    for _ in range(runs):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return min(times)


def explaining_s(case: Snapshot) -> float:
    """Return the seconds that it takes to explain every claim and every class that was left out of one decision."""
    world, packing = solve(case)
    planned = plan(case).node_claims[0]  # explanations are added to it, whatever it is

    def explain() -> None:
        explainer = Explainer(world, packing)
        for claim in packing.claims:
            explainer.explained(claim, planned)
        for item in world.classes:
            if packing.unplaced.get(item.index):
                explainer.unschedulable(item)

    return best_s(explain)


def with_pool(case: Snapshot, **spec: object) -> Snapshot:
    """The same with a further pool, tried first."""
    pool = case.manifests.node_pools[0]
    written = msgspec.to_builtins(pool)
    written["metadata"]["name"] = "preferred"
    written["spec"] |= {"weight": 50, "limits": spec.pop("limits", {})}
    written["spec"]["template"]["spec"] |= spec
    first = msgspec.convert(written, NodePool)
    return msgspec.structs.replace(case, manifests=Manifests(node_pools=(first, pool)))


def limited(case: Snapshot, limits: dict[str, str]) -> Snapshot:
    """The same with other limits."""
    pool = case.manifests.node_pools[0]
    pools = (msgspec.structs.replace(pool, spec=msgspec.structs.replace(pool.spec, limits=limits)),)
    return msgspec.structs.replace(case, manifests=Manifests(node_pools=pools))


def main() -> None:
    pods, _ = decoded(verified(10_000), plain=False)
    diverse = snapshot(pods, incrementing_types(400))
    cases = {
        "10,000 diverse pods": diverse,
        "the same, a better pool is tainted": with_pool(diverse, **_TAINTED),
        "the same, a better pool is at its limits": with_pool(diverse, limits={"cpu": "500"}),
        _LIMITED: limited(snapshot(pods[:1000], incrementing_types(400)), {"cpu": "300"}),
    }
    table = Table("case", "left out", "plan s", "explaining s", "share", title="Explanations")
    for name, case in cases.items():
        whole, part = best_s(lambda case=case: plan(unseen(case)), 3), explaining_s(case)  # type: ignore[misc]
        left = len(plan(case).unschedulable)
        bar = f" of {_BAR_PERCENT:g} % allowed" if not left else ""
        table.add_row(name, str(left), f"{whole:.3f}", f"{part:.4f}", f"{100 * part / whole:.2f} %{bar}")
    out = cases[_LIMITED]
    decided = plan(out)
    left_out, placed = decided.unschedulable[0].pod, decided.node_claims[0].pods[0]
    for kind, pod in (("left out", left_out), ("placed", placed)):
        seconds = best_s(lambda pod=pod: pod_account_of(out, decided, pod.key), 1)  # type: ignore[misc]
        table.add_row(f"explain pod, one that is {kind}", "", "", f"{seconds:.3f}", "")
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
