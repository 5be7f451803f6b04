"""Counts the modules and shapes that a pending pod passes on its way to CreateFleet.

The real handler of `schedule` runs with the real adapters, on an emulated AWS and a simulated cluster. A module is on
the walk if one of its functions is given or returns the pod in one of its shapes, alone or in a list, tuple, set or
dict, before CreateFleet is asked for. The handler is on the walk, too. Modules that see only prices, types, settings,
quantities, labels or metrics are not. A shape is a type of the library that stands for the pod, for pods like it, or
for what becomes of them, and that modules pass to each other. A new shape does not show by itself: whoever adds one
adds it to `SHAPES` and to the table in docs/explanation/algorithm.md. The number of modules is a bound: a change that
lowers it lowers the bound as well.

A pod also returns to modules: a call with a pod from another module counts as a return if the pod was there before.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from benchmarks.karpenter.random_batches import drawn
from shiplap.scheduling.planner import plan
from shiplap.scheduling.search import improve
from tests.formats import life
from tests.permissions.recording import Recording

MOST_MODULES = 37
MOST_RETURNS, MOST_RETURNS_OF_A_BATCH = 77, 92
SHAPES = (
    *("Pod", "PodClass", "SizeClass", "PlacementAttempt", "BinPackingProblem", "ReducedProblem", "Filling"),
    *("OpenClaim", "PlannedClaim", "NodeClaim", "PodReference", "FleetRequest"),
)
_OF_SEVERAL_PODS = frozenset({"SizeClass", "BinPackingProblem", "ReducedProblem", "Filling"})
"""A lone pod does not pass these: its node is the cheapest that holds it, without the bulk stage and a search."""

_ASIDE = frozenset({"PodsPending", "PodTable", "PodRow"})
"""A hint about pods, and the pods of a stored snapshot: a pod that schedule lists itself comes without them."""

_MOST_ENTRIES = 20
"""Entries of one list that are looked at; those of a list are alike."""


class Walk:
    """Modules by name, each with the shapes that its functions are given or return."""

    def __init__(self) -> None:
        self.modules: dict[str, set[str]] = {}
        self.returns = 0
        self._now = ""
        self._begun = self._ended = False

    def begin(self) -> None:
        """From now on calls count, until CreateFleet; only the first time."""
        if not self._begun:
            self._begun = True
            threading.setprofile(self._look)
            sys.setprofile(self._look)

    def end(self) -> None:
        """The rest does not count."""
        self._ended = True
        threading.setprofile(None)
        sys.setprofile(None)

    def _look(self, frame: FrameType, event: str, result: Any) -> None:
        name = frame.f_globals.get("__name__", "")
        if self._ended or event not in ("call", "return") or not name.startswith(("shiplap.", "recorded_")):
            return
        if name.startswith("recorded_"):
            self.modules.setdefault(name, set())
            return
        code = frame.f_code
        given = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        values = [frame.f_locals.get(name) for name in given] if event == "call" else [result]
        if shapes := {shape for value in values for shape in _shapes(value)}:
            if event == "call" and name != self._now:
                self.returns += name in self.modules
                self._now = name
            self.modules.setdefault(name, set()).update(shapes)


def _shapes(value: Any) -> Iterator[str]:
    kind = type(value)
    if kind in (list, tuple, set, frozenset, dict):
        entries = [*value.keys(), *value.values()] if kind is dict else value
        for entry, _ in zip(entries, range(_MOST_ENTRIES), strict=False):
            yield from _shapes(entry)
    elif (kind.__name__ in SHAPES or kind.__name__ in _ASIDE) and kind.__module__.startswith("shiplap."):
        yield kind.__name__


def test_a_pod_passes_few_modules_and_shapes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    walk = Walk()
    invoke, note = Recording.invoke, life.Calls._note

    def invoke_traced(self: Recording, function: str, *arguments: Any, **named: Any) -> Any:
        if function == "schedule":
            walk.begin()
        return invoke(self, function, *arguments, **named)

    def note_traced(self: life.Calls, params: Any, model: Any, **named: Any) -> None:
        if model.name == "CreateFleet":
            walk.end()
        note(self, params, model, **named)

    monkeypatch.setattr(Recording, "invoke", invoke_traced)
    monkeypatch.setattr(life.Calls, "_note", note_traced)
    improve.clear_cache()  # a search that is remembered shows no shapes
    try:
        life.lived(tmp_path)
    finally:
        walk.end()

    seen = set().union(*walk.modules.values())
    assert seen - _ASIDE == set(SHAPES) - _OF_SEVERAL_PODS
    assert len(walk.modules) <= MOST_MODULES, sorted(walk.modules)
    assert walk.returns <= MOST_RETURNS


def test_a_small_batch_walks_back_and_forth_so_often() -> None:
    """23 pods of several Deployments on two NodePools: each step asks the open claims and the NodePools again."""
    walk = Walk()
    [batch] = drawn(1, 7_770_034)
    snapshot = batch.snapshot(improve_s=1.0)
    improve.clear_cache()
    walk.begin()
    try:
        plan(snapshot)
    finally:
        walk.end()
    assert len(batch.pods) == 23
    assert walk.returns <= MOST_RETURNS_OF_A_BATCH
