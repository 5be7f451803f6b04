"""The Promela model: the promises hold within small bounds, and two planted defects break one each.

`long_protocol_search.py` has the full bounds and all planted defects.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.model.spin import need_spin, search

ROOT = Path(__file__).resolve().parents[2]
BOUNDS = {"INSTALLS": 1, "MOST": 2, "PODS": 2, "RESTORES": 0}


def test_the_promises_hold_within_small_bounds() -> None:
    need_spin()

    found = search(BOUNDS, limit_s=60)

    assert found.violation == ""
    assert found.is_complete
    assert found.states > 10_000


@pytest.mark.parametrize(
    ("defect", "broken"), [("COMMIT_WITHOUT_EPOCH", "wanted"), ("SETTLING_WITHOUT_CLAIMS", "!(found)")]
)
def test_a_planted_defect_breaks_its_promise(defect: str, broken: str) -> None:
    need_spin()

    found = search(BOUNDS, [defect], limit_s=60)

    assert broken in found.violation


def test_make_model_names_no_folder_beside_a_file_in_it() -> None:
    """Pytest drops the file then, and a folder has only files whose names begin with `test_`."""
    (line,) = (line for line in (ROOT / "Makefile").read_text().splitlines() if "long_protocol_search.py" in line)
    named = [word for word in line.split() if word.startswith("tests/")]
    assert len(named) > 1
    assert not [(one, other) for one in named for other in named if other.startswith(f"{one}/")]
