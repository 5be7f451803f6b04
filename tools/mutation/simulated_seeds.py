"""Finds the seeds of scenarios that run each line of the product, so that those seeds alone play a mutant.

A seed that does not run the changed line plays the same with and without the mistake: it need not be played.
"""

from __future__ import annotations

import functools
import gc
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from hashlib import sha256
from itertools import accumulate
from pathlib import Path
from time import process_time
from typing import TYPE_CHECKING

import msgspec

from tools.mutation.code_mutants import Mutant
from tools.mutation.covered_lines import PRODUCT, SUFFIX, CoveredTest, LineRecorder, keep_sources, read
from tools.mutation.covering_tests import CoveringTests, class_changed, lines_of, runs_when_imported
from tools.mutation.mutant_runs import BUILD, ROOT, SEARCHED, in_forks

if TYPE_CHECKING:
    from shiplap_lab.simulation.run import RunOutcome

SEEDS = BUILD / "seeds"
MOST_S = 60.0
"""CPU seconds for which the seeds of one mutant are played: those of all scenarios would take half an hour."""

_FIRST, _FIRST_SEEDS = "undisturbed", 8
NOT_PLAYED = "no seed runs the line"
SCENARIOS = (
    "api-down",
    "autoscaler-neighbour",
    "blocked-drains",
    "broken-ami",
    "ceilings",
    "commitments",
    "consolidation",
    "constrained",
    "edges",
    "flash-crowd",
    "flex-drought",
    "flex-first",
    "hostile-neighbour",
    "lagging",
    "long-refusals",
    "long-taints",
    "mixed",
    "races",
    "restored",
    "scale-from-zero",
    "sleep",
    "spot-interruption",
    "spot-risk",
    "spot-storm",
    "strays",
    "trino-r5a",
    "two-clusters",
    "two-installs",
    "undisturbed",
    "unheard",
    "unkind",
    "upgrade",
    "watched",
)
"""Those that can be simulated and take less than five CPU seconds a seed.

Left out are `month`, `ceilings-monthly`, `crowds` and those of thousands of pods or nodes, which take longer, and
`bottlerocket-four-amis` and `prefix-delegation`, which only the emulated AWS can play.
"""


def record_seeds(seeds: int, jobs: int, say: Callable[[str], None], *, anew: bool = False) -> None:
    """Record the first seeds of each scenario that were not recorded of this code.

    Call it in a process of its own: it imports the product.
    """
    digest = _digest_of_code()
    known = sorted(path for path in SEEDS.glob("*-*") if path.is_dir())
    folder = next((path for path in known if path.name.endswith(digest)), SEEDS / f"{len(known):04}-{digest}")
    due = [name for name in SCENARIOS if anew or len(_recorded(folder, name)) < seeds]
    if not due:
        return
    keep_sources(PRODUCT, folder)
    load_product()

    def record(name: str) -> None:
        began_s = process_time()
        (folder / f"{name}{SUFFIX}").write_bytes(msgspec.msgpack.encode(_record(name, seeds)))
        say(f"{(process_time() - began_s) / seeds:6.2f} CPU s a seed of {name}")

    in_forks(due, jobs, record)


def load_product() -> None:
    """Import what a seed runs, so that no run counts imports."""
    for folder in reversed(SEARCHED):
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
    for name in ("mixed", "watched", "commitments"):
        play(f"{name}::0")


def play(seed: str) -> RunOutcome:
    """The outcome of a seed of a scenario, as in `mixed::7`."""
    from shiplap_lab.scenarios.scenario import load  # noqa: PLC0415 - it imports the product
    from shiplap_lab.simulation.campaign import run_seed  # noqa: PLC0415

    scenario, _, number = seed.partition("::")
    return run_seed(load(scenario), int(number))


def _digest_of_code() -> str:
    digest = sha256()
    for path in sorted([*PRODUCT.rglob("*.py"), *(ROOT / "src/shiplap_lab").rglob("*.[py]*")]):
        digest.update(path.read_bytes() if path.is_file() and path.suffix in (".py", ".yaml") else b"")
    return digest.hexdigest()[:16]


def _recorded(folder: Path, name: str) -> Sequence[CoveredTest]:
    file = folder / f"{name}{SUFFIX}"
    return msgspec.msgpack.decode(file.read_bytes(), type=list[CoveredTest]) if file.exists() else ()


def _record(name: str, seeds: int) -> list[CoveredTest]:
    recorder = LineRecorder(f"{PRODUCT}/")
    recorder.install()
    found = []
    for number in range(seeds):
        seed = f"{name}::{number}"
        forget_answers()
        recorder.begin()
        began_s = process_time()
        fails = bool(play(seed).violations)  # it would find every mutant, so no line is its
        lines = {} if fails else recorder.lines()
        found.append(CoveredTest(seed, round(process_time() - began_s, 3), lines))
    recorder.remove()
    return found


def forget_answers() -> None:
    """Empty the caches of the product's functions: what another seed has asked is computed again."""
    for item in gc.get_objects():
        if isinstance(item, functools._lru_cache_wrapper) and item.__module__.startswith("shiplap."):
            item.cache_clear()


class SimulatedSeeds:
    """The seeds that were recorded last."""

    def __init__(self, recorded: Sequence[CoveredTest]) -> None:
        self._all = recorded
        self._covering = CoveringTests(recorded)

    def of(self, mutant: Mutant, most: int) -> Sequence[CoveredTest]:
        """So many seeds of each scenario at most that run the statement of a mutant, for `MOST_S` CPU seconds together.

        Some of `undisturbed` come first: there most has to hold. All others come in turn, one of each scenario, the
        cheapest first. Where a class is changed, or what an import runs, any seed may notice it.
        """
        source = (PRODUCT / mutant.path).read_text()
        hit = self._covering.of(mutant.path, lines_of(mutant, source))
        if not hit and (class_changed(mutant, source) or runs_when_imported(mutant, source)):
            hit = self._covering.of(mutant.path, (), is_imported=True)
        chosen: dict[str, list[CoveredTest]] = defaultdict(list)
        for seed in sorted(hit, key=lambda item: (item.seconds, item.test)):
            chosen[_scenario(seed)].append(seed)
        turns = [(turn, seed) for seeds in chosen.values() for turn, seed in enumerate(seeds[:most])]
        turns.sort(key=lambda item: (item[0] >= _FIRST_SEEDS or _scenario(item[1]) != _FIRST, item[0], item[1].seconds))
        return _within_s([seed for _, seed in turns], MOST_S)


def _scenario(seed: CoveredTest) -> str:
    return seed.test.partition("::")[0]


def _within_s(seeds: Sequence[CoveredTest], most_s: float) -> Sequence[CoveredTest]:
    """The first of some seeds, for so many seconds together; at least one."""
    ends = accumulate(seed.seconds for seed in seeds)
    return [seed for seed, end in zip(seeds, ends, strict=True) if end <= most_s] or seeds[:1]


def recorded_seeds() -> SimulatedSeeds:
    """Of the code that was recorded last; lines are those of the product as it is."""
    return SimulatedSeeds(read(SEEDS, PRODUCT))
