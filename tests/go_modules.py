"""Upstream's own files, read where Go keeps modules: pinned by version and sum, downloaded by Go, never committed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.registries import leave_out, leave_out_if_unreachable

KARPENTER = ("github.com/aws/karpenter-provider-aws@v1.15.2", "h1:RGw64PB2ROUHZIUhBqjO78l3zJ9YctnWeullrr4cxYI=")
"""Karpenter's AWS provider: its examples and CRDs. Only files are read, so the Go that it asks for is not needed."""
KARPENTER_CORE = ("sigs.k8s.io/karpenter@v1.15.0", "h1:5SEptlAvsOZbNg4qg8OSdF1qi6BEZHZLA020nXY7jGw=")
"""Karpenter's controllers and the types of its own API. The provider asks for v1.15.1, whose CRDs it brings along."""
KUBELET = ("k8s.io/kubelet@v0.37.2", "h1:AaRApKAcqmMD4pxmsxdghJHbTNfOxYOIlPCARw8+01A=")
"""The kubelet's configuration types."""

KUBERNETES = "1.37"
"""The minor version of Kubernetes whose types are compared with ours."""

_TIMEOUT_S = 300


@cache
def folder_of(module: tuple[str, str]) -> Path:
    """Return the folder into which Go has unpacked a module, from its cache or from the registry.

    Skips the test where neither has it, and where there is no Go; fails it there in CI.
    """
    name, wanted = module
    if shutil.which("go") is None:
        leave_out("there is no Go, which downloads what this test reads")
    leave_out_if_unreachable(_downloaded(name).problem, name)
    folder, its_sum = download(name)
    assert its_sum == wanted, f"{name} is not what it was"
    return folder


def kubernetes_module(name: str) -> tuple[str, str]:
    """A module such as k8s.io/api, at the version and with the sum that `make e2e` builds."""
    sums = (Path(__file__).parent / "e2e" / "versions" / KUBERNETES / "go.sum").read_text()
    for line in sums.splitlines():
        path, version, wanted = line.split()
        if path == name and not version.endswith("/go.mod"):
            return f"{path}@{version}", wanted
    raise KeyError(name)


def download(name: str) -> tuple[Path, str]:
    """The folder of a module such as `k8s.io/api@v0.37.2`, downloaded if it is not there, and its sum."""
    found = _downloaded(name)
    assert found.folder is not None, found.problem
    return found.folder, found.sum


class _Download(NamedTuple):
    """Go's answer: a folder and its sum, or the reason why there is no folder."""

    folder: Path | None
    sum: str = ""
    problem: str = ""


@cache
def _downloaded(name: str) -> _Download:
    """Asked once in a process, also where there is no answer: hundreds of tests would wait for it."""
    with tempfile.TemporaryDirectory() as outside:  # a go.mod would have its own opinion of versions
        done = subprocess.run(  # noqa: S603 - fixed words
            ["go", "mod", "download", "-json", name],  # noqa: S607 - wherever Go is
            cwd=outside,
            env={**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": "", "GONOSUMDB": "*"},
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    answer = json.loads(done.stdout or "{}")
    problem = answer.get("Error") or done.stderr
    if done.returncode and "requires go >=" not in problem:
        return _Download(None, problem=problem)
    # Go names no folder of a module that asks for a newer Go, and unpacks it all the same.
    folder = Path(answer.get("Dir") or Path(answer["Zip"]).parents[4 + name.count("/")] / name)
    return _Download(folder, answer["Sum"])
