"""Mistakes that people make, played by the real commands: each is told with its place, its reason and what to write."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from shiplap_cdk.terraform.module_files import module_variables
from tests.action_steps import GitHub, Runner
from tests.commands import Shiplap
from tests.helm_program import ROOT, helm
from tests.mistakes import (
    mistakes_in_action_inputs,
    mistakes_in_helm_values,
    mistakes_in_settings,
    mistakes_in_terraform,
    mistakes_in_yaml,
)

ALL = (
    mistakes_in_settings.MISTAKES,
    mistakes_in_yaml.MISTAKES,
    mistakes_in_terraform.MISTAKES,
    mistakes_in_helm_values.MISTAKES,
    mistakes_in_action_inputs.MISTAKES,
)
ERROR = re.compile(r"::error file=(?P<file>[^,]*),line=(?P<line>\d+),title=Input (?P<name>[^:]*)::(?P<said>.+)")


def test_two_hundred_mistakes_are_played() -> None:
    assert sum(map(len, ALL)) >= 200
    for mistakes in ALL:
        played = [repr(mistake[0]) for mistake in mistakes.values()]  # type: ignore[attr-defined]
        assert len(set(played)) == len(played)


@pytest.mark.parametrize("mistake", mistakes_in_settings.MISTAKES)
def test_settings(mistake: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, line, field, said = mistakes_in_settings.MISTAKES[mistake]
    file = tmp_path / "shiplap.yaml"
    file.write_text(text, encoding="utf-8", newline="")
    problem = Shiplap(capsys).json("validate", file, code=2)["problems"][0]
    assert (problem["file"], problem["line"], problem["field"]) == (str(file), line, field)
    assert said in problem["reason"]
    assert "\n" not in problem["reason"]


def test_what_settings_are_made_of_is_sound(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "shiplap.yaml").write_text(mistakes_in_settings.LEAST)
    assert "valid" in Shiplap(capsys)("validate", tmp_path / "shiplap.yaml")


@pytest.mark.parametrize("mistake", mistakes_in_yaml.MISTAKES)
def test_yaml(mistake: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, told = mistakes_in_yaml.MISTAKES[mistake]
    file = tmp_path / "pool.yaml"
    file.write_text(text)
    problems = Shiplap(capsys).json("validate", file, code=2)["problems"]
    assert [(problem["file"], problem["line"]) for problem in problems] == [(str(file), line) for line, _ in told]
    for problem, (_, said) in zip(problems, told, strict=True):
        assert said in f"{problem['field']} {problem['reason']}"
    assert "Traceback" not in capsys.readouterr().err


def test_what_manifests_are_made_of_is_sound(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pool.yaml").write_text(mistakes_in_yaml.POOL)
    Shiplap(capsys)("validate", tmp_path / "pool.yaml")


@pytest.fixture(scope="module")
def module_call(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of somebody who calls the module; Terraform needs no provider to judge its variables."""
    program = shutil.which("terraform")
    if program is None:
        pytest.skip("there is no terraform")
    folder = tmp_path_factory.mktemp("call")
    (folder / "module").mkdir()
    (folder / "module" / "variables.tf.json").write_text(json.dumps({"variable": module_variables(30)}))
    write_call(folder, "")
    assert terraform("init", "-backend=false", folder=folder).returncode == 0
    return folder


def write_call(folder: Path, argument: str) -> None:
    (folder / "main.tf").write_text(f'module "shiplap" {{\n  source = "./module"\n  {argument}\n}}\n')


def terraform(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "CHECKPOINT_DISABLE": "1"}
    command = ["terraform", *arguments, "-no-color"]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)  # noqa: S603


@pytest.mark.parametrize("mistake", mistakes_in_terraform.MISTAKES)
def test_terraform(mistake: str, module_call: Path) -> None:
    argument, line, name, said = mistakes_in_terraform.MISTAKES[mistake]
    write_call(module_call, argument)
    done = terraform("validate", "-json", folder=module_call)
    assert done.returncode == 1
    found, *_ = (each for each in json.loads(done.stdout)["diagnostics"] if "range" in each)
    assert (found["range"]["filename"], found["range"]["start"]["line"]) == ("main.tf", line)
    told = " ".join(f"{found['summary']}: {found['detail']} {found['snippet']['code']}".split())
    assert name in told
    assert said in told


@pytest.mark.parametrize(
    "argument", ["", "log_retention_days = 3653", 'assets_bucket = "my-assets.1"'.replace(".", "-")]
)
def test_a_sound_call_of_the_module_is_valid(argument: str, module_call: Path) -> None:
    write_call(module_call, argument)
    assert terraform("validate", folder=module_call).returncode == 0


@pytest.mark.parametrize("mistake", mistakes_in_helm_values.MISTAKES)
def test_helm_values(mistake: str, tmp_path: Path) -> None:
    values, field, said = mistakes_in_helm_values.MISTAKES[mistake]
    done = helm("template", "mine", str(ROOT / "charts" / "shiplap-cluster"), values=values, folder=tmp_path)
    assert done.returncode == 1
    assert done.stdout == ""
    assert field in done.stderr
    assert said in done.stderr


@pytest.mark.parametrize("mistake", mistakes_in_action_inputs.MISTAKES)
def test_action_inputs(mistake: str, tmp_path: Path) -> None:
    inputs, line, name, said = mistakes_in_action_inputs.MISTAKES[mistake]
    github = GitHub()
    with github.served():
        done = Runner(tmp_path, github).play(**inputs)
    assert (done.code, done.steps) == (2, ["Check inputs"])
    assert done.log.count("\n") == 1
    found = ERROR.match(done.log)
    assert found is not None, done.log
    assert (found["file"], int(found["line"]), found["name"]) == (".github/workflows/plan.yml", line, name)
    assert said in found["said"]
