"""A release has the same contents whenever it is built, and the build reports missing parts."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import shiplap
from tools.dist import build
from tools.locked_packages import Package
from tools.release_check import changelog_problems, licence_problems

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return build(tmp_path_factory.mktemp("dist"))


def test_two_builds_are_the_same_byte_for_byte(built: list[Path], tmp_path: Path) -> None:
    again = build(tmp_path)

    assert [path.name for path in again] == [path.name for path in built]
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in built]


def test_the_sdist_builds_the_same_wheel(built: list[Path], tmp_path: Path) -> None:
    wheel, sdist, *_ = built
    with tarfile.open(sdist) as archive:
        # Later patch releases of Python 3.11 and all of 3.12 know filters, and 3.12 warns where none is named.
        archive.extractall(tmp_path, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))  # noqa: S202 - our own
    (source,) = tmp_path.iterdir()
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)  # noqa: S603 - our own

    with zipfile.ZipFile(wheel) as one, zipfile.ZipFile(tmp_path / wheel.name) as two:
        assert one.namelist() == two.namelist()
        assert all(one.read(name) == two.read(name) for name in one.namelist())
        assert one.read("shiplap_cdk/shipped/commit.txt") != b"unknown\n"
        handlers = [name for name in one.namelist() if name.endswith("/handler.py")]
        assert len(handlers) == len(list((ROOT / "functions").iterdir()))


def test_bills_of_materials_name_what_the_layers_and_the_wheel_need(built: list[Path]) -> None:
    wheel, layers = (json.loads(path.read_text()) for path in built if path.suffix == ".json")

    locked = (ROOT / "requirements" / "lambda.txt").read_text()
    assert {item["name"] for item in layers["components"]} >= {"botocore", "numpy", "six"}
    assert all(f"{item['name']}=={item['version']}" in locked for item in layers["components"])
    names = {item["name"] for item in wheel["components"]}
    assert names >= {item["name"] for item in layers["components"]} | {"typer", "aws-cdk-lib", "jsii", "moto"}
    assert not names & {"pytest", "ruff", "shiplap"}
    for bill in (wheel, layers):
        references = [item["bom-ref"] for item in bill["components"]]
        assert len(set(references)) == len(references)
        assert bill["dependencies"] == [{"ref": bill["metadata"]["component"]["bom-ref"], "dependsOn": references}]
        assert all(item["licenses"] for item in bill["components"])
    assert wheel["metadata"]["component"]["version"] == shiplap.__version__


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("## [Unreleased]\n\n## [1.0.0] - 2026-01-31\n\n* One.\n", []),
        ("## [1.0.0] - 2026-01-31\n\n* One.\n", []),
        ("## [Unreleased]\n\n* More.\n\n## [1.0.0] - 2026-01-31\n\n* One.\n", ["what is unreleased belongs below"]),
        ("## [Unreleased]\n\n## [1.0.0]\n\n* One.\n", ["`## [1.0.0] - DATE` is missing"]),
        ("## [Unreleased]\n\n## [0.9.0] - 2025-01-31\n", ["`## [1.0.0] - DATE` is missing"]),
    ],
)
def test_what_the_changelog_lacks_is_told(text: str, told: list[str]) -> None:
    found = list(changelog_problems(text, "1.0.0"))

    assert len(found) == len(told)
    assert all(part in problem for part, problem in zip(told, found, strict=True))


@pytest.mark.parametrize("licence", ["MIT", "Apache Software License", "BSD-3-Clause", "PSF-2.0", "MPL-2.0", "ISC"])
def test_licences_that_ask_for_no_more_than_a_name_are_fine(licence: str) -> None:
    assert list(licence_problems([Package("a", "1", licence)])) == []


@pytest.mark.parametrize("licence", ["GPL-3.0", "AGPL", "LGPLv3", "Proprietary", "", "UNKNOWN", "Limited"])
def test_other_licences_have_to_be_read(licence: str) -> None:
    (problem,) = licence_problems([Package("a", "1", licence)])

    assert problem.startswith(f"licence of a 1: {licence or 'none'}; ")
