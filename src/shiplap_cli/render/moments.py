"""The packing at any moment: a slider over frames that share what did not change between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from shiplap.drawing import boxes
from shiplap.drawing.boxes import DetailLevel
from shiplap.drawing.markup import duration
from shiplap.drawing.packing_map import by_pool, fading, heading, legend, list_class, pending_table, sections, totals
from shiplap.drawing.palette import colour_numbers
from shiplap.drawing.picture import NodePicture
from shiplap_lab.simulation.recording import Frame

MOST_BYTES = 4_000_000
"""What all frames together may take; of more frames every other one is left out until they fit."""

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
    chosen = boxes.detail_level(largest.picture.nodes, most_pods=_MOST_PODS)
    colours = colour_numbers(pools)
    kept = list(frames)
    drawn: dict[NodePicture, str] = {}
    pieces = _Pieces(chosen, colours, drawn)
    told = [pieces.frame(frame, ends_s) for frame in kept]
    while pieces.size > most_bytes and len(kept) > 1:
        kept = kept[len(kept) % 2 == 0 :: 2]  # the last one stays
        pieces = _Pieces(chosen, colours, drawn)
        told = [pieces.frame(frame, ends_s) for frame in kept]
    last = kept[-1].picture
    document = msgspec.json.encode(told).decode().replace("<", "\\u003c")
    when = duration(kept[-1].at_s)
    everything = [node for frame in kept for node in frame.picture.nodes]
    return (
        f"<h2>The packing</h2>{legend(everything)}"
        "<div class=moment><label for=moment>at</label><output id=when for=moment></output>"
        f'<input id=moment type=range min=0 max={len(kept) - 1} value={len(kept) - 1} aria-label="Moment"></div>'
        f"<noscript><p>The last moment, {when} after the start.</p></noscript>"
        f"<div id=totals>{totals(last)}</div>"
        f'<div class=map id=map data-list="{list_class(chosen)}">{sections(last, chosen, colours)}</div>'
        f"<div id=waiting>{pending_table(last)}</div>"
        f"<template id=pieces>{''.join(pieces.made)}</template>"
        f'<script type="application/json" id=moments>{document}</script>'
    )


class _Pieces:
    """Markup that frames refer to by number: each piece once. `drawn` are boxes drawn so far."""

    def __init__(self, chosen: DetailLevel, colours: Mapping[str, int], drawn: dict[NodePicture, str]) -> None:
        self.made: dict[str, int] = {}
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
        found = self._drawn.get(node)
        if found is None:
            found = self._drawn[node] = boxes.box(node, self._chosen)
        return found

    def _piece(self, made: str) -> int:
        if made not in self.made:
            self.size += len(made)
        return self.made.setdefault(made, len(self.made))
