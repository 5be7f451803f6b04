"""Verdicts about mutants: kept, drawn and counted; and a mutant that is planted and run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tools.mutation.code_mutants import Mutant
from tools.mutation.covered_lines import CoveredTest, read
from tools.mutation.covering_tests import CoveringTests, within_s
from tools.mutation.mutant_runs import Outcome, Verdict
from tools.mutation.mutant_verdicts import STRATA, VerdictStore, read_equivalents, sample, share_of, stratum_of

ROOT = Path(__file__).parents[3]
FOUND, SURVIVED = Verdict(Outcome.FOUND, "t"), Verdict(Outcome.SURVIVED)


def mutant(key: str, path: str = "shiplap/flows/x.py") -> Mutant:
    return Mutant(key, path, "f", 1, 0, 1, "a", "b", "kind")


def test_the_last_verdict_counts_and_what_was_cut_off_is_forgotten(tmp_path: Path) -> None:
    file = tmp_path / "new" / "verdicts.jsonl"
    store = VerdictStore(file)
    assert store.read() == {}
    store.add("a", SURVIVED)
    file.write_bytes(file.read_bytes() + b'{"key":"cut')
    store.add("a", FOUND)
    store.add("b", SURVIVED)
    assert VerdictStore(file).read() == {"a": FOUND, "b": SURVIVED}


def test_a_sample_follows_from_its_seed_and_takes_so_many_of_each_part() -> None:
    mutants = [mutant(f"{name}-{number}", f"shiplap/{name}/x.py") for name in ("flows", "aws") for number in range(50)]
    sizes = {"flows": 5, "adapters": 3, "disruption": 4}
    drawn = sample(mutants, 1, sizes)
    assert [stratum_of(item.path) for item in drawn] == ["flows"] * 5 + ["adapters"] * 3
    assert drawn == sample(reversed(mutants), 1, sizes)
    assert drawn != sample(mutants, 2, sizes)
    assert len(sample(mutants, 1, {"flows": 99})) == 50


def test_every_part_of_the_product_exists() -> None:
    folder = ROOT / "layers/shiplap/python"
    assert all((folder / prefix).exists() for _, prefixes in STRATA.values() for prefix in prefixes)
    assert stratum_of("shiplap/drawing/markup.py") == ""


def test_at_most_three_in_a_hundred_are_left_out_and_only_what_survived() -> None:
    mutants = [mutant(f"{number:03d}") for number in range(100)]
    verdicts = {item.key: FOUND if int(item.key) < 90 else SURVIVED for item in mutants}
    share = share_of(mutants, verdicts, [item.key for item in mutants[85:95]])
    assert (share.found, share.survived, share.equivalent) == (90, 5, 5)
    assert (share.left_out, share.counted, share.fraction) == (3, 97, 90 / 97)
    assert share_of(mutants[:10], verdicts).fraction == 1.0
    assert share_of([], verdicts).fraction == 0.0


def test_timeouts_broken_mutants_and_those_without_a_verdict_are_not_counted() -> None:
    verdicts = {"a": FOUND, "b": Verdict(Outcome.TIMEOUT), "c": Verdict(Outcome.BROKEN)}
    share = share_of([mutant(key) for key in "abcd"], verdicts)
    assert (share.counted, share.timeout, share.broken, share.fraction) == (1, 1, 1, 1.0)


def test_an_equivalent_mutant_needs_a_proof(tmp_path: Path) -> None:
    assert all(item.proof for item in read_equivalents(ROOT / "tools/mutation/equivalents.toml").values())
    file = tmp_path / "equivalents.toml"
    file.write_text('[[equivalent]]\nkey = "a"\nmutant = "b"\n')
    with pytest.raises(msgspec.ValidationError):
        read_equivalents(file)


def covered(name: str, seconds: float, *lines: int) -> CoveredTest:
    return CoveredTest(name, seconds, {"x.py": lines})


def test_tests_that_run_a_line_come_rarest_and_fastest_first() -> None:
    tests = CoveringTests(
        [
            covered("a::slow", 2.0, 1, 2),
            covered("b::fast", 1.0, 1, 2),
            covered("a::rare", 3.0, 2, 3),
            covered("c::other", 0.1, 9),
        ]
    )
    assert [test.test for test in tests.of("x.py", [2])] == ["a::rare", "b::fast", "a::slow"]
    assert [test.test for test in tests.of("x.py", [1])] == ["b::fast", "a::slow"]
    assert len(tests.of("x.py", [100])) == 4, "a constant, which only an import runs"
    assert tests.of("y.py", [1]) == []


def test_tests_are_taken_while_they_fit_and_those_of_a_file_stay_together() -> None:
    tests = [covered(name, seconds) for name, seconds in (("a::1", 5.0), ("b::1", 1.0), ("a::2", 1.0), ("b::2", 9.0))]
    assert [test.test for test in within_s(tests, 7.0, 10)] == ["a::1", "a::2", "b::1"]
    assert [test.test for test in within_s(tests, 7.0, 2)] == ["a::1", "b::1"]
    assert [test.test for test in within_s(tests, 1.0, 10)] == ["a::1"]


PLAY = """
from pathlib import Path
from tools.mutation.covered_lines import PRODUCT
from tools.mutation.mutant_runs import ChangedModule, run_tests
path = "shiplap/manifests/durations.py"
source = (PRODUCT / path).read_text()
test = ["tests/unit/manifests/test_durations.py"]
for changed, limit_s in ((source, 120), (BROKEN, 120), (FAILING, 120), (source, 0)):
    verdict = run_tests(ChangedModule(path, changed), test, limit_s, Path(LOG))
    print(verdict.outcome, verdict.test.partition("::")[0])
"""


def python(*arguments: str) -> list[str]:
    """What a process prints, by lines."""
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()  # noqa: S603


def test_a_mutant_is_found_by_a_test_and_not_by_an_import_that_fails(tmp_path: Path) -> None:
    """In a process of its own: a forked process must have one thread only."""
    failing = 'source.replace("return ", "return 1 + ")'
    play = PLAY.replace("BROKEN", 'source + "\\nnever"').replace("FAILING", failing)
    assert python("-c", play.replace("LOG", repr(str(tmp_path / "log")))) == [
        "survived ",
        "broken ",
        "found tests/unit/manifests/test_durations.py",
        "timeout ",
    ]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the interpreter does not report lines")
def test_the_lines_of_each_test_are_recorded(tmp_path: Path) -> None:
    tests = "tests/unit/manifests/test_durations.py"
    python("-m", "pytest", "-q", "-p", "tools.mutation.covered_lines", "--covered-lines", str(tmp_path), tests)
    recorded = read(tmp_path)
    assert recorded
    assert all(test.test.startswith(f"{tests}::") for test in recorded)
    assert any("shiplap/manifests/durations.py" in test.lines for test in recorded)
