"""Verdicts about mutants: kept, drawn and counted; and a mutant that is planted and run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tools.mutation.code_mutants import Mutant
from tools.mutation.covered_lines import CoveredTest, keep_sources, read
from tools.mutation.covering_tests import (
    CoveringTests,
    class_changed,
    lines_of,
    names_changed,
    runs_when_imported,
    within_s,
)
from tools.mutation.mutant_runs import Outcome, Verdict
from tools.mutation.mutant_verdicts import (
    STRATA,
    VerdictStore,
    missed_bars,
    read_equivalents,
    sample,
    share_of,
    shares_of_parts,
    stratum_of,
)

pytestmark = pytest.mark.thorough

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


def test_too_few_are_found_if_equivalent_mutants_count_as_missed_ones() -> None:
    paths = {"flows": "shiplap/flows/x.py", "adapters": "shiplap/aws/x.py"}
    mutants = [mutant(f"{name}{number:02}", path) for name, path in paths.items() for number in range(20)]
    missed = {"flows00": SURVIVED, "adapters00": SURVIVED, "adapters01": SURVIVED}
    shares = shares_of_parts(mutants, {item.key: FOUND for item in mutants} | missed, ["flows00", "adapters00"])
    assert list(shares) == ["flows", "adapters", "all"], "of disruption none were drawn"
    assert (shares["all"].fraction, shares["all"].fraction_of_all) == (37 / 39, 37 / 40)
    assert missed_bars(shares) == ["all: 92.5% found instead of 95%"]
    assert missed_bars(shares_of_parts(mutants[20:], missed, [])) == [
        "adapters: 0.0% found instead of 90%",
        "all: 0.0% found instead of 95%",
    ]
    assert missed_bars(shares_of_parts(mutants[1:20], {item.key: FOUND for item in mutants}, [])) == []
    assert missed_bars(shares_of_parts([], {}, [])) == [], "of none nothing is missed"


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
    assert len(tests.of("x.py", [100], is_imported=True)) == 4, "a constant, which only an import runs"
    assert tests.of("x.py", [100]) == []
    assert tests.of("y.py", [1]) == []


def test_tests_that_are_about_the_function_come_before_all_others() -> None:
    tests = CoveringTests(
        [
            covered("tests/test_any.py::test_rare", 0.1, 1),
            covered("tests/test_any.py::test_a", 0.2, 1, 2),
            covered("tests/test_x.py::test_nodes_leave", 0.5, 1, 2),
            covered("tests/flows/test_x.py::test_b", 0.1, 1, 2),
        ]
    )
    found = [test.test.rpartition("_")[2] for test in tests.of("x.py", [1], function="C._leave_node")]
    assert found == ["leave", "b", "rare", "a"], "the file of the module, then what is rare"


def test_a_test_that_takes_the_time_of_all_others_comes_last() -> None:
    tests = [covered("tests/test_x.py::test_leave", 0.6, 1), covered("tests/test_y.py::test_any", 0.1, 1)]
    found = CoveringTests(tests).of("x.py", [1], function="leave")
    assert [test.seconds for test in found] == [0.1, 0.6]


@pytest.mark.parametrize(
    ("imports", "order"),
    [
        ("from shiplap.flows.x import C\n", ["b", "a"]),
        ("import os\nfrom shiplap.flows import other, x\n", ["b", "a"]),
        ("from shiplap.flows.xy import C\n", ["a", "b"]),
        ("from shiplap.flows import xy\n", ["a", "b"]),
        ("from shiplap.disruption.x import C\n", ["a", "b"]),
        ("text = 'of shiplap.flows.x import'\n", ["a", "b"]),
    ],
)
def test_tests_of_files_that_import_the_module_come_first(tmp_path: Path, imports: str, order: list[str]) -> None:
    (tmp_path / "test_some.py").write_text(imports)
    path = "shiplap/flows/x.py"
    tests = [
        CoveredTest("test_any.py::test_a", 0.1, {path: (1,)}),
        CoveredTest("test_some.py::test_b", 0.5, {path: (1, 2)}),
    ]
    found = CoveringTests(tests, tmp_path).of(path, [1], function="C.act")
    assert [test.test.rpartition("_")[2] for test in found] == order


READERS = """from shiplap.flows import x
from shiplap.flows.x import LIMIT

def test_compares():
    assert LIMIT == 3

@given(LIMIT - 1)
def test_is_given():
    pass

class TestAll:
    def test_by_attribute(self):
        assert x.LIMIT

def test_other():
    assert x.LIMITS
"""


def test_tests_that_read_a_constant_need_not_run_a_line(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(READERS)
    (tmp_path / "test_namesake.py").write_text(READERS.replace("flows", "aws"))
    names = ("test_compares", "test_is_given[2]", "TestAll::test_by_attribute", "test_other")
    tests = [CoveredTest(f"{file}.py::{name}", 0.1, {}) for file in ("test_some", "test_namesake") for name in names]
    found = CoveringTests(tests, tmp_path).naming("shiplap/flows/x.py", "LIMIT")
    assert {test.test for test in found} == {f"test_some.py::{name}" for name in names[:3]}


LINES = """LIMIT = 3


def f(a):
    b = g(
        a,
        1,
    )
    if (a
        and b):
        return LIMIT
