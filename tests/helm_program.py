"""Helm, for tests of the chart."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def helm(*arguments: str, values: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run `helm` with a values.yaml of this text, written to the folder; skip the test where Helm is missing."""
    path = os.pathsep.join([os.environ["PATH"], str(ROOT / "build" / "helm")])
    program = shutil.which("helm", path=path)
    if program is None:
        pytest.skip("there is no helm; `make helm` builds it")
    file = folder / "values.yaml"
    file.write_text(values)
    command = [program, *arguments, "--kube-version", "1.33", "--values", str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own
