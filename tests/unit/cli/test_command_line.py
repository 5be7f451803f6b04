"""The `shiplap` command itself: which command is meant, how lists are written, what the exit code says."""

from __future__ import annotations

import functools
import io
import json
import os
import subprocess
import sys
from functools import partial
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from botocore.exceptions import ReadTimeoutError

from shiplap_cdk import shipped_files
from shiplap_cdk.shipped_files import install_of
from shiplap_cli import lazy_commands, main
from shiplap_cli.command_list import COMMANDS
from shiplap_cli.commands.install import template
from shiplap_cli.main import run
from shiplap_lab.dev import dev_session
from tests.builders.pods import pod_object
from tests.commands import Shiplap
from tests.unit.cli.planned_files import CATALOG, POOL
from tests.unit.manifests.manifest_samples import EC2_NODE_CLASS as NODE_CLASS
from tools.command_reference import commands

pod = partial(pod_object, cpu="1", tolerations=[{"operator": "Exists"}])


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_text(json.dumps(pod(name)))
    (tmp_path / "pools.yaml").write_text(yaml.safe_dump(POOL))
    (tmp_path / "classes.yaml").write_text(yaml.safe_dump(NODE_CLASS))
    (tmp_path / "catalog.json").write_text(json.dumps(CATALOG))
    return tmp_path


