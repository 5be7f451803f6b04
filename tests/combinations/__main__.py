"""Laws of plans on clusters in which every two options meet: by themselves, by kube-scheduler and beside Karpenter.

Exit code 1 if a law is broken by anything but a known defect, or if options have not met. Each law that is broken is
shrunk to a file in build/combinations/failures. Exit code 3 if the suite's program cannot be built here.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from shiplap.records.scheduling_record import recorded_snapshot
from tests.combinations.drawn_clusters import COVERING
from tests.combinations.laws import Law
from tests.combinations.played_laws import BrokenLaw, Suite, Tally, as_json, laws_in, named, resumed
from tests.combinations.shrunk_clusters import Shrinking
from tests.e2e.programs import ProgramsMissing

FOLDER = Path(__file__).resolve().parents[2] / "build" / "combinations"
_TOLD_EACH_S = 30.0


def main() -> int:
    """Play what is asked for and say how it went."""
    parser = argparse.ArgumentParser(prog="make combinations", description=__doc__)
    parser.add_argument("--suite", type=Suite, choices=list(Suite), default=Suite.PLANS, help="which laws are played")
    parser.add_argument("--seed", type=int, required=True, help="which clusters are drawn")
    parser.add_argument("--count", type=int, default=COVERING, help="how many")
    parser.add_argument("--laws", type=int, default=0, help="laws for each cluster, in turn; 0: all")
    parser.add_argument("--only", default="", metavar="TEXT", help="laws whose names contain this")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args()
    try:
        laws = named(laws_in(asked.suite), asked.only)
    except ProgramsMissing as missing:
        _say(f"SKIPPED: {missing}")
        return 3
    if not laws:
        parser.error(f"no law's name contains {asked.only!r}")
    at_once = asked.laws or len(laws)
    chosen = f"-{asked.only.replace(' ', '-')}" if asked.only else ""
    results = FOLDER / f"{asked.suite}-{asked.seed}-{at_once}{chosen}.jsonl"
    tally = resumed(results, asked.suite, asked.seed, asked.count, at_once, asked.workers, _teller(), only=asked.only)
    _say(*tally.lines(laws))
    return _judged(tally, laws, asked.suite, asked.count)


def _judged(tally: Tally, laws: Sequence[Law], suite: Suite, count: int) -> int:
    by_name = {law.name: law for law in laws}
    known = {law.name for law in laws if law.known}
    first: dict[str, BrokenLaw] = {}
    for item in sorted(tally.broken, key=lambda item: item.number):
        first.setdefault(item.law, item)
    for name, item in first.items():
        _say(f"{'known' if name in known else 'BROKEN'}: {name}: {_shrunk(by_name[name], suite, item)}")
    all_meet = suite is not Suite.KARPENTER and count >= COVERING
    unmet = list(tally.coverage.missing()) if all_meet else []
    for names in unmet[:10]:
        _say(f"NOT MET: {' and '.join(names)}")
    return 1 if unmet or first.keys() - known else 0


def _shrunk(law: Law, suite: Suite, item: BrokenLaw) -> Path:
    """The file that holds the smallest cluster found."""
    cluster, problem = Shrinking(law).shrunk(suite.drawn(item.seed, item.number))
    path = FOLDER / "failures" / f"{law.name.replace(' ', '-')}-{cluster.name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(as_json(cluster, law.name, problem or item.problem, recorded_snapshot(cluster.snapshot)))
    return path


def _teller() -> Callable[[Tally], None]:
    """A function that says every half minute how far a run is."""
    told_at = time.monotonic()

    def tell(tally: Tally) -> None:
        nonlocal told_at
        if time.monotonic() - told_at > _TOLD_EACH_S:
            told_at = time.monotonic()
            _say(f"{tally.coverage.clusters} clusters, {len(tally.broken)} laws broken")

    return tell


def _say(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
