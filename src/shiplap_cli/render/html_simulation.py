"""`shiplap simulate --html FILE`: a run over time, and the packing at any moment of it."""

from __future__ import annotations

from shiplap.drawing import markup
from shiplap.drawing.markup import counted, dollars, duration, text
from shiplap.drawing.packing_map import node_table
from shiplap_cli.render.charts import charts
from shiplap_cli.render.moments import moments
from shiplap_cli.render.page import page
from shiplap_lab.simulation.campaign import ComparedRun, differences
from shiplap_lab.simulation.recording import Timeline
from shiplap_lab.simulation.run import RunOutcome


def simulation_report(outcome: RunOutcome, timeline: Timeline) -> str:
    """Verdict and numbers first, then what happened when, then the packing."""
    pools = sorted({pool for frame in timeline.frames for pool in frame.picture.pools})
    rest = f"all at rest after {duration(outcome.settled_at)}" if outcome.settled_at >= 0 else "never came to rest"
    lead = f"seed {outcome.seed}, {counted(len(outcome.faults), 'fault')}, {duration(outcome.ended_at)}; {rest}"
    body = [
        _verdict(outcome),
        _totals(outcome),
        charts(timeline, pools),
        moments(timeline.frames, timeline.ends_s),
        node_table(timeline.frames[-1].picture) if timeline.frames else "",
        _faults(outcome),
        f"<p><small>trace {text(outcome.trace)}</small></p>",
    ]
    return page(f"Simulation of {outcome.scenario}", lead, "".join(body))


SIDES = ("its own manifests", "the others")
"""What the two runs of a comparison are called."""


def comparison_report(mine: ComparedRun, others: ComparedRun) -> str:
    """What differs in numbers first, then both runs over the same time, one below the other."""
    sides = (mine, others)
    pools = sorted({pool for side in sides for frame in side.timeline.frames for pool in frame.picture.pools})
    outcome = mine.outcome
    lead = f"seed {outcome.seed}, {counted(len(outcome.faults), 'fault')}, both for {duration(mine.timeline.ends_s)}"
    rows = differences(mine.figures, others.figures)
    body = [markup.table(("", *SIDES, "difference"), rows, numbers=(1, 2, 3))]
    for name, side in zip(SIDES, sides, strict=True):
        body += [f"<h2>With {name}</h2>", _verdict(side.outcome), charts(side.timeline, pools)]
    return page(f"Two runs of {outcome.scenario}", lead, "".join([*body, _faults(outcome)]))


def _verdict(outcome: RunOutcome) -> str:
    if not outcome.violations:
        return "<p class=good><b>Every invariant held.</b></p>"
    return "".join(
        f"<p class=bad><b>Broken after {duration(item.at)}: {text(item.promise)}.</b> "
        f"{text(markup.short(item.detail, 1500))}</p>"
        for item in outcome.violations
    )


def _totals(outcome: RunOutcome) -> str:
    facts = (
        ("instances launched", f"{outcome.launched:,}"),
        ("instances ended", f"{outcome.ended:,}"),
        ("nodes at once, at most", f"{outcome.most_nodes:,}"),
        ("pods bound", f"{outcome.pods_bound:,}"),
        ("longest a pod waited", duration(outcome.longest_pending)),
        ("spent", dollars(outcome.spent)),
        ("of it without a claim", dollars(outcome.unclaimed)),
    )
    shown = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in facts)
    return f"<dl class=totals>{shown}</dl>"


def _faults(outcome: RunOutcome) -> str:
    if not outcome.faults:
        return ""
    rows = [
        (duration(60 * fault.at), fault.kind, fault.target, f"{fault.amount:g}", duration(60 * fault.minutes))
        for fault in sorted(outcome.faults, key=lambda fault: fault.at)
    ]
    head = ("begins after", "fault", "of", "how much", "lasts")
    return f"<details><summary>Faults of this run</summary>{markup.table(head, rows, numbers=(0, 3, 4))}</details>"