@pytest.mark.parametrize(
    "arguments",
    [
        ["--cluster-state", "a.json", "b.json", "--manifests", "pools.yaml", "classes.yaml"],
        ["--cluster-state", "a.json", "--cluster-state=b.json", "--manifests=pools.yaml", "classes.yaml"],
        ["--manifests", "pools.yaml", "--manifests", "classes.yaml", "--cluster-state=a.json", "b.json"],
    ],
)
def test_an_option_takes_several_files(
    files: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch, shiplap: Shiplap
) -> None:
    monkeypatch.chdir(files)
    claims = shiplap.json("plan", *arguments, "--catalog", "catalog.json")["nodeClaims"]
    assert sorted(pod for claim in claims for pod in claim["pods"]) == ["default/a", "default/b"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["plan", "--cluster-state", "a.json", "--manifests", "pools.yaml", "-o", "json", "b.json"],
        ["plan", "a.json", "--cluster-state", "a.json", "--manifests", "pools.yaml"],
        ["plan", "--manifests", "pools.yaml", "--cluster-state"],
        ["capacity"],
        ["capacity", "learn"],
        ["explain"],
        ["learn"],
    ],
)
def test_what_cannot_be_meant_is_one_line(
    files: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(files)
    assert run(arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == 1
    assert len(said.err) > len("shiplap: \n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("capacity show", "see `shiplap capacity show --help`"),
        ("explain pod", "see `shiplap explain pod --help`"),
        ("plan --nosuch", "see `shiplap plan --help`"),
        ("plan --diff old", "Option '--diff' requires 2 arguments; see `shiplap plan --help`"),
        ("--nosuch plan", "see `shiplap --help`"),
        ("explain instance-types m99.large", "did you mean m"),
        ("explain instance-types x", "patterns such as 'c7i.*' match by name"),
        ("explain decision s3://", "expected s3://BUCKET/KEY"),
        ("explain decision s3://bucket", "expected s3://BUCKET/KEY"),
        ("status --dev", "start one"),
        ("top --once --kubeconfig nowhere", "this kubeconfig does not exist"),
    ],
)
def test_an_error_says_what_would_be_right(
    arguments: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(dev_session, "find_session", functools.partial(dev_session.find_session, tmp_path))
    assert run(arguments.split()) == 2
    assert said in capsys.readouterr().err


def test_only_those_who_take_files_are_told_of_them(
    files: Path, monkeypatch: pytest.MonkeyPatch, shiplap: Shiplap
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(files / "no-kubeconfig"))
    assert "or give the cluster's objects by --cluster-state" in shiplap.error("plan")
    said = shiplap.error("top", "--once")
    assert "name a kubeconfig by --kubeconfig or $KUBECONFIG" in said
    assert "--cluster-state" not in said


@pytest.mark.parametrize("arguments", ["plan -f - --manifests pools.yaml", "validate -", "migrate convert -"])
def test_an_empty_pipe_is_bad_input(
    files: Path, arguments: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a command leaves it that fails before it has written anything."""
    monkeypatch.chdir(files)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\n")))
    assert run(arguments.split()) == 2
    said = capsys.readouterr()
    assert "stdin: is empty; see whether the command before the pipe has failed" in said.out + said.err


def test_pods_without_memory_among_others_are_planned_without_a_warning(
    files: Path, monkeypatch: pytest.MonkeyPatch, shiplap: Shiplap
) -> None:
    """With real types, whose memory in bytes is large; warnings are errors here."""
    monkeypatch.chdir(files)
    lean, whole = pod("lean"), pod("whole")
    whole["spec"]["containers"][0]["resources"]["requests"]["memory"] = "1Gi"  # type: ignore[index]
    (files / "mixed.json").write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": [lean, whole]}))
    (files / "real.json").write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": [POOL, NODE_CLASS]}))
    assert shiplap.json("plan", "-f", "mixed.json", "--manifests", "real.json")["unschedulable"] == []


@pytest.mark.parametrize("quantity", ["1e99", "100E", "9999999Ei", "1" * 5000])
def test_amounts_beyond_any_node_are_planned_as_such(
    files: Path, quantity: str, monkeypatch: pytest.MonkeyPatch, shiplap: Shiplap
) -> None:
    monkeypatch.chdir(files)
    huge = pod("a")
    huge["spec"]["containers"] = [{"name": str(n), "resources": {"requests": {"memory": quantity}}} for n in range(3)]  # type: ignore[index]
    (files / "huge.json").write_text(json.dumps(huge))
    asked = ["plan", "--cluster-state", "huge.json", "--manifests", "pools.yaml", "--catalog", "catalog.json"]
    (left_out,) = shiplap.json(*asked, code=1)["unschedulable"]
    assert left_out["nearest"]["resource"] == "memory"


MAIN = [sys.executable, "-c", "from shiplap_cli.main import main; main()"]


@pytest.mark.parametrize("arguments", [["validate", "-"], ["--help"], ["--version"]])
def test_an_answer_that_cannot_be_written_is_one_line(arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(  # noqa: S603
            [*MAIN, *arguments],
            input=json.dumps(NODE_CLASS),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (
        1,
        "shiplap: the answer could not be written: No space left on device\n",
    )


@pytest.mark.parametrize(
    ("closed", "arguments", "code", "said"),
    [
        ("<&-", "validate -", 2, "shiplap: stdin: cannot be read: it is closed\n"),
        (">&-", "--version", 1, "shiplap: the answer could not be written: standard output is closed\n"),
        ("2>&-", "learn", 2, ""),
    ],
)
def test_a_closed_stream_is_no_traceback(closed: str, arguments: str, code: int, said: str) -> None:
    command = f'"$0" -c "$1" {arguments} {closed}'
    done = subprocess.run(  # noqa: S603
        ["/bin/sh", "-c", command, sys.executable, MAIN[2]],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (code, said)


def test_a_request_without_an_answer_is_not_blamed_on_the_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object) -> int:
        raise ReadTimeoutError(endpoint_url="http://localhost/functions")

    monkeypatch.setattr(main, "_invoke", fails)
    assert run(["status"]) == 2
    assert capsys.readouterr().err == 'shiplap: Read timeout on endpoint URL: "http://localhost/functions"\n'


def test_a_file_that_cannot_be_made_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lab", "simulate", "mixed", "--trace", "/nowhere/trace.jsonl"]) == 2
    assert capsys.readouterr().err == "shiplap: /nowhere/trace.jsonl: No such file or directory\n"


def test_names_that_the_terminal_cannot_show_are_escaped(files: Path) -> None:
    (files / "a.json").write_text(json.dumps(pod("ä-☃")))
    asked = ["--cluster-state", "a.json", "--manifests", "pools.yaml", "--catalog", "catalog.json"]
    done = subprocess.run(  # noqa: S603
        [*MAIN, "plan", *asked],
        cwd=files,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert r"\xe4-\u2603" in done.stdout


def test_a_miss_without_a_resource_names_no_nearest(
    files: Path, monkeypatch: pytest.MonkeyPatch, shiplap: Shiplap
) -> None:
    monkeypatch.chdir(files)
    elsewhere = pod("a")
    elsewhere["spec"]["nodeSelector"] = {"topology.kubernetes.io/zone": "z9"}  # type: ignore[index]
    (files / "a.json").write_text(json.dumps(elsewhere))
    asked = ["plan", "--cluster-state", "a.json", "--manifests", "pools.yaml", "--catalog", "catalog.json"]
    (left_out,) = shiplap.json(*asked, code=1)["unschedulable"]
    assert left_out.keys() == {"pod", "message"}


def test_the_page_of_commands_has_every_command() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "commands.md").read_text()
    assert [name for name in COMMANDS if f"\n## shiplap {name}" not in page] == []


@pytest.mark.parametrize("arguments", ["plan --help", "--help", "explain instance-types -o json"])
def test_a_reader_that_has_seen_enough_is_no_failure(arguments: str) -> None:
    command = f'set -o pipefail; "$0" -c "$1" {arguments} | head -n 1'
    done = subprocess.run(  # noqa: S603
        ["/bin/bash", "-c", command, sys.executable, MAIN[2]], capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_every_command_shows_an_example() -> None:
    for command in commands():
        examples = [part for part in command.help.split("\n\n") if part.startswith("Example:")]
        assert any(f"shiplap {command.name}" in example for example in examples), command.name


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        ("lab simulate", "lab"),
        ("lab dev", "lab"),
        ("install template", "cdk"),
        ("install terraform", "cdk"),
        ("plan", "lab"),
    ],
)
def test_a_package_of_an_extra_that_is_not_installed_is_told(
    command: str, extra: str, monkeypatch: pytest.MonkeyPatch, shiplap: Shiplap
) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError("No module named 'moto.ec2'", name="moto.ec2")

    monkeypatch.setattr(lazy_commands, "importlib", SimpleNamespace(import_module=missing))
    monkeypatch.setattr(
        shipped_files,
        "distribution",
        lambda _: SimpleNamespace(read_text=lambda _: '{"url": "file:///tmp/a.whl", "archive_info": {}}'),
    )
    told = shiplap.error(*command.split())

    command_line = f"needs moto.ec2, which is not installed: pip install 'shiplap[{extra}] @ file:///tmp/a.whl'"
    assert f"{command}: {command_line}" in told
    helped = " ".join(shiplap.page(*command.split(), "--help").split())
    assert f"It {command_line}" in helped


def test_an_extra_of_an_installation_that_no_installer_noted_is_told_without_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def absent(name: str) -> None:
        raise PackageNotFoundError(name)

    for found in (absent, lambda _: SimpleNamespace(read_text=lambda _: None)):
        monkeypatch.setattr(shipped_files, "distribution", found)
        assert install_of("cdk") == "pip install 'shiplap[cdk] @ file:///path/to/WHEEL'"


def test_a_package_that_a_command_misses_while_it_runs_is_told(
    monkeypatch: pytest.MonkeyPatch, shiplap: Shiplap
) -> None:
    def command() -> None:
        raise ModuleNotFoundError("No module named 'jsii'", name="jsii")

    monkeypatch.setattr(template, "template", command)

    assert "install template: needs jsii, which is not installed" in shiplap.error("install", "template")


def test_a_module_of_our_own_that_is_missing_is_a_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError("No module named 'shiplap_lab.nowhere'", name="shiplap_lab.nowhere")

    monkeypatch.setattr(lazy_commands, "importlib", SimpleNamespace(import_module=missing))
    with pytest.raises(ModuleNotFoundError):
        run(["lab", "simulate"])


@pytest.mark.parametrize("arguments", [["status", "-o", "json", "fleet"], ["status", "nosuch"]])
def test_a_command_of_a_group_comes_before_its_options(arguments: list[str], shiplap: Shiplap) -> None:
    assert f"unexpected extra argument(s) ({arguments[-1]}); see `shiplap status --help`" in shiplap.error(*arguments)


def test_what_a_command_imports_is_imported_when_it_is_used() -> None:
    """All commands are known by their lines of the list alone."""
    asked = "import sys; from shiplap_cli.main import run; run(['--help']); run(['explain', '--help'])"
    seen = f"{asked}; print([name for name in sys.modules if name.startswith('shiplap_cli.commands')])"
    done = subprocess.run([sys.executable, "-c", seen], capture_output=True, text=True, check=True)  # noqa: S603
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_command_waits_for_no_package_of_another(files: Path) -> None:
    asked = "import sys; from shiplap_cli.main import run; run(['validate', 'pools.yaml', 'classes.yaml'])"
    seen = f"{asked}; print({{'numpy', 'botocore', 'jsii', 'moto'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", seen], capture_output=True, text=True, check=True, cwd=files)  # noqa: S603
    assert done.stdout.splitlines()[-1] == "set()"


def test_top_needs_no_extra() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", "import shiplap_cli.commands.top.top, sys; print('greenlet' in sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout == "False\n"


@pytest.mark.parametrize(
    ("variables", "told"),
    [({}, "set AWS_REGION to the install's region"), ({"AWS_PROFILE": "nobody"}, "aws configure list-profiles")],
    ids=["no Region", "no such profile"],
)
def test_a_region_or_a_profile_that_is_not_there_is_told(
    variables: dict[str, str], told: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, shiplap: Shiplap
) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert told in shiplap.error("install", "uninstall", "--identities", "--install", "shiplap", "--dry-run")
