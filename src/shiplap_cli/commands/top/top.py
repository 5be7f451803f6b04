"""`shiplap top`: nodes as bars, pods that wait, what happens, and what it costs, live."""

from __future__ import annotations

import os
import sys
import time
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path
from queue import Empty, Queue
from threading import Event
from typing import Annotated

import msgspec
import typer
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from shiplap.cluster.kubeconfig import load
from shiplap.drawing.picture import ClusterPicture
from shiplap.errors import ClusterError, InvalidInput
from shiplap.instances.offerings.node_prices import NodePrices
from shiplap.instances.offerings.offerings import catalog_prices
from shiplap.records.disruption_record import Headline
from shiplap_cli.commands.top import keyboard
from shiplap_cli.commands.top.followed_cluster import FollowedCluster
from shiplap_cli.commands.top.followed_install import (
    BACK_S,
    SourceRead,
    claim_reader,
    claims_source,
    decision_reader,
    decisions_source,
    policy_sources,
)
from shiplap_cli.commands.top.frame import Scene, frame, page_of
from shiplap_cli.commands.top.stream import StreamLine, changes_between, extended
from shiplap_cli.commands.top.view import SORTS, View, pressed, shown_nodes
from shiplap_cli.inputs.cluster_events import ClusterEvent, follow_cluster
from shiplap_cli.inputs.context_access import enter_context
from shiplap_cli.installs.find_install import InstallOptions, dev_access, install_finder
from shiplap_cli.installs.followed_resources import FollowedResources
from shiplap_cli.options import Context, Kubeconfig, takes_sources
from shiplap_cli.output import Format, Output, SafeConsole, emit
from shiplap_lab.catalogue import embedded
from shiplap_lab.simulation.timeline import Timeline

_EVERY_S = 1.0
_PATIENCE_S = 30.0


@takes_sources
def top(
    *,
    context: Context = "",
    kubeconfig: Kubeconfig = None,
    recording: Annotated[
        Path | None, typer.Option("--recording", help="Play what `shiplap lab simulate --recording` wrote, instead.")
    ] = None,
    which: InstallOptions,
    sort: Annotated[str, typer.Option("--sort", help="name, cpu, memory, pods, price, age, pool or state.")] = "name",
    words: Annotated[str, typer.Option("--filter", help="Show nodes whose rows have all of these words.")] = "",
    once: Annotated[bool, typer.Option("--once", help="Print one frame and end.")] = False,
    output: Output = Format.TABLE,
) -> int:
    """Watch a cluster: nodes as bars of CPU and memory by pool and price, pods that wait, what happens, dollars.

    Only nodes and pods are read (list and watch). With --cluster, also the claims of an install and its recorded
    decisions: tiers, nodes on their way and real prices, what was decided and the ids that `shiplap explain
    decision` takes; without, prices are estimates. `?` shows the keys. `-o json` prints the picture once.

    Example: shiplap top --context prod --sort cpu

    Example: shiplap top --context prod --cluster prod
    """
    view = _view(sort, words)
    ended = Event()
    try:
        source = (
            _recorded_source(recording) if recording is not None else _live_source(which, kubeconfig, context, ended)
        )
        console = SafeConsole()
        if once or output is not Format.TABLE or not (console.is_terminal and sys.stdin.isatty()):
            scene = source(True)
            emit(_document(scene), output, lambda: Group(*_lines(scene, view, (), console)))
            return 1 if scene.picture.missing else 0
        return _live(source, view, console)
    finally:
        ended.set()


Source = Callable[[bool], Scene]
"""Gives the cluster now; its argument says whether it is asked for the last time."""


class TopDocument(ClusterPicture, frozen=True, kw_only=True, omit_defaults=True):
    """The document of `-o json`."""

    decisions: tuple[Headline, ...] = ()


def _document(scene: Scene) -> TopDocument:
    picture = scene.picture
    fields = {name: getattr(picture, name) for name in picture.__struct_fields__}
    return TopDocument(**fields, decisions=scene.decisions or ())


