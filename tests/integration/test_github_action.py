"""The GitHub Action, its steps played: wrong inputs, the comment, forks, and what must not be printed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import shiplap
from tests.action_steps import ACTION, POOLS, TOKEN, GitHub, Runner


@pytest.fixture
def github() -> Iterator[GitHub]:
    github = GitHub()
    with github.served():
        yield github


@pytest.fixture
def runner(tmp_path: Path, github: GitHub) -> Runner:
    return Runner(tmp_path, github)


def test_the_declaration_has_what_the_marketplace_wants_and_no_expression_in_a_script(runner: Runner) -> None:
    declared = runner.action
    assert all(declared[key] for key in ("name", "description", "author"))
    assert set(declared["branding"]) == {"icon", "color"}
    assert all(len(entry["description"]) > 20 for entry in declared["inputs"].values())
    steps = declared["runs"]["steps"]
    assert declared["runs"]["using"] == "composite"
    assert all(step["shell"] == "bash" and "uses" not in step for step in steps)
    assert not any("${{" in step["run"] for step in steps), "an input in a script would be run"
    passed = {value for step in steps for value in step["env"].values()}
    assert {f"${{{{ inputs.{name} }}}}" for name in declared["inputs"]} <= passed
    assert [step["name"] for step in steps if "INPUT_TOKEN" in step["env"]] == ["Tell the pull request"]
    assert declared["inputs"]["package"]["default"] == f"shiplap=={shiplap.__version__}"


def test_an_old_python_is_told_before_anything_else(runner: Runner, tmp_path: Path) -> None:
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir()
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    done = runner.play(first_on_path=str(python.parent), manifests="nodepools")
    assert (done.code, done.steps) == (2, ["Check inputs"])
    assert "::error title=Shiplap::python3 is older than 3.11.4: run actions/setup-python" in done.log


def test_a_package_that_cannot_be_installed_is_told(runner: Runner) -> None:
    done = runner.play(manifests="nodepools", package="./nowhere.whl")
    assert (done.code, done.steps[-1]) == (2, "Install")
    assert "::error title=Input package::pip could not install it" in done.log


def test_manifests_that_are_wrong_are_shown_at_their_lines(runner: Runner, github: GitHub) -> None:
    runner.commit({"nodepools/pools.yaml": POOLS.replace("requirements:", "requirments:")})
    done = runner.play(manifests="nodepools", cluster_state="state.yaml")
    assert done.code == 2
    assert "::error file=nodepools/pools.yaml,line=8,title=Shiplap::NodePool/general: spec.template.spec" in done.log
    (comment,) = github.comments
    assert "| problem | nodepools/pools.yaml:8 | NodePool/general |" in comment["body"]
    assert "Instead of" not in comment["body"]
    assert "Traceback" not in done.log


def test_a_folder_without_one_manifest_of_ours_is_no_success(runner: Runner) -> None:
    runner.commit({"other/values.yaml": "a: 1\n"})
    done = runner.play(manifests="other")
    assert done.code == 2
    assert "::error file=other" in done.log
    assert "other" in done.summary


def test_the_comment_is_kept_up_to_date_and_each_title_has_one(runner: Runner, github: GitHub) -> None:
    github.comments = [github.written(f"Talk {number}", "someone") for number in range(120)]
    runner.commit({"nodepools/pools.yaml": POOLS.replace("[m5]", "[c5]")})
    for _ in range(2):
        assert runner.play(manifests="nodepools", cluster_state="state.yaml").code == 0
    (first,) = github.comments[120:]
    assert github.requests.count(("POST", "/repos/octo/cluster/issues/12/comments")) == 1
    assert not any(method == "PATCH" for method, _ in github.requests), "it said the same"
    runner.commit({"nodepools/pools.yaml": POOLS.replace("[m5]", "[c6i]")})
    runner.play(manifests="nodepools", cluster_state="state.yaml", base="main~2")
    runner.play(manifests="nodepools", title="Staging, too")
    assert [comment["body"].splitlines()[2] for comment in github.comments[120:]] == ["## Shiplap", "## Staging, too"]
    assert "c6i" in first["body"]
    assert "c5" not in first["body"]


def test_a_comment_of_somebody_else_with_the_same_mark_is_left_alone(runner: Runner, github: GitHub) -> None:
    github.comments = [github.written("<!-- shiplap: Shiplap -->\nMine", "someone")]
    runner.play(manifests="nodepools")
    assert github.comments[0]["body"].endswith("Mine")
    assert len(github.comments) == 2


def test_the_token_of_a_person_finds_the_comment_of_that_person(runner: Runner, github: GitHub) -> None:
    github.person = "releaser"
    runner.play(manifests="nodepools", base="main")
    runner.commit({"nodepools/pools.yaml": POOLS.replace("requirements:", "requirments:")})
    runner.play(manifests="nodepools", base="main")
    (comment,) = github.comments
    assert "problem" in comment["body"]


def test_pods_that_lose_their_place_fail_or_warn(runner: Runner) -> None:
    runner.commit({"nodepools/pools.yaml": POOLS.replace("[m5]", "[t3]")})
    told = "these manifests have no place for web/wide"
    done = runner.play(manifests="nodepools", cluster_state="state.yaml")
    assert (done.code, done.steps[-1]) == (1, "Result")
    assert f"::error file=nodepools,title=Shiplap::{told}" in done.log
    assert "left out by the new ones: 1 pod" in done.summary
    done = runner.play(manifests="nodepools", cluster_state="state.yaml", pods_left_out="warn")
    assert done.code == 0
    assert f"::warning file=nodepools,title=Shiplap::{told}" in done.log


def test_warnings_fail_when_strict(runner: Runner) -> None:
    runner.commit({"nodepools/pools.yaml": POOLS.replace("[m5]", "[m5, m99]")})
    assert runner.play(manifests="nodepools").code == 0
    done = runner.play(manifests="nodepools", strict="true")
    assert done.code == 1
    assert "::warning file=nodepools/pools.yaml,line=" in done.log


def test_a_folder_that_is_new_has_nothing_to_be_compared_with(runner: Runner) -> None:
    runner.commit({"more/pools.yaml": POOLS})
    done = runner.play(manifests="more", cluster_state="state.yaml")
    assert done.code == 0
    assert "There is no more at main~1" in done.summary


def test_a_whole_repository_of_manifests_is_compared(runner: Runner) -> None:
    runner.commit({"nodepools/pools.yaml": POOLS.replace("[m5]", "[c5]"), "state.yaml": ""})
    (runner.workspace / "state.txt").write_text(runner.files["state.yaml"])
    done = runner.play(manifests=".", cluster_state="state.txt")
    assert done.code == 0, done.log
    assert "| c5." in done.summary


def test_a_base_that_is_not_there_and_a_state_that_cannot_be_read_are_told(runner: Runner) -> None:
    done = runner.play(manifests="nodepools", cluster_state="state.yaml", base="nowhere")
    assert done.code == 2
    assert "fetch-depth: 0" in done.log
    runner.commit({"bad.yaml": "kind: Pod\nmetadata: [\n"})
    done = runner.play(manifests="nodepools", cluster_state="bad.yaml")
    assert done.code == 2
    assert re.search(r"::error (file=\S*bad.yaml,line=\d+,)?title=Shiplap::", done.log)
    assert "Traceback" not in done.log


def test_links_out_of_the_repository_are_not_followed(runner: Runner, tmp_path: Path) -> None:
    (tmp_path / "secret.yaml").write_text("password: hidden\n")
    (runner.workspace / "nodepools" / "extra.yaml").symlink_to(tmp_path / "secret.yaml")
    done = runner.play(manifests="nodepools")
    assert done.code == 2
    assert "nodepools/extra.yaml is a link out of the repository" in done.log
    assert "hidden" not in done.log


@pytest.mark.parametrize("case", ["fork", "refused", "no token", "no comment"])
def test_without_a_token_that_may_write_the_summary_has_the_report(runner: Runner, github: GitHub, case: str) -> None:
    runner.from_fork = case == "fork"
    github.refuses = 403 if case == "refused" else 0
    inputs = {"no token": {"token": ""}, "no comment": {"comment": "false"}}.get(case, {})
    done = runner.play(manifests="nodepools", **inputs)
    assert done.code == 0
    assert github.comments == []
    assert "2 manifests valid" in done.summary
    assert ("::notice title=Shiplap::no comment is written" in done.log) == (case != "no comment")
    assert "permissions: pull-requests: write" in done.log or case != "refused"


def test_no_token_is_printed_whatever_github_says(runner: Runner, github: GitHub) -> None:
    for status in (401, 403, 422, 500):
        github.refuses = status
        done = runner.play(manifests="nodepools")
        assert TOKEN not in done.log + done.summary
        assert str(status) in done.log
    done = runner.play(manifests="nodepools", token=f"{TOKEN} \x01")
    assert done.code == 2
    assert TOKEN not in done.log


def test_what_manifests_say_is_no_command_of_the_runner_and_no_markup(runner: Runner, github: GitHub) -> None:
    name = "a::error::b%0A <img src=x> @everyone | [x](http://y) `z`"
    runner.commit({"nodepools/pools.yaml": POOLS.replace("{name: general}", f"{{name: {name!r}}}")})
    done = runner.play(manifests="nodepools")
    assert done.code == 2
    assert all(line.startswith(("::error file=nodepools/", "shiplap")) for line in done.log.splitlines()), done.log
    (comment,) = github.comments
    for marked in ("<img", "@everyone", "[x](", " | [", "`z`"):
        assert marked not in comment["body"]


def test_a_long_report_is_cut_in_the_comment_and_whole_in_the_summary(runner: Runner, github: GitHub) -> None:
    many = "".join(f"---\n{POOLS.replace('general', f'pool-{number}')}" for number in range(200))
    runner.commit({"nodepools/pools.yaml": many.replace("requirements:", "requirments:")})
    done = runner.play(manifests="nodepools")
    assert done.code == 2
    assert done.log.count("::error") == 50
    (comment,) = github.comments
    assert len(comment["body"]) < 65_536


def test_the_page_shows_the_version_and_inputs_that_exist(runner: Runner) -> None:
    example, elsewhere = re.findall(r"```yaml\n(.*?)```", (ACTION / "README.md").read_text(), re.DOTALL)
    *_, step = yaml.safe_load(example)["jobs"]["nodes"]["steps"]
    assert step["uses"].endswith(f"/action@v{shiplap.__version__}")
    assert set(step["with"]) <= set(runner.action["inputs"])
    (job,) = yaml.safe_load(elsewhere).values()
    assert any(f"/shiplap-{shiplap.__version__}-" in line for line in job["script"])
