"""Draws docs/pictures/terminal.svg: a short session of `shiplap` in a terminal, which plays in any browser.

The commands are run for real on examples/spot-with-fallback and the workloads below. Times in the output are left out,
so that the picture changes only when the output does.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

ROOT = Path(__file__).parents[1]
FILE = ROOT / "docs/pictures/terminal.svg"
MANIFESTS = ROOT / "examples/spot-with-fallback/manifests"

_COLUMNS = 108
_TYPED_S, _LINE_S, _PAUSE_S, _END_S = 1.2, 0.05, 2.2, 8.0
"""How long a command takes to be typed, a line to appear, a reader to read an answer, and the last picture stays."""

WORKLOADS = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop, uid: u1}
spec:
  replicas: 40
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: web, resources: {requests: {cpu: 500m, memory: 1Gi}}}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: search, namespace: shop, uid: u2}
spec:
  replicas: 3
  selector: {matchLabels: {app: search}}
  template:
    metadata: {labels: {app: search}}
    spec: {containers: [{name: search, image: search, resources: {requests: {cpu: "4", memory: 60Gi}}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: report, namespace: batch, uid: u3}
spec: {containers: [{name: report, image: report, resources: {requests: {cpu: "2", memory: 1600Gi}}}]}
status: {phase: Pending, conditions: [{type: PodScheduled, status: "False", reason: Unschedulable}]}
"""

SESSION = (
    ("shiplap plan -f workloads.yaml --manifests nodepools/ --region eu-west-1", 0),
    ("shiplap explain pod batch/report -f workloads.yaml --manifests nodepools/ --region eu-west-1", 13),
)
"""The commands, and how many lines of their answer `head` shows; 0 for all."""


def answers() -> list[tuple[str, str]]:
    """Each command as typed, and what it prints, with its colours."""
    shiplap = Path(sys.executable).with_name("shiplap")
    found = []
    with tempfile.TemporaryDirectory() as folder:
        environment = _environment(folder)
        (Path(folder) / "workloads.yaml").write_text(WORKLOADS)
        (Path(folder) / "nodepools").symlink_to(MANIFESTS)
        for typed, lines in SESSION:
            command = [str(shiplap), *typed.split()[1:]]
            ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)  # noqa: S603 - our own command
            if ran.returncode not in (0, 1):
                raise SystemExit(ran.stderr)
            answer = re.sub(r", \d+ ms\)", ")", ran.stdout).rstrip()
            if lines:
                typed, answer = f"{typed} | head -{lines}", "\n".join(answer.split("\n")[:lines])  # noqa: PLW2901
            found.append((typed, answer))
    return found


def _environment(home: str) -> dict[str, str]:
    """An environment without credentials, a kubeconfig or settings of the person who draws: the answer is the same."""
    paths = {name: os.environ[name] for name in ("PATH", "VIRTUAL_ENV") if name in os.environ}
    return paths | {"HOME": home, "COLUMNS": str(_COLUMNS), "FORCE_COLOR": "1", "TERM": "xterm-256color"}


def picture(session: list[tuple[str, str]]) -> str:
    """The session as an SVG whose lines appear one after the other, and begin again at the end."""
    console = Console(record=True, width=_COLUMNS, file=io.StringIO(), color_system="truecolor")
    moments: list[float] = []
    now = 0.5
    for typed, answer in session:
        text = Text.assemble(("$ ", "bold green"), (typed, "bold"))
        for place, line in enumerate([*text.wrap(console, _COLUMNS), *Text.from_ansi(answer).split("\n"), Text()]):
            console.print(line, soft_wrap=True, end="\n")
            now += _TYPED_S if place == 0 else _LINE_S
            moments.append(now)
        now += _PAUSE_S
    drawn = console.export_svg(title="shiplap", theme=DIMMED_MONOKAI, unique_id="s")
    return _without_fonts(_played(drawn, moments, now + _END_S))


def _played(drawn: str, moments: list[float], ends_s: float) -> str:
    """Every line is hidden until its moment. Readers who want no motion see all of it."""
    rules = [
        f'[clip-path="url(#s-line-{place})"]{{animation:s-show{place} {ends_s:.2f}s step-end infinite}}'
        f"@keyframes s-show{place}{{0%{{opacity:0}}{100 * moment / ends_s:.2f}%{{opacity:1}}}}"
        for place, moment in enumerate(moments)
    ]
    style = f"@media (prefers-reduced-motion:no-preference){{{''.join(rules)}}}"
    return drawn.replace("</style>", f"{style}</style>", 1)


def _without_fonts(drawn: str) -> str:
    """A picture in a README may load nothing: the reader's own monospaced font is used."""
    return re.sub(r"@font-face\s*{[^}]*}", "", drawn).replace("Fira Code, monospace", "monospace")


if __name__ == "__main__":
    FILE.write_text(picture(answers()) + "\n")
