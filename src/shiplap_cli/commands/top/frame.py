"""One frame of the view: exactly as many lines as the terminal has, none wider than it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from textwrap import wrap

import msgspec
from rich.cells import cell_len, set_cell_size
from rich.text import Text

from shiplap.drawing.markup import monthly
from shiplap.drawing.picture import ClusterPicture, NodePicture, NodePictureState, PendingPicture
from shiplap.records.disruption_record import Headline
from shiplap_cli.commands.top.stream import StreamLine
from shiplap_cli.commands.top.view import View, share, shown_nodes
from shiplap_cli.output import counted
from shiplap_cli.render.saving import least_hourly

_STATE_STYLES = {
    NodePictureState.READY: "green",
    NodePictureState.STARTING: "cyan",
    NodePictureState.PLANNED: "cyan",
    NodePictureState.NOT_READY: "red",
    NodePictureState.LEAVING: "yellow",
}
_KIND_STYLES = {"waiting": "yellow", "placed": "green", "ready": "green", "gone": "dim", "new": "cyan"}
_LEAST_ROWS = 3
_ROOM_FOR_MONTHS = 100
"""Columns from which dollars of a month stand beside those of an hour."""
_HELP = (
    "up down j k      choose a node           enter   open it: its pods",
    "pgup pgdn g G    a page, the ends        esc     close it; clear the filter",
    "s                next order of sorting   r       turn the order round",
    "/                filter by words         p       pause",
    "d                all decisions           q       quit",
    "?                this help; any key closes it",
)


class Column(msgspec.Struct, frozen=True):
    """A column of the table of nodes; those of the lowest rank are kept longest when the terminal is narrow."""

    title: str
    width: int
    rank: int
    cell: Callable[[NodePicture, float, int], Text]


class Scene(msgspec.Struct, frozen=True):
    """The cluster, and its decisions in order of time; None without an install."""

    picture: ClusterPicture
    decisions: tuple[Headline, ...] | None = None


def frame(scene: Scene, view: View, stream: Sequence[StreamLine], width: int, height: int) -> tuple[Text, ...]:
    """`height` lines of at most `width` cells.

    Args:
        scene: the cluster and its decisions.
        view: what is chosen.
        stream: what has happened, the newest last.
        width: cells, at least 20.
        height: lines, at least 6.
    """
    picture = scene.picture
    head = list(_head(picture, width))
    foot = _foot(view, width)
    free = max(height - len(head) - 1, 0)
    if view.help:
        body = [cut(Text(line), width) for line in _HELP][:free]
    elif view.inside:
        body = _node_screen(picture, view, width, free)
    elif view.decisions:
        body = decision_screen(scene.decisions, picture.missing, view.scroll, picture.taken_at, width)[:free]
    else:
        body = _overview(scene, view, stream, width, free)
    body += [Text("")] * (free - len(body))
    return tuple([*head, *body, foot][:height])


def page_of(picture: ClusterPicture, height: int) -> int:
    """The number of rows on a page of nodes."""
    return max(height - len(list(_head(picture, 80))) - 2, 1)


def _head(picture: ClusterPicture, width: int) -> Iterator[Text]:
    nodes, pending = picture.nodes, picture.pending
    starting = sum(1 for node in nodes if node.state in (NodePictureState.STARTING, NodePictureState.PLANNED))
    pods = sum(len(node.pods) for node in nodes)
    line = Text(plain(picture.cluster), "bold")
    line.append(f"  {when(picture.taken_at)}  ", "dim")
    line.append(counted(len(nodes), "node") + (f" ({starting} starting)" if starting else ""))
    line.append(f"  {counted(pods, 'pod')}  ")
    waiting = f"{len(pending)} waiting, oldest {age(pending[0].age_s)}" if pending else "none waiting"
    line.append(waiting, "bold yellow" if pending else "dim")
    yield cut(line, width)
    yield cut(_money(picture, width), width)
    for text in picture.install_lines:
        yield cut(Text(plain(text), "dim"), width)
    half = max((width - 26) // 2, 4)
    used, whole = picture.used, picture.allocatable
    bars = Text("cpu ")
    bars.append_text(bar(share(used.millicores, whole.millicores), half))
    bars.append("  memory ")
    bars.append_text(bar(share(used.memory_bytes, whole.memory_bytes), half))
    yield cut(bars, width)
    for text in picture.missing[:1]:
        more = f" (and {len(picture.missing) - 1} more)" if len(picture.missing) > 1 else ""
        yield cut(Text(plain(text) + more, "red"), width)


def _money(picture: ClusterPicture, width: int) -> Text:
    line = Text(f"{'~' * picture.estimated}{picture.hourly:.4f} USD/h", "bold")
    if width >= _ROOM_FOR_MONTHS:
        line.append(f"  {monthly(picture.hourly, estimated=picture.estimated)}/month")
    if picture.list_hourly > picture.hourly:
        less = 1 - picture.hourly / picture.list_hourly
        line.append(f"  list {'~' * picture.estimated}{picture.list_hourly:.4f} (-{less:.0%})", "dim")
    bound = picture.bound_hourly if picture.bound_hourly is not None else least_hourly(picture.nodes)
    if picture.hourly:
        saving = f"{'~' * picture.estimated}{max(picture.hourly - bound, 0.0):.4f}"
        line.append(f"  packing could save at most {saving}", "dim")
    for pool in picture.pools:
        members = [node for node in picture.nodes if node.pool == pool]
        fallback = sum(1 for node in members if node.tier)
        line.append(f"  {plain(pool) or 'others'} {len(members)}" + (f" ({fallback} fallback)" if fallback else ""))
    return line


def _overview(scene: Scene, view: View, stream: Sequence[StreamLine], width: int, height: int) -> list[Text]:
    picture, decisions = scene.picture, scene.decisions or ()
    spare = max(height - _LEAST_ROWS - 1, 0)
    pending = _by_group(picture.pending)
    waiting = min(len(pending), max(spare // 4, 1 if spare else 0))
    decided = min(len(decisions), (spare - waiting + 2) // 3)
    news = min(len(stream), max((spare - waiting - decided) // 2, 0))
    rows = height - 1 - sum(lines + 1 for lines in (waiting, decided, news) if lines)
    lines = _table(picture, view, width, max(rows, 1))
    lines += [Text("")] * (max(rows, 1) + 1 - len(lines))
    if waiting:
        lines.append(rule(f"waiting {len(picture.pending)}", width))
        lines += [cut(_waiting(pods), width) for pods in pending[:waiting]]
    if decided:
        lines.append(rule("decided", width))
        lines += [decision_line(line, picture.taken_at, width) for line in decisions[-decided:]]
    if news:
        lines.append(rule("happened", width))
        lines += [cut(_stream_line(event), width) for event in stream[-news:]]
    return lines[:height]


def _table(picture: ClusterPicture, view: View, width: int, rows: int) -> list[Text]:
    columns = _columns(width)
    nodes = shown_nodes(picture, view)
    names = [node.name for node in nodes]
    at = names.index(view.selected) if view.selected in names else 0
    first = min(max(at - rows + 1, 0), max(len(nodes) - rows, 0))
    title = Text("  ", "bold")
    for column, size in columns:
        mark = ("▲" if view.reverse else "▼") if column.title.lower() == view.sort else ""
        title.append(set_cell_size(f"{column.title}{mark}", size) + " ")
    lines = [cut(title, width)]
    for node in nodes[first : first + rows]:
        chosen = node.name == view.selected
        line = Text("> " if chosen else "  ", "bold" if chosen else "")
        for column, size in columns:
            line.append_text(sized(column.cell(node, picture.taken_at, size), size))
            line.append(" ")
        lines.append(cut(line, width))
    if not nodes:
        lines.append(cut(Text("  no node passes the filter" if view.filter else "  no nodes", "dim"), width))
    return lines


_GROWING = (("NAME", 16), ("TYPE", 6), ("POOL", 10), ("NAME", 16))
"""Which columns take what is left, in this order and up to so much more, before bars do."""


def _columns(width: int) -> list[tuple[Column, int]]:
    """The columns that fit; the name takes the width that is left."""
    kept = list(_ALL)
    while len(kept) > 1 and 2 + sum(column.width + 1 for column in kept) > width:
        kept.remove(max(kept, key=lambda column: column.rank))
    left = max(width - 2 - sum(column.width + 1 for column in kept), 0)
    titles = {column.title for column in kept}
    extra: Counter[str] = Counter()
    for title, most in _GROWING:
        extra[title] += min(left - extra.total(), most) if title in titles else 0
    bars = (left - extra.total()) // 2
    extra |= Counter({"CPU": min(bars, 20), "MEMORY": min(bars, 20)})
    extra["STATE"] = max(left - extra.total(), 0)
    return [(column, column.width + extra[column.title]) for column in kept]


def _name(node: NodePicture, _now: float, _size: int) -> Text:
    return Text(plain(node.name))


def _pool(node: NodePicture, _now: float, _size: int) -> Text:
    kind = {"spot": " spot", "reserved": " res."}.get(node.capacity_type, "")
    return Text(f"{plain(node.pool) or '-'}{f'/{node.tier}' if node.tier else ''}{kind}")


def _cpu(node: NodePicture, _now: float, size: int) -> Text:
    return bar(share(node.used.millicores, node.allocatable.millicores), size - 5)


def _memory(node: NodePicture, _now: float, size: int) -> Text:
    return bar(share(node.used.memory_bytes, node.allocatable.memory_bytes), size - 5)


def _count(node: NodePicture, _now: float, _size: int) -> Text:
    return Text(f"{node.used.pods}/{node.allocatable.pods}")


def _price(node: NodePicture, _now: float, _size: int) -> Text:
    return Text(f"{'~' * node.estimated}{node.hourly:.4f}"[:7] if node.hourly else "?")


def _month(node: NodePicture) -> str:
    return f"{monthly(node.hourly, estimated=node.estimated)} a month, " if node.hourly else ""


def _node_age(node: NodePicture, now: float, _size: int) -> Text:
    return Text(age(max(now - node.created_at, 0.0)) if node.created_at else "")


def _state(node: NodePicture, _now: float, _size: int) -> Text:
    note = f" {plain(node.note)}" if node.note else ""
    return Text(f"{node.state}{note}", _STATE_STYLES[node.state])


_ALL = (
    Column("NAME", 14, 0, _name),
    Column("TYPE", 14, 6, lambda node, _now, _size: Text(plain(node.instance_type) or "?")),
    Column("POOL", 10, 4, _pool),
    Column("CPU", 9, 1, _cpu),
    Column("MEMORY", 9, 2, _memory),
    Column("PODS", 7, 7, _count),
    Column("PRICE", 7, 5, _price),
    Column("AGE", 4, 8, _node_age),
    Column("STATE", 8, 3, _state),
)


def _node_screen(picture: ClusterPicture, view: View, width: int, height: int) -> list[Text]:
    node = next((node for node in picture.nodes if node.name == view.selected), None)
    if node is None:
        return [cut(Text(f"node {plain(view.selected)} is gone", "yellow"), width)]
    head = Text(plain(node.name), "bold")
    facts = (node.instance_type, node.zone, node.capacity_type, node.pool and f"pool {node.pool}", str(node.state))
    head.append("  " + "  ".join(filter(None, map(plain, facts))))
    used, whole = node.used, node.allocatable
    lines = [
        cut(head, width),
        cut(Text(plain(node.note), "yellow"), width),
        _usage_line(
            f"{used.millicores / 1000:g} of {whole.millicores / 1000:g} CPU", used.millicores, whole.millicores, width
        ),
        _usage_line(
            f"{gib(used.memory_bytes)} of {gib(whole.memory_bytes)}", used.memory_bytes, whole.memory_bytes, width
        ),
        cut(Text(f"{_price(node, 0.0, 0).plain} USD/h, {_month(node)}{used.pods} of {whole.pods} pods"), width),
        rule("pods", width),
    ]
    rows = max(height - len(lines), 0)
    first = min(view.scroll, max(len(node.pods) - rows, 0))
    for pod in node.pods[first : first + rows]:
        size = max(width - 34, 10)
        line = Text(set_cell_size(plain(pod.key), size), "cyan" if pod.fresh else "")
        line.append(f" {pod.millicores / 1000:>7g} CPU {gib(pod.memory_bytes):>12}")
        lines.append(cut(line, width))
    return lines[:height]


def _usage_line(text: str, used: int, whole: int, width: int) -> Text:
    line = Text(set_cell_size(text, 26))
    line.append_text(bar(share(used, whole), max(width - 34, 4)))
    return cut(line, width)


def _foot(view: View, width: int) -> Text:
    if view.typing:
        return cut(Text(f"filter: {view.filter}▏  enter keeps it, esc clears it", "reverse"), width)
    parts = ["q quit", f"s sort: {view.sort}", f"/ filter{f': {view.filter}' if view.filter else ''}"]
    parts += ["esc back"] if view.inside or view.decisions else ["enter open", "d decisions"]
    parts.append("? help")
    line = Text("  ".join(parts), "dim")
    if view.paused:
        line.append("  paused: p goes on", "bold yellow")
    return cut(line, width)


def _by_group(pending: Sequence[PendingPicture]) -> list[list[PendingPicture]]:
    """Pods that wait together, and each other pod alone, in the order of the first of them."""
    found: dict[str, list[PendingPicture]] = {}
    for pod in pending:
        found.setdefault(pod.group or f"/{pod.key}", []).append(pod)
    return list(found.values())


def _waiting(pods: Sequence[PendingPicture]) -> Text:
    first = pods[0]
    line = Text(f"{age(first.age_s):>5} ", "yellow")
    line.append(plain(first.group or first.key))
    cpus, memory = sum(pod.millicores for pod in pods) / 1000, sum(pod.memory_bytes for pod in pods)
    line.append(f"  {cpus:g} CPU {gib(memory)}  {plain(first.reason)}", "dim")
    return line


def _stream_line(line: StreamLine) -> Text:
    text = Text(f"{when(line.at)} ", "dim")
    return text.append(plain(line.text), _KIND_STYLES.get(line.kind, ""))


_EIGHTHS = "▏▎▍▌▋▊▉█"


def rule(title: str, width: int) -> Text:
    """A line across with a title."""
    return Text(set_cell_size(f"── {title} " + "─" * width, width), "dim")


def bar(part: float, size: int) -> Text:
    """A bar of `size` cells and the percentage behind it."""
    size = max(size, 1)
    eighths = round(min(part, 1.0) * size * 8)
    full, rest = divmod(eighths, 8)
    filled = "█" * full + (_EIGHTHS[rest - 1] if rest else "")
    # Plain blue cannot be read on black. Only the bar is coloured: figures are for everybody's eyes.
    text = Text().append(filled, "cyan" if part < 0.85 else "magenta")
    text.append("░" * (size - cell_len(filled)), "dim")
    return text.append(f" {part:>4.0%}")


def sized(text: Text, size: int) -> Text:
    """Exactly so many cells."""
    text = cut(text, size)
    text.pad_right(size - cell_len(text.plain))
    return text


def cut(text: Text, width: int) -> Text:
    """At most so many cells."""
    text.truncate(width, overflow="ellipsis")
    return text


def plain(text: str) -> str:
    """Without control characters: names come from a cluster, and a terminal obeys what it is sent."""
    return "".join(char if char.isprintable() else "�" for char in text)


def when(at: float) -> str:
    """The time of day, UTC."""
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S")


def age(seconds: float) -> str:
    """A time that has passed, in its largest unit."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds)}s"


