"""Tests the search for the programs of a control plane, and the message when they are missing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.e2e import programs


def test_a_folder_that_was_named_is_used_if_it_is_whole(tmp_path: Path) -> None:
    for name in programs.PROGRAMS:
        (tmp_path / name).touch(mode=0o755)
    assert programs.find({"SHIPLAP_KUBE_BIN": str(tmp_path)}) == tmp_path


def test_what_a_named_folder_lacks_is_said(tmp_path: Path) -> None:
    for name in programs.PROGRAMS:
        (tmp_path / name).touch(mode=0o755)
    (tmp_path / "kwok").chmod(0o644)
    (tmp_path / "etcd").unlink()
    with pytest.raises(programs.ProgramsMissing, match="lacks etcd, kwok"):
        programs.find({"SHIPLAP_KUBE_BIN": str(tmp_path)})


def test_what_is_not_built_is_not_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "CACHE", tmp_path)
    with pytest.raises(programs.ProgramsMissing, match="make e2e"):
        programs.find({})


def test_without_go_nothing_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "CACHE", tmp_path)
    monkeypatch.delenv("SHIPLAP_KUBE_BIN", raising=False)
    monkeypatch.setattr(programs.shutil, "which", lambda *_, **__: None)
    with pytest.raises(programs.ProgramsMissing, match="no Go"):
        programs.build()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ('go: k8s.io/api@v0.36.3: Get "...": dial tcp: lookup proxy: no such host', 3),
        ("go: k8s.io/api@v0.36.3: reading ...: 503 Service Unavailable", 3),
        ("main.go:3: undefined: x", 1),
    ],
)
def test_a_download_that_is_impossible_is_told_from_a_build_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], said: str, code: int
) -> None:
    go = tmp_path / "go"
    go.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{said}\nEND\nexit 1\n")
    go.chmod(0o755)
    monkeypatch.setattr(programs, "CACHE", tmp_path / "cache")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("SHIPLAP_KUBE_BIN", raising=False)
    assert programs.main() == code
    assert said in capsys.readouterr().err
    assert list((tmp_path / "cache").iterdir()) == []


def test_what_is_built_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = tmp_path / "go"
    go.write_text(
        '#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\nfor name in server '
        + " ".join(name for name in programs.PROGRAMS if name != "etcd")
        + '; do touch "$2$name"; chmod +x "$2$name"; done\n'
    )
    go.chmod(0o755)
    monkeypatch.setattr(programs, "CACHE", tmp_path / "cache")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("SHIPLAP_KUBE_BIN", raising=False)
    folder = programs.build()
    assert {path.name for path in folder.iterdir()} == set(programs.PROGRAMS)
    assert programs.find({}) == folder == programs.build()


@pytest.mark.parametrize("minor", programs.VERSIONS)
def test_each_version_has_a_module_of_its_own(minor: str) -> None:
    asked = {"SHIPLAP_KUBE_VERSION": minor}
    assert programs.version(asked).startswith(f"v{minor}.")
    module = (programs.HERE / "versions" / minor / "go.mod").read_text()
    staging = set(re.findall(r"=> k8s.io/\S+ (v\S+)", module))
    assert staging == {programs.version(asked).replace("v1.", "v0.")}


def test_a_program_that_a_version_does_not_pin_is_the_newest_ones() -> None:
    for minor in programs.VERSIONS:
        found = programs._packages({"SHIPLAP_KUBE_VERSION": minor})
        own = programs.HERE / "versions" / minor
        borrowed = [package for module, packages in found.items() if module != own for package in packages]
        assert {package for packages in found.values() for package in packages} == set(programs.PROGRAMS.values())
        assert borrowed in ([], [programs.PROGRAMS["kwok"]])


def test_the_newest_version_is_the_default() -> None:
    assert programs.minor({}) == programs.minor({"SHIPLAP_KUBE_VERSION": ""}) == "1.36"


def test_builds_of_versions_do_not_replace_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "CACHE", tmp_path)
    newest = tmp_path / programs._key({})
    newest.mkdir()
    for name in programs.PROGRAMS:
        (newest / name).touch(mode=0o755)
    assert programs.find({}) == newest
    with pytest.raises(programs.ProgramsMissing, match=r"Kubernetes 1\.33 are not built"):
        programs.find({"SHIPLAP_KUBE_VERSION": "1.33"})


def test_a_version_without_a_module_is_refused() -> None:
    with pytest.raises(programs.ProgramsMissing, match=r"no Kubernetes 1\.9 .* 1\.33, 1\.34"):
        programs.find({"SHIPLAP_KUBE_VERSION": "1.9"})


def test_the_page_on_limits_lists_the_releases() -> None:
    page = (programs.HERE.parents[1] / "docs" / "reference" / "limits.md").read_text()
    listed = dict(re.findall(r"^\| (1\.\d+) \| (1\.\d+\.\d+) \|", page, re.MULTILINE))
    assert listed == {
        minor: programs.version({"SHIPLAP_KUBE_VERSION": minor}).removeprefix("v") for minor in programs.VERSIONS
    }


def test_a_long_build_tells_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    go = tmp_path / "go"
    go.write_text(
        "#!/bin/sh\nfor n in $(seq 450); do echo k8s.io/api/v$n >&2; done\necho '# k8s.io/x: broken' >&2; exit 1\n"
    )
    go.chmod(0o755)
    monkeypatch.setattr(programs, "CACHE", tmp_path / "cache")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("SHIPLAP_KUBE_BIN", raising=False)

    assert programs.main() == 1

    said = capsys.readouterr().err
    assert "compiling" in said
    assert "  200 packages\n  400 packages\n" in said
    assert "# k8s.io/x: broken" in said
    assert "k8s.io/api/v7" not in said


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Go module, and a Go that says how it was called, or fails with the words of the file `says` in its folder."""
    go = tmp_path / "go"
    go.write_text('#!/bin/sh\n[ -e says ] && cat says >&2 && exit 1\necho "$GOTOOLCHAIN $*"\n')
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    folder = tmp_path / "module"
    folder.mkdir()
    (folder / "go.mod").write_text("module example\n\ngo 1.26.9\n")
    return folder


def test_go_runs_with_the_toolchain_that_the_module_names(module: Path, tmp_path: Path) -> None:
    assert programs.run_go(["build", "."], module) == "go1.26.9+auto build .\n"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "says").write_text("main.go:3: undefined: x")
    with pytest.raises(programs.BuildFailed, match="undefined: x"):
        programs.run_go(["build", "."], module, folder=tmp_path / "other")
    (module / "says").write_text("dial tcp: no such host")
    with pytest.raises(programs.ProgramsMissing, match="the Go modules of module cannot be downloaded"):
        programs.run_go(["build", "."], module)
    (module / "go.mod").write_text("module example\n")
    with pytest.raises(programs.BuildFailed, match=r"module/go\.mod lacks"):
        programs.run_go(["build", "."], module)
