"""`--markdown FILE`: what `validate` and `plan --diff` say as Markdown, for a comment on a pull request.

Manifests and pods are written by whoever opens the pull request: no text of theirs becomes markup or calls anybody.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape

from shiplap.drawing.markup import counted
from shiplap.errors import InvalidInput
from shiplap.instances.offerings.node_prices import Price
from shiplap_cli.money import monthly
from shiplap_cli.output import grouped, summary
from shiplap_cli.render.totals import LeftOut, NodeTotal, PlanDifference

MOST_ROWS = 50
"""Rows of a table that are shown; a comment on GitHub has room for 65,536 characters."""

_SIGNS = {ord(sign): f"\\{sign}" for sign in "\\`*_[]#|~"} | {ord("@"): "@\N{ZERO WIDTH SPACE}"}
"""Signs that would become markup, or a person who is called."""


def markdown_text(text: str) -> str:
    """A text as it is, on one line."""
    return escape(" ".join(text.split()), quote=False).translate(_SIGNS)


def validation_markdown(checked: int, problems: Sequence[InvalidInput], warnings: Sequence[InvalidInput]) -> str:
    """The problems and warnings of manifests, a row each."""
    if not problems and not warnings:
        return f"{counted(checked, 'manifest')} valid.\n"
    told = (*(("problem", entry) for entry in problems), *(("warning", entry) for entry in warnings))
    rows = [
        (kind, f"{entry.source}:{entry.line}".removesuffix(":0"), entry.document, entry.field, entry.reason)
        for kind, entry in told
    ]
    lead = f"{counted(checked, 'manifest')}: {counted(len(problems), 'problem')}, {counted(len(warnings), 'warning')}."
    return "\n".join([lead, "", *_table(("", "where", "object", "field", "reason"), rows)]) + "\n"


def difference_markdown(compared: PlanDifference, caveats: Iterable[str] = ()) -> str:
    """What another set of manifests changes: nodes, dollars of a month, and pods without a place."""
    old, new = compared.old, compared.new
    rows = [(name, f"{before:,}", f"{after:,}", _signed(after - before)) for name, before, after in compared.counts]
    for name, before, after in (
        ("a month of what is launched", old.price, new.price),
        ("a month of the cluster then", old.totals.then.price, new.totals.then.price),
    ):
        rows.append((name, monthly(before), monthly(after), _share(before, after)))
    lines = [*_table(("", "old", "new", "change"), rows, numbers=True)]
    for title, before_by, after_by in (
        ("NodePool", old.pools, new.pools),
        ("instance type", old.instance_types, new.instance_types),
    ):
        lines += _launches(title, before_by, after_by)
    lines += _pods("Placed by the old manifests, left out by the new ones", compared.newly_left_out)
    lines += _pods("Left out by the old manifests, placed by the new ones", compared.newly_placed)
    if compared.moved:
        lines += ["", f"{counted(compared.moved, 'pod')} would get a node of another NodePool."]
    if compared.drifting:
        lines += ["", f"**{counted(compared.drifting_nodes, 'node')} would drift and be replaced**", ""]
        lines += _table(("why", "nodes", "a month"), [entry.row for entry in compared.drifting])
    notes = list(caveats)
    if old.estimated or new.estimated or old.totals.then.estimated or new.totals.then.estimated:
        notes.append("~ marks estimated prices.")
    lines += ["", *(f"* {markdown_text(note)}" for note in notes)] if notes else []
    return "\n".join(lines) + "\n"


def _launches(title: str, old: Mapping[str, NodeTotal], new: Mapping[str, NodeTotal]) -> Iterator[str]:
    none = NodeTotal(0, 0.0)
    rows = []
    for name in sorted(old.keys() | new.keys()):
        before, after = old.get(name, none), new.get(name, none)
        if before != after:
            nodes = (f"{before.nodes:,}", f"{after.nodes:,}")
            rows.append((name, *nodes, monthly(before.price), monthly(after.price)))
    if rows:
        yield from ("", *_table((title, "nodes, old", "new", "a month, old", "new"), rows, numbers=True))


def _pods(title: str, entries: Sequence[LeftOut]) -> Iterator[str]:
    by_message = grouped((entry.message, entry.pod) for entry in entries)
    if by_message:
        yield from ("", f"**{title}: {counted(len(entries), 'pod')}**", "")
    yield from (f"* {markdown_text(summary(pods))}: {markdown_text(said)}" for said, pods in by_message.items())


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: bool = False) -> Iterator[str]:
    """A table of plain texts; with `numbers`, all columns but the first are aligned to the right."""
    yield f"| {' | '.join(head)} |"
    yield f"|---|{('---:|' if numbers else '---|') * (len(head) - 1)}"
    yield from (f"| {' | '.join(map(markdown_text, row))} |" for row in rows[:MOST_ROWS])
    if len(rows) > MOST_ROWS:
        yield from ("", f"{counted(len(rows) - MOST_ROWS, 'more row')} not shown.")


def _signed(change: int) -> str:
    return f"{change:+,d}".replace("-", "\N{MINUS SIGN}") if change else "="


def _share(before: Price, after: Price) -> str:
    """The change in per cent, or in dollars where there was nothing."""
    change = after.hourly - before.hourly
    if abs(change) < 0.00005:
        return "="
    sign = "+" if change > 0 else "\N{MINUS SIGN}"
    if not before.hourly:
        return f"{sign}{monthly(Price(abs(change), after.estimated))}"
    return f"{sign}{abs(change) / before.hourly:.1%}"
