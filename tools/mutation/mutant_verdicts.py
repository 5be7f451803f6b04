"""Verdicts about mutants, kept between runs by the mutants' keys, and the figures that are made of them."""

from __future__ import annotations

import os
import random
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from tools.mutation.code_mutants import Mutant
from tools.mutation.mutant_runs import Outcome, Verdict

MOST_EQUIVALENT = 0.03
"""Of a sample, the share of mutants that may be left out because they change nothing."""

LEAST_FOUND, LEAST_FOUND_IN_EACH = 0.95, 0.9
"""Of a sample, the share of mutants that tests are to find: of all, and of each part of the product."""

STRATA: Mapping[str, tuple[int, tuple[str, ...]]] = {
    "flows": (400, ("shiplap/flows/",)),
    "adapters": (200, ("shiplap/aws/", "shiplap/cluster/")),
    "disruption": (200, ("shiplap/disruption/",)),
    "learning and limits": (
        200,
        (
            "shiplap/instances/capacity/",
            "shiplap/instances/offerings/",
            "shiplap/instances/readiness/",
            "shiplap/scheduling/supply/charges.py",
            "shiplap/scheduling/supply/limits.py",
            "shiplap/scheduling/supply/reservations.py",
        ),
    ),
}
"""How many mutants are drawn of each part of the product, and the files that it consists of."""


class Equivalent(msgspec.Struct, frozen=True):
    """A mutant that changes nothing that anybody could notice, and why."""

    key: str
    mutant: str
    proof: str


class _EquivalentFile(msgspec.Struct, frozen=True):
    equivalent: tuple[Equivalent, ...] = ()


def read_equivalents(path: Path) -> dict[str, Equivalent]:
    """Read the equivalent mutants of a TOML file, by key. Raises msgspec.ValidationError for one without a proof."""
    known = msgspec.convert(tomllib.loads(path.read_text()), _EquivalentFile)
    return {item.key: item for item in known.equivalent}


class _Line(msgspec.Struct, frozen=True):
    key: str
    verdict: Verdict


class VerdictStore:
    """A file with a line for each verdict; the last one of a key counts. Processes may append to it side by side."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> dict[str, Verdict]:
        """All verdicts, by key. A line that was cut off by the end of its process is left out."""
        if not self._path.exists():
            return {}
        known: dict[str, Verdict] = {}
        for line in self._path.read_bytes().splitlines():
            try:
                found = msgspec.json.decode(line, type=_Line)
            except msgspec.DecodeError:
                continue
            known[found.key] = found.verdict
        return known

    def forget(self, keys: Iterable[str]) -> None:
        """Leave out verdicts that are about to be given again."""
        gone = set(keys)
        known = self.read()
        if gone.isdisjoint(known):
            return
        kept = [msgspec.json.encode(_Line(key, verdict)) for key, verdict in known.items() if key not in gone]
        other = self._path.with_suffix(".new")
        other.write_bytes(b"\n".join(kept) + b"\n")
        other.replace(self._path)

    def add(self, key: str, verdict: Verdict) -> None:
        """Append a verdict; on a line of its own even behind one that was cut off."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        line = b"\n" + msgspec.json.encode(_Line(key, verdict)) + b"\n"
        file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            os.write(file, line)
        finally:
            os.close(file)


def stratum_of(path: str) -> str:
    """The part of the product that a file belongs to; empty for the others."""
    return next((name for name, (_, prefixes) in STRATA.items() if path.startswith(prefixes)), "")


def sample(mutants: Iterable[Mutant], seed: int, sizes: Mapping[str, int]) -> list[Mutant]:
    """So many mutants of each part, drawn by a seed; the same mutants and seed give the same sample."""
    by_stratum: dict[str, list[Mutant]] = {name: [] for name in sizes}
    for mutant in sorted(mutants, key=lambda item: item.key):
        if (name := stratum_of(mutant.path)) in by_stratum:
            by_stratum[name].append(mutant)
    drawn: list[Mutant] = []
    for name, found in by_stratum.items():
        drawn += random.Random(f"{seed}/{name}").sample(found, min(sizes[name], len(found)))  # noqa: S311
    return drawn


class Share(msgspec.Struct, frozen=True):
    """Figures of some mutants, by outcome. Broken ones and timeouts count neither way."""

    found: int = 0
    survived: int = 0
    timeout: int = 0
    broken: int = 0
    equivalent: int = 0

    @property
    def left_out(self) -> int:
        """Equivalent mutants that are not counted: no more than `MOST_EQUIVALENT` of the sample."""
        return min(self.equivalent, int(MOST_EQUIVALENT * (self.found + self.survived + self.equivalent)))

    @property
    def counted(self) -> int:
        return self.found + self.survived + self.equivalent - self.left_out

    @property
    def fraction(self) -> float:
        """The share that was found; 0 of none."""
        return self.found / self.counted if self.counted else 0.0

    @property
    def fraction_of_all(self) -> float:
        """The share that was found if no equivalent mutant is left out; 0 of none."""
        judged = self.found + self.survived + self.equivalent
        return self.found / judged if judged else 0.0


def share_of(mutants: Sequence[Mutant], verdicts: Mapping[str, Verdict], equivalents: Iterable[str] = ()) -> Share:
    """The figures of those mutants that have a verdict. An equivalent one that was found after all is a found one."""
    known = set(equivalents)
    counts: Counter[str] = Counter()
    for mutant in mutants:
        verdict = verdicts.get(mutant.key)
        if verdict is not None:
            is_equivalent = verdict.outcome is Outcome.SURVIVED and mutant.key in known
            counts["equivalent" if is_equivalent else verdict.outcome] += 1
    return Share(**{name: counts[name] for name in Share.__struct_fields__})


def shares_of_parts(
    mutants: Sequence[Mutant], verdicts: Mapping[str, Verdict], equivalents: Iterable[str]
) -> dict[str, Share]:
    """The figures of each part of the product that mutants were drawn of, by its name, and of "all" at the end."""
    known = list(equivalents)
    parts = {name: [item for item in mutants if stratum_of(item.path) == name] for name in STRATA}
    shares = {name: share_of(found, verdicts, known) for name, found in parts.items() if found}
    return shares | {"all": share_of(mutants, verdicts, known)}


def missed_bars(shares: Mapping[str, Share]) -> list[str]:
    """Return where too few mutants were found, equivalent mutants counted as missed; in words."""
    bars = {name: LEAST_FOUND if name == "all" else LEAST_FOUND_IN_EACH for name in shares}
    return [
        f"{name}: {share.fraction_of_all:.1%} found instead of {bars[name]:.0%}"
        for name, share in shares.items()
        if share.counted and share.fraction_of_all < bars[name]
    ]
