"""Adds to the wheel what its code finds by `shiplap_cdk.shipped_files`: functions, locks of layers, CDK, RBAC, chart.

The commit is written at build time. A wheel that is built from an sdist has the sdist's.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SHIPPED = (
    "charts/shiplap-cluster/**/*.*",
    "docs/kustomization.yaml",
    "docs/rbac*.yaml",
    "functions/*/handler.py",
    "package*.json",
    "requirements/lambda.txt",
)
COMMIT = "commit.txt"


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg] # its parameter is the builder's configuration
    """Hatchling calls it for each wheel, each sdist, and for the editable install, which is the checkout itself."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Choose the files that are added."""
        if version == "editable":
            return
        root = Path(self.root)
        with tempfile.NamedTemporaryFile("w", delete=False) as file:
            file.write(commit(root) + "\n")
        self._written = Path(file.name)
        self._written.chmod(0o644)
        added = {file.name: COMMIT}
        if self.target_name == "wheel":
            files = sorted(path for pattern in SHIPPED for path in root.glob(pattern))
            added |= {str(path): str(path.relative_to(root)) for path in files}
            added = {path: f"shiplap_cdk/shipped/{name}" for path, name in added.items()}
        build_data["force_include"] |= added

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002 - Hatch's
        """Remove the file that held the commit."""
        if version != "editable":
            self._written.unlink()


def commit(root: Path) -> str:
    """The checkout's commit, with a plus sign if files of it were changed; or what an sdist says."""
    written = root / COMMIT
    if written.exists():
        return written.read_text().strip()
    given = os.environ.get("SHIPLAP_COMMIT")
    if given:
        return given
    if not (root / ".git").exists():
        return "unknown"
    changed = _git(root, "status", "--porcelain", "--untracked-files=no")
    return _git(root, "rev-parse", "HEAD") + ("+" if changed else "")


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True)  # noqa: S603, S607
    return done.stdout.strip()
