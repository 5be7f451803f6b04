"""The registry of faults: each has a module, does something, and is described."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from shiplap.errors import InvalidInput
from shiplap_lab import faults
from shiplap_lab.faults.drawn_amounts import Always, Likely
from shiplap_lab.faults.fault_kind import FaultKind
from shiplap_lab.faults.fault_kinds import FAULTS, KINDS
from shiplap_lab.scenarios.scenario import load

SHARED = {"deleted_objects", "effect_errors", "manifest_fault", "queue_names", "seen_nodes", "spot_notices", "versions"}
"""Modules that several kinds use."""


def test_each_kind_has_a_module_of_its_own_and_a_line_in_the_registry() -> None:
    folder = Path(faults.__file__).parent
    modules = {path.stem for path in folder.glob("*/*.py") if path.stem != "__init__"} - SHARED
    assert len(KINDS) == len(FAULTS) == len(modules)
    assert {kind.__module__.rpartition(".")[2] for kind in FAULTS} == modules


@pytest.mark.parametrize("kind", FAULTS, ids=lambda kind: kind.name)
def test_each_kind_does_something_and_says_what(kind: type[FaultKind]) -> None:
    own = {name for each in kind.__mro__[:-1] if each is not FaultKind for name in vars(each)}
    points = {name for name, value in vars(FaultKind).items() if callable(value) and not name.startswith("_")}
    assert own & (points - {"took_effect", "connect"}) or kind.name in ("startup-taint", "late-device")
    assert "amount" in (kind.__doc__ or "") or isinstance(kind.amount, Likely | Always)


@pytest.mark.parametrize("kind", FAULTS, ids=lambda kind: kind.name)
def test_what_is_drawn_follows_from_the_seed(kind: type[FaultKind]) -> None:
    drawn = [kind.drawn(Random(seed), 20.0, 20.0) for seed in (1, 1, 2)]  # noqa: S311
    assert drawn[0] == drawn[1] != drawn[2]
    assert drawn[0].kind == kind.name
    assert drawn[0].target in (kind.targets or ("*",))
    assert 0 <= drawn[0].at <= 20
    assert 0 <= drawn[0].minutes <= 10


def test_a_fault_that_nobody_knows_is_refused_with_those_that_are_known(tmp_path: Path) -> None:
    (tmp_path / "scenario.yaml").write_text("about: x\nclusters: []\nfaults: [{kind: meteor}]")
    with pytest.raises(InvalidInput, match="there is no fault 'meteor'; known are address-again, "):
        load(str(tmp_path))
