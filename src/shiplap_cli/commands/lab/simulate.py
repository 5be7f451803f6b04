"""`shiplap lab simulate`: a scenario in virtual time, once or with many seeds, and whether every invariant held."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from msgspec.structs import replace
from rich.console import Group, RenderableType
from rich.text import Text

from shiplap.errors import InvalidInput
from shiplap.manifests.custom_resources import Manifests
from shiplap.manifests.files.loading import load_manifests
from shiplap_cli.output import (
    FURTHER,
    Format,
    HtmlFile,
    Output,
    Printed,
    counted,
    emit,
    facts_table,
    plain_table,
    write_page,
)
from shiplap_cli.render.html_simulation import SIDES, comparison_report, simulation_report
from shiplap_lab.faults.fault import Fault
from shiplap_lab.judge.promises import Violation
from shiplap_lab.scenarios.scenario import Play, load
from shiplap_lab.simulation.campaign import (
    MOST_RARE,
    FaultEffect,
    KeptResults,
    MutantResult,
    RunFigures,
    compare_manifests,
    differences,
    effects_of_faults,
    hunt_mutants,
    rare_faults,
    run_seed,
    run_seeds,
    with_fewest_faults,
)
from shiplap_lab.simulation.mutants import MUTANTS, planted
from shiplap_lab.simulation.recording import Recording, run_recorded
from shiplap_lab.simulation.run import RunOutcome


class CeilingOvershoot(Printed, frozen=True):
    """What a month cost above a ceiling that stops launches, and the part of it by which prices rose."""

    ceiling: str
    dollars: float
    dearer_by_prices: float


class InstancesOfRun(Printed, frozen=True):
    """Instances of a run."""

    launched: int
    ended: int
    most_at_once: int


class PodsOfRun(Printed, frozen=True):
    """Pods of a run."""

    bound: int
    longest_pending_seconds: float


class DollarsOfRun(Printed, frozen=True):
    """What the instances of a run cost, what the ledger says, and what instances without a claim cost."""

    spent: float
    ledger: float
    unclaimed: float


class RunDocument(Printed, frozen=True, kw_only=True):
    """The outcome of one run; `faults` are counted where every promise was kept."""

    scenario: str
    seed: int
    trace: str
    placement: str
    kept: bool
    violations: tuple[Violation, ...]
    faults: tuple[Fault, ...] | int
    settled_after_seconds: float
    ended_after_seconds: float
    steps: int
    instances: InstancesOfRun
    pods: PodsOfRun
    dollars: DollarsOfRun
    overshoots: tuple[CeilingOvershoot, ...]
    messages_given_up: int
    effects: dict[str, int]
    metrics: dict[str, float]


class TimesOfFault(Printed, frozen=True):
    """How often a fault took effect, and in how many seeds."""

    times: int
    seeds: int


class CampaignDocument(Printed, frozen=True, kw_only=True):
    """The outcome of many seeds; `rare` are faults that took effect in too few of them."""

    scenario: str
    seeds: int
    steps: int
    launched: int
    effects: dict[str, TimesOfFault]
    overshoots: tuple[CeilingOvershoot, ...]
    rare: tuple[str, ...]
    failed: tuple[RunDocument, ...]


class ManifestsDocument(Printed, frozen=True):
    """One seed under two sets of manifests."""

    scenario: str
    seed: int
    own: RunFigures
    other: RunFigures


class VerdictOfMutant(Printed, frozen=True):
    """After how many seeds a planted defect was found, in which scenario, and by which promise."""

    found_after_seeds: int
    scenario: str
    promise: str


class MutantsDocument(Printed, frozen=True):
    """Planted defects, and how long the hunt took."""

    mutants: dict[str, VerdictOfMutant]
    seconds: float


def simulate(
    scenario: Annotated[str, typer.Argument(help="A bundled scenario, or the path of one.")] = "mixed",
    *,
    seed: Annotated[int, typer.Option(help="Everything that chance decides follows from it.")] = 0,
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds to play, counted from --seed.")] = 1,
    hours: Annotated[float | None, typer.Option(min=0, help="Virtual hours at least; the scenario's without.")] = None,
    processes: Annotated[
        int, typer.Option(min=0, help="Processes for many seeds; 0 for one per processor.", rich_help_panel=FURTHER)
    ] = 0,
    shrink: Annotated[
        bool, typer.Option(help="Leave out faults one by one while the same invariant breaks.", rich_help_panel=FURTHER)
    ] = True,
    trace: Annotated[Path | None, typer.Option(help="Where to write the trace of the run, as JSON lines.")] = None,
    mutant: Annotated[
        str, typer.Option(help="Plant a defect first; `list` tries all, each in its own scenarios.")
    ] = "",
    recording: Annotated[
        Path | None, typer.Option("--recording", help="Write the run for `shiplap top --recording`, as JSON.")
    ] = None,
    records: Annotated[
        Path | None,
        typer.Option(
            "--records",
            help="Write recorded decisions into a folder, for `shiplap explain decision`.",
            rich_help_panel=FURTHER,
        ),
    ] = None,
    results: Annotated[
        Path | None,
        typer.Option(
            "--results",
            help="Keep outcomes of many seeds in this file; seeds that it has are not replayed.",
            rich_help_panel=FURTHER,
        ),
    ] = None,
    html: HtmlFile = None,
    compare: Annotated[
        list[Path] | None, typer.Option("--compare", help="Play it with these manifests too; both side by side.")
    ] = None,
    output: Output = Format.TABLE,
) -> int:
    """Play a scenario with the real flows over in-memory fakes, in virtual time; check every invariant at each step.

    Exit code 0 when every invariant held, 1 when one broke, or when a kind of fault took effect in less than 5 % of
    at least 50 seeds (with `--mutant list`: when a defect was not found), 2 for bad input.

    Example: shiplap lab simulate spot-storm --seed 7 -o json
    """
    play = load(scenario)
    many = range(seed, seed + seeds)
    if compare:
        return _compare_manifests(play, load_manifests(compare), seed, hours, output, html)
    wanted = {"--html": html, "--recording": recording, "--records": records}
    kept = next((option for option, path in wanted.items() if path is not None), "")
    if kept and (seeds > 1 or mutant == "list"):
        raise InvalidInput(kept, "shows one run: give one --seed, and no --mutant list")
    if results is not None and (seeds == 1 or mutant == "list"):
        raise InvalidInput("--results", "keeps the outcomes of many seeds: give --seeds, and no --mutant list")
    if mutant == "list":
        return _hunt_mutants(many, processes or os.cpu_count() or 1, output)
    if seeds > 1:
        kept_results = KeptResults(results, scenario, mutant, hours) if results is not None else None
        return _run_campaign(
            play, scenario, many, processes or os.cpu_count() or 1, hours, mutant, output, kept_results, shrink=shrink
        )
    with planted(mutant):
        outcome = run_seed(play, seed, hours=hours)
        if outcome.violations and shrink:
            outcome = with_fewest_faults(play, outcome, hours=hours)
        if kept:
            _write_files(run_recorded(play, seed, outcome.faults, hours), html, recording, records)
    if trace is not None:
        trace.write_text("".join(f"{line}\n" for line in outcome.lines), encoding="utf-8")
    emit(document(outcome), output, lambda: _page(outcome))
    return 1 if outcome.violations else 0


def _write_files(
    run: tuple[RunOutcome, Recording], html: Path | None, recording: Path | None, records: Path | None
) -> None:
    """Write the files that were asked for; a record's path in its folder is its id."""
    outcome, seen = run
    timeline = seen.timeline(outcome)
    if html is not None:
        write_page(html, simulation_report(outcome, timeline))
    if recording is not None:
        recording.write_bytes(msgspec.json.encode(timeline))
    if records is not None:
        for name, document in seen.records().items():
            path = records / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(document)