def gib(amount: int) -> str:
    """An amount of memory."""
    return f"{amount / 2**30:.1f}Gi"


_STYLES = {"schedule": "cyan", "disrupt": "magenta", "interrupt": "yellow"}
_HALF_A_DAY_S = 12 * 3600.0
_INDENT = 19
_UNASKED = "Name an install to see what it decides: --cluster, --stack or --dev."
_NONE = "Nothing was decided in the last 24 hours."
_HOW = "shiplap explain decision RECORD makes one again; shiplap explain claim NAME shows its history."


def decision_line(line: Headline, now: float, width: int) -> Text:
    """One decision; with the id of its record where there is room, without cluster and day where there is little."""
    text = _decision_text(line, now)
    free = width - cell_len(text.plain) - 2
    names = (line.record, line.record.rpartition("/")[2])
    name = next((name for name in map(plain, names) if name and cell_len(name) <= free), "")
    if name:
        text.append(name.rjust(width - cell_len(text.plain)), "dim")
    return cut(text, width)


def decision_screen(
    decisions: Sequence[Headline] | None, missing: Sequence[str], scroll: int, now: float, width: int
) -> list[Text]:
    """All decisions, the newest first, from one on; ids in full, on a line of their own where need be.

    What is missing of the picture comes first: no decision may mean that none could be read.
    """
    if decisions is None:
        return [cut(Text(_UNASKED), width)]
    warnings = [Text(row, "red") for text in missing for row in wrap(plain(text), width)]
    if not decisions:
        return warnings or [cut(Text(_NONE), width)]
    lines = [*warnings, cut(Text(_HOW, "dim"), width)]
    first = min(scroll, len(decisions) - 1)
    for line in list(reversed(decisions))[first:]:
        text = _decision_text(line, now)
        fits = cell_len(text.plain) + 2 + len(line.record) <= width
        if fits:
            lines.append(decision_line(line, now, width))
            continue
        lines.append(cut(text, width))
        if line.record:
            lines.append(
                cut(Text(" " * min(_INDENT, max(width - len(line.record), 0)) + plain(line.record), "dim"), width)
            )
    return lines


def _decision_text(line: Headline, now: float) -> Text:
    moment = when(line.at)
    if now - line.at > _HALF_A_DAY_S:
        moment = datetime.fromtimestamp(line.at, UTC).strftime("%d %b").ljust(8)
    text = Text(f"{moment} ", "dim")
    text.append(f"{line.kind:<9} ", _STYLES.get(line.kind, ""))
    return text.append(plain(line.text))
