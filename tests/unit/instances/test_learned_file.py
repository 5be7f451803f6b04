"""The file learned capacity travels in."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from shiplap.errors import InvalidInput
from shiplap.instances.capacity.learned_capacity import RECENT, with_observation
from shiplap.instances.catalog.type_catalog import LearnedCapacity, Minimum, Observation
from shiplap_cli.inputs.learned.learned_file import dump_learned, read_learned
from tests.unit.instances.given_instances import GIB, known, seen


def test_written_sorted_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "capacity.json"
    entries = [known(seen(name, 8 * GIB, ami=ami)) for ami, name in (("b", "x"), ("a", "z"), ("a", "y"))]
    path.write_bytes(dump_learned(entries))
    assert read_learned(path) == (entries[2], entries[1], entries[0])
    assert dump_learned(read_learned(path)) == path.read_bytes()


def test_the_smallest_amounts_travel_too(tmp_path: Path) -> None:
    path = tmp_path / "capacity.json"
    learned = with_observation(None, seen("x", 7 * GIB, node="small", at=0))
    for number in range(RECENT):
        learned = with_observation(learned, seen("x", 8 * GIB, node=f"n{number}", at=1 + number))
    path.write_bytes(dump_learned([learned]))
    assert read_learned(path) == (learned,)


@pytest.mark.parametrize("minimum", [Minimum(-1, 0), Minimum(2**70, 0), Minimum(1, -1), Minimum(1, 2**60)])
def test_minima_no_node_reports(tmp_path: Path, minimum: Minimum) -> None:
    path = tmp_path / "capacity.json"
    path.write_bytes(dump_learned([LearnedCapacity("a", "x", "h", minimum_allocatable={"memory": (minimum,)})]))
    with pytest.raises(InvalidInput, match=re.escape("entries[0].minimum_allocatable.memory[0]")):
        read_learned(path)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="No such file"):
        read_learned(tmp_path / "none.json")


@pytest.mark.parametrize("text", ["", "[]", '{"entries": [{}]}', '{"entries": [], "more": 1}'])
def test_what_is_no_export(tmp_path: Path, text: str) -> None:
    path = tmp_path / "capacity.json"
    path.write_text(text)
    with pytest.raises(InvalidInput, match="not an export"):
        read_learned(path)


def test_text_that_is_not_unicode(tmp_path: Path) -> None:
    path = tmp_path / "capacity.json"
    path.write_bytes(b'{"entries": [{"ami": "\xff"}]}')
    with pytest.raises(InvalidInput, match="not an export"):
        read_learned(path)


@pytest.mark.parametrize(
    ("observation", "field"),
    [
        (seen("x", -1), "entries[0].recent[0].capacity.memory"),
        (seen("x", 2**70), "entries[0].recent[0].capacity.memory"),
        (msgspec.structs.replace(seen("x", GIB), observed_at=1e300), "entries[0].recent[0].observed_at"),
    ],
)
def test_figures_no_node_reports(tmp_path: Path, observation: Observation, field: str) -> None:
    path = tmp_path / "capacity.json"
    path.write_bytes(dump_learned([known(observation)]))
    with pytest.raises(InvalidInput, match=re.escape(field)):
        read_learned(path)