"""


@pytest.mark.parametrize(
    ("line", "function", "lines", "is_imported"),
    [
        (1, "", {11}, True),
        (4, "f", {4}, True),
        (7, "f", {5, 6, 7, 8}, False),
        (9, "f", {9, 10}, False),
        (11, "f", {11}, False),
    ],
    ids=["a constant where it is used", "a default", "an argument", "a condition", "a result"],
)
def test_a_mutant_is_tried_by_tests_that_run_its_statement(
    line: int, function: str, lines: set[int], *, is_imported: bool
) -> None:
    planted = Mutant("a", "x.py", function, line, 0, 1, "a", "b", "kind")
    assert lines_of(planted, LINES) == lines
    assert runs_when_imported(planted, LINES) is is_imported


CLASSES = """class C:
    a = 1

    def f(self, b=2):
        return 3


d = 4
"""


@pytest.mark.parametrize(("line", "name"), [(1, "C"), (2, "C"), (4, ""), (5, ""), (8, "")])
def test_a_default_of_a_field_is_tried_by_tests_that_name_its_class(line: int, name: str) -> None:
    assert class_changed(Mutant("a", "x.py", "C", line, 0, 1, "a", "b", "kind"), CLASSES) == name


def test_a_constant_changes_those_that_are_made_of_it() -> None:
    source = "A = 1\nB: int = A + 1\nC = (B, 2)\nD = 3\n\n\ndef f():\n    E = A\n"
    changed = [names_changed(Mutant("a", "x.py", "", line, 0, 1, "a", "b", "kind"), source) for line in (1, 2, 4)]
    assert changed == [{"A", "B", "C"}, {"B", "C"}, {"D"}]


def test_tests_are_taken_while_they_fit_and_those_of_a_file_stay_together() -> None:
    tests = [covered(name, seconds) for name, seconds in (("a::1", 5.0), ("b::1", 1.0), ("a::2", 1.0), ("b::2", 9.0))]
    assert [test.test for test in within_s(tests, 7.0, 10)] == ["a::1", "a::2", "b::1"]
    assert [test.test for test in within_s(tests, 7.0, 2)] == ["a::1", "b::1"]
    assert [test.test for test in within_s(tests, 1.0, 10)] == ["a::1"]


PLAY = """
from pathlib import Path
from tools.mutation.covered_lines import PRODUCT
from tools.mutation.mutant_runs import ChangedModule, run_tests
path = "shiplap/manifests/times.py"
source = (PRODUCT / path).read_text()
test = ["tests/unit/manifests/test_durations.py"]
for changed, limit_s in ((source, 120), (BROKEN, 120), (FAILING, 120), (source, 0)):
    verdict = run_tests(ChangedModule(path, changed), test, limit_s, Path(LOG))
    print(verdict.outcome, verdict.test.partition("::")[0])
"""


def python(*arguments: str) -> list[str]:
    """Return the output of a process, by lines."""
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


FORK = """
import sys
from pathlib import Path
from tools.mutation import forked_judges, mutant_runs
from tools.mutation.code_mutants import mutants_of
from tools.mutation.covered_lines import PRODUCT, CoveredTest
from tools.mutation.mutant_verdicts import VerdictStore
forked_judges.LOGS = Path(FOLDER)
path = "shiplap/manifests/times.py"
mutants = mutants_of(path, (PRODUCT / path).read_text())
test = CoveredTest("tests/unit/manifests/test_durations.py::test_never", 0.1, {})
trials = [forked_judges.Trial(mutant, (test,)) for mutant in mutants]
store = VerdictStore(Path(FOLDER) / "verdicts")
assert forked_judges.judge_by_tests(trials, store, 2, lambda line: None) == 0
for mutant in mutants:
    verdict = store.read().get(mutant.key)
    print("\\n!", mutant.function, mutant.after, verdict.outcome if verdict else "import", sep="|")
"""


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the interpreter does not report lines")
def test_code_is_exchanged_in_forks_of_one_process(tmp_path: Path) -> None:
    play = FORK.replace("FOLDER", repr(str(tmp_path)))
    rows = [line.split("|")[1:] for line in python("-c", play) if line.startswith("!|")]
    of_functions = {outcome for function, _, outcome in rows if function}
    assert rows
    assert "found" in of_functions
    assert of_functions <= {"found", "survived", "timeout", "import"}


def test_a_line_is_found_again_after_its_file_has_changed(tmp_path: Path) -> None:
    product, recorded = tmp_path / "product", tmp_path / "recorded"
    product.mkdir()
    file = product / "x.py"
    file.write_text("a\nb\nc\nd\n")
    for number, (name, ran) in enumerate([("t.py::old", (1, 2)), ("t.py::new", (1, 2, 4)), ("u.py::other", (3,))]):
        keep_sources(product, recorded / str(number))
        found = [CoveredTest(name, 1.0, {"x.py": ran, "gone.py": (1,)})]
        (recorded / str(number) / "main.msgpack").write_bytes(msgspec.msgpack.encode(found))
    file.write_text("new\na\nB\nBB\nd\n")
    assert [(test.test, test.lines["x.py"]) for test in read(recorded, product)] == [
        ("t.py::new", (2, 3, 4, 5)),
        ("u.py::other", (3, 4)),
    ]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the interpreter does not report lines")
def test_the_lines_of_each_test_are_recorded(tmp_path: Path) -> None:
    tests = "tests/unit/manifests/test_durations.py"
    python("-m", "pytest", "-q", "-p", "tools.mutation.covered_lines", "--covered-lines", str(tmp_path / "0"), tests)
    recorded = read(tmp_path, ROOT / "layers/shiplap/python")
    assert recorded
    assert all(test.test.startswith(f"{tests}::") for test in recorded)
    assert any("shiplap/manifests/times.py" in test.lines for test in recorded)