def _compare_manifests(
    play: Play, other: Manifests, seed: int, hours: float | None, output: Format, html: Path | None
) -> int:
    mine, others = compare_manifests(play, other, seed, hours)
    value = ManifestsDocument(play.name, seed, mine.figures, others.figures)
    if html is not None:
        write_page(html, comparison_report(mine, others))
    emit(
        value,
        output,
        lambda: plain_table("", *SIDES, "difference", rows=differences(mine.figures, others.figures)),
    )
    return 0 if mine.figures.kept and others.figures.kept else 1


def document(outcome: RunOutcome) -> RunDocument:
    """An outcome as `shiplap lab simulate -o json` prints it."""
    return RunDocument(
        scenario=outcome.scenario,
        seed=outcome.seed,
        trace=outcome.trace,
        placement=outcome.placement,
        kept=not outcome.violations,
        violations=tuple(outcome.violations),
        faults=tuple(outcome.faults) if outcome.violations else len(outcome.faults),
        settled_after_seconds=outcome.settled_at,
        ended_after_seconds=outcome.ended_at,
        steps=outcome.steps,
        instances=InstancesOfRun(outcome.launched, outcome.ended, outcome.most_nodes),
        pods=PodsOfRun(outcome.pods_bound, outcome.longest_pending),
        dollars=DollarsOfRun(outcome.spent, outcome.ledger, outcome.unclaimed),
        overshoots=tuple(_overshoot(*item) for item in outcome.overshoots),
        messages_given_up=outcome.given_up,
        effects=outcome.effects,
        metrics=outcome.metrics,
    )


