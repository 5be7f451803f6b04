"""How long the container of a Job's pod runs, and how it ends: simulated containers do nothing but take time."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from shiplap_lab.api_server.changelog import Object

RUNS_S = 10.0
"""How long a container runs whose command says nothing about it."""

_SLEEP = re.compile(r"\bsleep\s+(infinity|\d{1,9}(?:\.\d{1,3})?)([smhd]?)\b")
_EXIT = re.compile(r"\bexit\s+(\d{1,3})\b")
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


class ContainerRun(msgspec.Struct, frozen=True):
    """`seconds` is None of one that never ends."""

    seconds: float | None
    exit_code: int = 0


def run_of(pod: Object) -> ContainerRun:
    """The run of a pod's first container: `sleep 30`, `false` and `exit 1` in its command do what they say."""
    container = pod["spec"]["containers"][0]
    words = [*(container.get("command") or []), *(container.get("args") or [])]
    text = " ".join(words)
    code = _EXIT.search(text)
    exit_code = int(code[1]) if code else int(_last_program(words) == "false")
    naps = _SLEEP.findall(text)
    if any(amount == "infinity" for amount, _ in naps):
        return ContainerRun(None)
    slept = sum(float(amount) * _UNITS[unit] for amount, unit in naps)
    ends_at_once = bool(code) or _last_program(words) in ("true", "false")
    return ContainerRun(slept if naps or ends_at_once else RUNS_S, exit_code)


def _last_program(words: Sequence[str]) -> str:
    """The program that a command ends with, in a shell or without one."""
    last = re.split(r"[;&|\n]", " ".join(words))[-1].split()
    return last[-1].rpartition("/")[2] if last else ""
