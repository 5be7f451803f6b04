"""`shiplap simulate`: a scenario in virtual time, once or with many seeds, and whether every promise was kept."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from msgspec.structs import replace
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from shiplap.cli.output import Format, Output, emit
from shiplap.simulation.campaign import first_failure, outcomes, run, shrunk
from shiplap.simulation.mutants import MUTANTS, planted
from shiplap.simulation.run import Outcome
from shiplap.simulation.scenario import Play, load


def simulate(
    scenario: Annotated[str, typer.Argument(help="A bundled scenario, or the path of a scenario's file.")] = "mixed",
    *,
    seed: Annotated[int, typer.Option(help="Everything that chance decides follows from it.")] = 0,
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds to play, counted from --seed.")] = 1,
    hours: Annotated[float | None, typer.Option(min=0, help="Virtual hours at least; the scenario's without.")] = None,
    processes: Annotated[int, typer.Option(min=0, help="Processes for many seeds; 0 for one per processor.")] = 0,
    shrink: Annotated[bool, typer.Option(help="Leave out faults one by one while the same promise is broken.")] = True,
    trace: Annotated[Path | None, typer.Option(help="Where to write the trace of the run, as JSON lines.")] = None,
    mutant: Annotated[str, typer.Option(help="Plant a defect first; `list` tries all, also with `races`.")] = "",
    output: Output = Format.TABLE,
) -> int:
    """Play a scenario with the real flows over in-memory twins, in virtual time, and check every promise at every step.

    Exit code 0 when all promises were kept, 1 when one was broken (with `--mutant list`: when a defect was not found),
    2 for bad input.

    Example: shiplap simulate spot-storm --seed 7 -o json
    """
    play = load(scenario)
    many = range(seed, seed + seeds)
    if mutant == "list":
        return _mutants(scenario, many, output)
    if seeds > 1:
        return _campaign(play, scenario, many, processes or os.cpu_count() or 1, hours, mutant, output, shrink=shrink)
    with planted(mutant):
        outcome = run(play, seed, hours=hours)
        if outcome.violations and shrink:
            outcome = shrunk(play, outcome, hours=hours)
    if trace is not None:
        trace.write_text("".join(f"{line}\n" for line in outcome.lines), encoding="utf-8")
    emit(document(outcome), output, lambda: _page(outcome))
    return 1 if outcome.violations else 0


def document(outcome: Outcome) -> dict[str, Any]:
    """An outcome in the fixed format of `shiplap simulate -o json`."""
    return {
        "scenario": outcome.scenario,
        "seed": outcome.seed,
        "trace": outcome.trace,
        "kept": not outcome.violations,
        "violations": [msgspec.to_builtins(item) for item in outcome.violations],
        "faults": [msgspec.to_builtins(item) for item in outcome.faults] if outcome.violations else len(outcome.faults),
        "settledAfterSeconds": outcome.settled_at,
        "endedAfterSeconds": outcome.ended_at,
        "steps": outcome.steps,
        "instances": {"launched": outcome.launched, "ended": outcome.ended, "mostAtOnce": outcome.most_nodes},
        "pods": {"bound": outcome.pods_bound, "longestPendingSeconds": outcome.longest_pending},
        "dollars": {"spent": outcome.spent, "ledger": outcome.ledger, "unclaimed": outcome.unclaimed},
        "messagesGivenUp": outcome.given_up,
        "metrics": outcome.metrics,
    }


def _campaign(
    play: Play,
    name: str,
    seeds: range,
    processes: int,
    hours: float | None,
    mutant: str,
    output: Format,
    *,
    shrink: bool,
) -> int:
    failed: list[Outcome] = []
    steps = launched = 0
    for outcome in outcomes(name, seeds, processes=processes, mutant=mutant):
        steps += outcome.steps
        launched += outcome.launched
        if outcome.violations:
            failed.append(outcome)
    if failed and shrink:
        with planted(mutant):
            failed[0] = replace(shrunk(play, failed[0], hours=hours), lines=())
    value = {
        "scenario": play.name,
        "seeds": len(seeds),
        "steps": steps,
        "launched": launched,
        "failed": [document(outcome) for outcome in failed],
    }
    summary = f"{play.name}: {len(seeds)} seeds, {steps} steps, {launched} instances, {len(failed)} failed"
    emit(value, output, lambda: Group(Text(summary, style="bold"), *(_page(outcome) for outcome in failed[:5])))
    return 1 if failed else 0


def _mutants(name: str, seeds: range, output: Format) -> int:
    found: dict[str, dict[str, Any]] = {}
    for mutant in MUTANTS:
        seen: list[Outcome] = []
        number = first_failure(tuple(dict.fromkeys((name, "races"))), seeds, mutant, seen.append)
        promise = seen[0].violations[0].promise if seen else ""
        found[mutant] = {"foundAfterSeeds": number, "promise": promise}
    emit(found, output, lambda: _mutant_table(found, len(seeds)))
    return 0 if all(item["foundAfterSeeds"] for item in found.values()) else 1


def _mutant_table(found: dict[str, dict[str, Any]], most: int) -> Table:
    table = Table("defect", "found after seeds", "by the promise", box=None, pad_edge=False)
    for name, item in found.items():
        table.add_row(name, str(item["foundAfterSeeds"] or f"not within {most}"), item["promise"])
    return table


def _page(outcome: Outcome) -> RenderableType:
    facts = Table(box=None, show_header=False, pad_edge=False)
    facts.add_row("seed", str(outcome.seed))
    facts.add_row("trace", outcome.trace)
    facts.add_row("settled after", f"{outcome.settled_at / 60:.1f} min" if outcome.settled_at >= 0 else "never")
    facts.add_row("instances", f"{outcome.launched} launched, {outcome.ended} ended, {outcome.most_nodes} at once")
    facts.add_row("pods", f"{outcome.pods_bound} bound, the longest was pending {outcome.longest_pending:.0f} s")
    facts.add_row("spent", f"${outcome.spent:.4f}, of which ${outcome.unclaimed:.4f} for instances without a claim")
    facts.add_row("steps", str(outcome.steps))
    parts: list[RenderableType] = [Text(f"{outcome.scenario}, {len(outcome.faults)} faults", style="bold"), facts]
    parts += [
        Text(f"BROKEN after {item.at:.0f} s: {item.promise}: {item.detail}", style="red") for item in outcome.violations
    ]
    if outcome.violations:
        parts += [Text(f"  {fault}") for fault in outcome.faults]
        parts += [Text(line, style="dim") for line in outcome.lines[-40:]]
    return Group(*parts)
