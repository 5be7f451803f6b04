"""`shiplap lab simulate --html FILE`: a run over time, and the packing at any moment of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from shiplap.drawing import markup, packing_map
from shiplap.drawing.markup import counted, dollars, duration, text
from shiplap.drawing.packing_map import (
    DetailLevel,
    by_pool,
    fading,
    heading,
    legend,
    list_class,
    node_table,
    pending_table,
    sections,
    totals,
)
from shiplap.drawing.picture import NodePicture
from shiplap.drawing.style import colour_numbers
from shiplap_cli.render.charts import charts
from shiplap_cli.render.page import page
from shiplap_lab.simulation.campaign import ComparedRun, differences
from shiplap_lab.simulation.run import RunOutcome
from shiplap_lab.simulation.timeline import Frame, Timeline


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
"""The names of the two runs of a comparison."""


def comparison_report(mine: ComparedRun, others: ComparedRun) -> str:
    """The differences in numbers, then both runs over the same time, one below the other."""
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
        f"<p class=bad><b>Broken after {duration(violation.at)}: {text(violation.promise)}.</b> "
        f"{text(markup.short(violation.detail, 1500))}</p>"
        for violation in outcome.violations
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


MOST_BYTES = 4_000_000
"""The largest size of all frames together; if they are larger, every other frame is left out until they fit."""

_MOST_PODS = 3_000


def moments(frames: Sequence[Frame], ends_s: float, most_bytes: int = MOST_BYTES) -> str:
    """The last frame's totals, map and waiting pods, and a slider for those who run scripts to see the others.

    Args:
        frames: in the order of time.
        ends_s: what the right end of the charts above is, seconds.
        most_bytes: see MOST_BYTES.
    """
    if not frames:
        return ""
    pools = {pool for frame in frames for pool in frame.picture.pools}
    largest = max(frames, key=lambda frame: len(frame.picture.nodes))
    chosen = packing_map.detail_level(largest.picture.nodes, most_pods=_MOST_PODS)
    colours = colour_numbers(pools)
    kept = list(frames)
    drawn: dict[NodePicture, str] = {}
    pieces = _Pieces(chosen, colours, drawn)
    documents = [pieces.frame(frame, ends_s) for frame in kept]
    while pieces.size > most_bytes and len(kept) > 1:
        kept = kept[len(kept) % 2 == 0 :: 2]  # the last one stays
        pieces = _Pieces(chosen, colours, drawn)
        documents = [pieces.frame(frame, ends_s) for frame in kept]
    last = kept[-1].picture
    document = msgspec.json.encode(documents).decode().replace("<", "\\u003c")
    when = duration(kept[-1].at_s)
    everything = [node for frame in kept for node in frame.picture.nodes]
    return (
        f"<h2>The packing</h2>{legend(everything)}"
        "<div class=moment><label for=moment>at</label><output id=when for=moment></output>"
        f'<input id=moment type=range min=0 max={len(kept) - 1} value={len(kept) - 1} aria-label="Moment"></div>'
        f"<noscript><p>The last moment, {when} after the start.</p></noscript>"
        f"<div id=totals>{totals(last)}</div>{packing_map.bound_note(last)}"
        f'<div class=map id=map data-list="{list_class(chosen)}">{sections(last, chosen, colours)}</div>'
        f"<div id=waiting>{pending_table(last)}</div>"
        f"<template id=pieces>{''.join(pieces.numbers)}</template>"
        f'<script type="application/json" id=moments>{document}</script>'
    )


class _Pieces:
    """Markup that frames refer to by number: each piece once. `drawn` are boxes drawn so far."""

    def __init__(self, chosen: DetailLevel, colours: Mapping[str, int], drawn: dict[NodePicture, str]) -> None:
        self.numbers: dict[str, int] = {}
        self.size = 0
        self._chosen, self._colours, self._drawn = chosen, colours, drawn

    def frame(self, frame: Frame, ends_s: float) -> tuple[object, ...]:
        """A frame as the page's script reads it: how far along, when, totals, waiting pods, pools."""
        picture = frame.picture
        pools = [
            (
                f"p{self._colours[pool]}{fading(nodes)}",
                self._piece(heading(pool, nodes)),
                [self._piece(self._box(node)) for node in nodes],
            )
            for pool, nodes in by_pool(picture)
        ]
        return (
            round(min(frame.at_s / ends_s, 1.0), 5) if ends_s else 1,
            duration(frame.at_s),
            self._piece(totals(picture)),
            self._piece(f"<div>{pending_table(picture)}</div>"),
            pools,
        )

    def _box(self, node: NodePicture) -> str:
        """Most nodes are in many frames as they were."""
        drawn = self._drawn.get(node)
        if drawn is None:
            drawn = self._drawn[node] = packing_map.box(node, self._chosen)
        return drawn

    def _piece(self, markup: str) -> int:
        if markup not in self.numbers:
            self.size += len(markup)
        return self.numbers.setdefault(markup, len(self.numbers))