def _live_source(which: InstallOptions, kubeconfig: Path | None, context: str, ended: Event) -> Source:
    """A cluster that runs. Raises InvalidInput: it cannot be entered, or does not answer."""
    asked = bool(context or kubeconfig)
    if which.dev and not asked:
        access = dev_access(which.cluster)
    else:
        access = load(kubeconfig, context, environment=os.environ, home=Path.home())
    followed = FollowedCluster(access.context, region_prices)
    seen: Queue[ClusterEvent | SourceRead] = Queue()
    if which.given:
        named = msgspec.structs.replace(which, cluster=access.context) if which.dev and not asked else which
        resources = FollowedResources(install_finder(named))
        for polled in (
            claims_source(claim_reader(resources)),
            decisions_source(decision_reader(resources, time.time)),
            *policy_sources(resources, time.time),
        ):
            polled.poll_once(seen.put)
            polled.keep_polling(seen.put, ended)
    try:
        follow_cluster(
            lambda: enter_context(access, clock=time.time, environment=os.environ, sleep=time.sleep), seen, ended
        )
    except ClusterError as error:
        raise InvalidInput(f"context {access.context}", str(error)) from error
    _wait_for_lists(followed, seen)
    if followed.unreachable_reason:
        hint = f"see whether `kubectl --context {access.context} get nodes,pods -A` is answered"
        raise InvalidInput(f"context {access.context}", f"{followed.unreachable_reason}; {hint}")

    def scene(_: bool) -> Scene:
        while not seen.empty():
            followed.apply(seen.get())
        now = time.time()
        return Scene(followed.picture(now), followed.decisions(now - BACK_S) if which.given else None)

    return scene


def _recorded_source(path: Path) -> Source:
    """A recording, one moment after the other; the last one if only one is asked for. Raises InvalidInput."""
    try:
        timeline = msgspec.json.decode(path.read_bytes(), type=Timeline)
    except OSError as error:
        raise InvalidInput(str(path), f"cannot be read: {error.strerror or error}") from error
    except msgspec.DecodeError as error:
        raise InvalidInput(str(path), f"is no recording of `shiplap lab simulate --recording`: {error}") from error
    pictures = [frame.picture for frame in timeline.frames]
    if not pictures:
        raise InvalidInput(str(path), "holds no moment of a cluster")
    ahead = iter(pictures[:-1])
    times = [line.at for line in timeline.decisions]

    def scene(last: bool) -> Scene:
        picture = pictures[-1] if last else next(ahead, pictures[-1])
        return Scene(picture, timeline.decisions[: bisect_right(times, picture.taken_at)])

    return scene


def _view(sort: str, words: str) -> View:
    if sort not in SORTS:
        raise InvalidInput("--sort", f"{sort!r} is none of {', '.join(SORTS)}")
    return View(sort=sort, filter=words)


def region_prices(region: str) -> tuple[NodePrices, str]:
    """Estimated prices of a Region and their assumption; they need no AWS credentials."""
    if region in embedded.regions():
        return catalog_prices(embedded.load(region)), ""
    default = embedded.DEFAULT_REGION
    why = f"no prices of Region {region} are known" if region else "nodes do not say their Region"
    return catalog_prices(embedded.load(default)), f"{why}: those of {default} are assumed"


def _wait_for_lists(followed: FollowedCluster, seen: Queue[ClusterEvent | SourceRead]) -> None:
    """Until everything has been listed once, or cannot be."""
    while not followed.ready:
        try:
            followed.apply(seen.get(timeout=_PATIENCE_S))
        except Empty:
            raise InvalidInput("cluster", f"it has not answered for {_PATIENCE_S:.0f} seconds") from None


def _live(source: Source, view: View, console: Console) -> int:
    stream: tuple[StreamLine, ...] = ()
    scene = source(False)
    terminal = sys.stdin.fileno()
    with keyboard.raw(terminal), Live(console=console, screen=True, auto_refresh=False) as screen:
        due = 0.0
        while True:
            if time.monotonic() >= due:
                due = time.monotonic() + _EVERY_S
                if not view.paused:
                    fresh = source(False)
                    stream, scene = extended(stream, changes_between(scene.picture, fresh.picture)), fresh
            screen.update(Group(*_lines(scene, view, stream, console)), refresh=True)
            for key in keyboard.pressed(terminal, max(due - time.monotonic(), 0.0)):
                if key == "q" and not view.typing:
                    return 0
                nodes = shown_nodes(scene.picture, view)
                view = pressed(view, key, nodes, page_of(scene.picture, console.height))


def _lines(scene: Scene, view: View, stream: tuple[StreamLine, ...], console: Console) -> tuple[Text, ...]:
    width, height = console.width, console.height
    if not console.is_terminal:
        width = int(os.environ.get("COLUMNS", "160"))
        height = int(os.environ.get("LINES", "50"))
    return frame(scene, view, stream, max(width, 20), max(height, 6))
