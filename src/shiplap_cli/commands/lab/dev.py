"""`shiplap lab dev`: the whole system on this machine, while a scenario plays."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from shiplap.errors import InvalidInput
from shiplap_cli.output import Format, Output, SafeConsole, emit, note
from shiplap_lab.checks.observation import RegionObservation
from shiplap_lab.dev import dev_report, screen
from shiplap_lab.dev.dev_session import ended_by_signals
from shiplap_lab.dev.local_region import LocalRegion
from shiplap_lab.dev.player import Played, play_observed
from shiplap_lab.dev.playground import instructions, keep_going, widget_page, write_kubeconfig
from shiplap_lab.scenarios.scenario import Play, load

After = Callable[[Played, LocalRegion], dev_report.DevReport]
"""What is done with a region when its scenario has been played."""


def dev(
    name: Annotated[str, typer.Option("--scenario", help="A bundled scenario, or the path of one.")] = "flex-first",
    once: Annotated[bool, typer.Option("--once", help="Print only the report, and end when it is done.")] = False,
    keep: Annotated[
        bool,
        typer.Option("--keep", help="Stay up after the scenario, for kubectl, `shiplap top` and a browser."),
    ] = False,
    output: Output = Format.TABLE,
) -> int:
    """Play a scenario on an emulated AWS and a simulated cluster, with the deployed functions.

    Exit code 0 when every expectation of the scenario and every invariant held, else 1, with the run's logs left in
    build/local (from the wheel in ~/.cache/shiplap/local). While it plays, other commands look at it by --dev. Ctrl-C,
    `kill` and closing the terminal end it in seconds and leave nothing behind; what a run that was killed outright has
    left, the next one removes.

    With --keep the Region stays up after the scenario until Ctrl-C: kubectl works with the kubeconfig that is
    named, and a page shows the dashboard's widget and follows what happens. NodePools and EC2NodeClasses that kubectl
    applies count. Deployments, StatefulSets, DaemonSets, Jobs and CronJobs make pods, at most 1000 in a cluster.
    Containers do nothing: one of a Job ends after ten seconds, or when the `sleep` of its command does. Services,
    Ingresses, HorizontalPodAutoscalers and other kinds are stored and have no effect.

    Example: shiplap lab dev --scenario spot-interruption

    Example: shiplap lab dev --keep
    """
    if keep and once:
        raise InvalidInput("--keep", "--once ends when the scenario is done: give one of both")
    loaded = load(name)
    live = not once and output is Format.TABLE
    moving = live and SafeConsole().is_terminal

    def after(played: Played, stage: LocalRegion) -> dev_report.DevReport:
        result = _report(played, stage)
        if keep:
            emit(result, output, lambda: _page(result, try_next=False))
            _stay(stage)
        return result

    with ended_by_signals():
        result = _play_live(loaded, after, keep) if moving else _play_quietly(loaded, after, keep)
    if not keep:
        emit(result, output, lambda: _page(result, try_next=live))
    return 0 if all(result.invariants.values()) else 1


def _page(result: dev_report.DevReport, *, try_next: bool) -> RenderableType:
    if not try_next:
        return dev_report.table(result)
    commands = (Text(f"  {line}", no_wrap=True, overflow="fold") for line in dev_report.TRY_NEXT)
    return Group(dev_report.table(result), Text(), Text("Try next:", style="bold"), *commands)


def _stay(stage: LocalRegion) -> None:
    """Go on until Ctrl-C; what to do meanwhile goes to stderr."""
    kubeconfig = write_kubeconfig(stage.folder, stage.endpoints)
    with widget_page(stage.widget, stage.version) as page:
        note(instructions(kubeconfig, page, sorted(stage.endpoints)) + "\n")
        keep_going(stage)
    note("taking everything down\n")


def _play_quietly(loaded: Play, after: After, keep: bool) -> dev_report.DevReport:
    """A line on stderr for each phase, so that stdout holds the report alone, also where no terminal draws."""
    started = time.monotonic()
    said: list[str] = []

    def tell(line: str) -> None:
        if said[-1:] != [line]:
            said.append(line)
            note(f"{time.monotonic() - started:6.1f} s  {line}\n")

    with LocalRegion(loaded, tell, live=keep) as stage:
        return after(play_observed(loaded, stage, lambda say, _world: tell(say)), stage)


def _play_live(loaded: Play, after: After, keep: bool) -> dev_report.DevReport:
    console = SafeConsole()
    happened: list[str] = []
    with console.status("setting up") as status, LocalRegion(loaded, status.update, live=keep) as stage:
        status.stop()
        with Live(console=console, refresh_per_second=4, transient=True) as picture:

            def show(say: str, world: RegionObservation) -> None:
                screen.remember(happened, world)
                picture.update(screen.frame(loaded.scenario.about, say, world, happened))

            played = play_observed(loaded, stage, show)
        return after(played, stage)


def _report(played: Played, stage: LocalRegion) -> dev_report.DevReport:
    """The report; how invariants were broken, and where the logs of a run that failed are, goes to stderr."""
    for violation in played.violations:
        note(f"BROKEN after {violation.at:.0f} s: {violation.promise}: {violation.detail}\n")
    if not all(played.report.invariants.values()):
        note(f"the logs of the run are in {stage.keep_logs()}\n")
    return played.report