def _run_campaign(
    play: Play,
    name: str,
    seeds: range,
    processes: int,
    hours: float | None,
    mutant: str,
    output: Format,
    results: KeptResults | None,
    *,
    shrink: bool,
) -> int:
    outcomes = list(run_seeds(name, seeds, processes=processes, mutant=mutant, hours=hours, results=results))
    steps, launched = sum(item.steps for item in outcomes), sum(item.launched for item in outcomes)
    failed = [outcome for outcome in outcomes if outcome.violations]
    effects = effects_of_faults(play, outcomes)
    rare = () if mutant else rare_faults(play, effects, len(seeds))
    if failed and shrink:
        with planted(mutant):
            failed[0] = replace(with_fewest_faults(play, failed[0], hours=hours), lines=())
    overshoots = tuple(_overshoot(*item) for outcome in outcomes for item in outcome.overshoots)
    value = CampaignDocument(
        scenario=play.name,
        seeds=len(seeds),
        steps=steps,
        launched=launched,
        effects={item.kind: TimesOfFault(item.times, item.seeds) for item in effects},
        overshoots=overshoots,
        rare=rare,
        failed=tuple(document(outcome) for outcome in failed),
    )
    summary = f"{play.name}: {counted(len(seeds), 'seed')}, {steps} steps, {launched} instances, {len(failed)} failed"
    parts = (*_overshoot_lines(overshoots), _effects_table(effects, rare), *(_page(outcome) for outcome in failed[:5]))
    emit(value, output, lambda: Group(Text(summary, style="bold"), *parts))
    return 1 if failed or rare else 0


def _overshoot(ceiling: str, over: float, dearer: float) -> CeilingOvershoot:
    return CeilingOvershoot(ceiling, round(over, 6), round(dearer, 6))


def _overshoot_lines(overshoots: Sequence[CeilingOvershoot]) -> list[RenderableType]:
    """The months in which more was spent than a ceiling that stops launches."""
    if not overshoots:
        return []
    worst = max(overshoots, key=lambda item: item.dollars)
    said = f"{counted(len(overshoots), 'ceiling')} of a month passed, by ${worst.dollars:.4f} at most"
    return [Text(f"{said}: {worst.ceiling}, where prices rose by ${worst.dearer_by_prices:.4f}")]


def _effects_table(effects: tuple[FaultEffect, ...], rare: tuple[str, ...]) -> RenderableType:
    rows = ((item.kind, str(item.times), str(item.seeds)) for item in effects)
    table = plain_table("fault", "took effect", "in seeds", rows=rows)
    said = f"TOO RARE, in less than {MOST_RARE:.0%} of the seeds: {', '.join(rare)}"
    return Group(table, Text(said, style="red")) if rare else table


def _hunt_mutants(seeds: range, processes: int, output: Format) -> int:
    start = time.monotonic()
    results = list(hunt_mutants(MUTANTS, seeds, processes=processes))
    found = {each.mutant: VerdictOfMutant(each.seeds, each.scenario, each.promise) for each in results}
    value = MutantsDocument(found, round(time.monotonic() - start, 1))
    emit(value, output, lambda: _mutant_table(results, len(seeds), value.seconds))
    return 0 if all(result.seeds for result in results) else 1


def _mutant_table(results: list[MutantResult], most: int, seconds: float) -> RenderableType:
    rows = ((item.mutant, str(item.seeds or f"not within {most}"), item.scenario, item.promise) for item in results)
    table = plain_table("defect", "found after seeds", "in", "by the invariant", rows=rows)
    return Group(table, Text(f"{sum(item.seeds > 0 for item in results)} of {len(results)} found in {seconds:.0f} s"))


def _page(outcome: RunOutcome) -> RenderableType:
    asleep = f", {outcome.asleep} sleep at the end" if outcome.asleep else ""
    facts = (
        ("seed", str(outcome.seed)),
        ("invariants", f"{len(outcome.violations)} broken" if outcome.violations else "all held"),
        ("trace", outcome.trace),
        ("placement", outcome.placement),
        ("settled after", f"{outcome.settled_at / 60:.1f} min" if outcome.settled_at >= 0 else "never"),
        ("instances", f"{outcome.launched} launched, {outcome.ended} ended, {outcome.most_nodes} at once"),
        ("pods", f"{outcome.pods_bound} bound, the longest was pending {outcome.longest_pending:.0f} s{asleep}"),
        ("spent", f"${outcome.spent:.4f}, of which ${outcome.unclaimed:.4f} for instances without a claim"),
        ("steps", str(outcome.steps)),
        ("faults took effect", ", ".join(f"{kind} {times}" for kind, times in outcome.effects.items()) or "never"),
    )
    head = Text(f"{outcome.scenario}, {counted(len(outcome.faults), 'fault')}", style="bold")
    parts: list[RenderableType] = [head, facts_table(facts)]
    parts += _overshoot_lines([_overshoot(*item) for item in outcome.overshoots])
    parts += [
        Text(f"BROKEN after {item.at:.0f} s: {item.promise}: {item.detail}", style="red") for item in outcome.violations
    ]
    if outcome.violations:
        parts += [Text(f"  {fault}") for fault in outcome.faults]
        parts += [Text(line, style="dim") for line in outcome.lines[-40:]]
    return Group(*parts)
