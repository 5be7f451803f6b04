"""Shows a migration: on a terminal, and as the Markdown report that stays beside the manifests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from shiplap_cli.commands.migrate.migration_findings import MatchQuality, Migration, MigrationFinding
from shiplap_cli.commands.migrate.migration_findings import counts_by_match as by_match
from shiplap_cli.output import Printed, counted

_STYLES = {MatchQuality.EXACT: "green", MatchQuality.APPROXIMATE: "yellow", MatchQuality.NONE: "red"}
_MOST = 10


class MigrationCost(Printed, frozen=True):
    """The present pods on the new pools, as if no node were there; USD per hour, with whether prices are guessed.

    `unpriced_nodes` are present nodes that have no price, which cost nothing here. Prices
    are those of `region`; `notes` say what the figures take for granted.
    """

    pods: int
    nodes: int
    hourly: float
    estimated: bool
    present_nodes: int
    present_hourly: float
    present_estimated: bool
    unpriced_nodes: int
    left_out: tuple[tuple[str, str], ...]
    region: str
    notes: tuple[str, ...] = ()


def migration_page(migration: Migration, cost: MigrationCost | None, folder: Path | None) -> RenderableType:
    """Return the page for a person: what does not map first, then the rest, the dry run and where to go on."""
    table = Table("", "found", "becomes", "note", box=None, header_style="bold", padding=(0, 2, 0, 0))
    order = [MatchQuality.NONE, MatchQuality.APPROXIMATE, MatchQuality.EXACT]
    for finding in sorted(migration.findings, key=lambda finding: order.index(finding.match)):
        style = _STYLES[finding.match]
        what = f"{finding.source}: {finding.field}"
        table.add_row(Text(finding.match, style), Text(what), Text(finding.becomes), Text(finding.note, "dim"))
    parts: list[RenderableType] = [Text(_summary(migration), "bold"), table]
    if cost is not None:
        parts += [Text(line) for line in _cost_lines(cost)]
    if folder is None:
        parts.append(Text("Nothing was written; --to FOLDER writes the manifests and a report with the steps."))
    else:
        parts.append(
            Text(f"Written to {folder}. MIGRATION.md has the {counted(len(migration.steps), 'step')} over and back.")
        )
    return Group(*parts)


def _summary(migration: Migration) -> str:
    counts = ", ".join(f"{number} {match}" for match, number in by_match(migration.findings).items())
    return f"From {migration.origin}: {counted(len(migration.manifests), 'manifest')}; {counts}"


def _cost_lines(cost: MigrationCost) -> Iterator[str]:
    placed = cost.pods - len(cost.left_out)
    pods = f"{placed} of {counted(cost.pods, 'pod')}" if cost.left_out else counted(cost.pods, "pod")
    yield (
        f"Dry run: {pods} on {counted(cost.nodes, 'new node')}, {'~' * cost.estimated}{cost.hourly:.4f} USD/h; now"
        f" {counted(cost.present_nodes, 'node')}, {'~' * cost.present_estimated}{cost.present_hourly:.4f} USD/h"
        + (f" ({cost.unpriced_nodes} of unknown price)" if cost.unpriced_nodes else "")
    )
    for pod, message in cost.left_out[:_MOST]:
        yield f"  without a place: {pod}: {message}"
    if len(cost.left_out) > _MOST:
        yield f"  and {len(cost.left_out) - _MOST} more"
    for note in cost.notes:
        yield f"! {note}"


def report_text(migration: Migration, cost: MigrationCost | None, settings: str) -> str:
    """The report in Markdown."""
    lines = [f"# From {migration.origin} to Shiplap", "", _summary(migration) + ".", ""]
    lines += ["Into `shiplap.yaml`:", "", "```yaml", settings.rstrip(), "```", ""]
    if cost is not None:
        lines += ["## Dry run", "", *_cost_lines(cost), ""]
    titles = {
        MatchQuality.NONE: "What does not map",
        MatchQuality.APPROXIMATE: "What maps with a difference",
        MatchQuality.EXACT: "What maps as it was",
    }
    for match, title in titles.items():
        findings = [finding for finding in migration.findings if finding.match is match]
        if findings:
            lines += [f"## {title}", "", "| found | becomes | note |", "|---|---|---|", *map(_row, findings), ""]
    lines += ["## The steps", ""]
    for number, step in enumerate(migration.steps, 1):
        lines += [f"{number}. **{step.title}.** {step.why}", "", *_commands("", step.commands)]
        lines += _commands("   Undo:", step.undo) if step.undo else ["   Undo: nothing was changed.", ""]
    return "\n".join(lines)


def _commands(title: str, commands: Sequence[str]) -> list[str]:
    block = ["   ```sh", *(f"   {command}" for command in commands), "   ```", ""]
    return [title, "", *block] if title else block


def _row(finding: MigrationFinding) -> str:
    cells = (f"{finding.source}: {finding.field}", finding.becomes, finding.note)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
