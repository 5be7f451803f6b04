"""Roles of stacks with optional settings."""

from __future__ import annotations

from pathlib import Path

from shiplap_cdk.install_document import read
from shiplap_cdk.synthesis import build
from tests.aws_rules import cloud_assembly
from tests.permissions.roles import Roles
from tests.permissions.story import manifests

PLAIN = """\
region: eu-west-1
clusters:
  - name: production
    manifests: manifests
    audit: true
    zonalShift: true
"""


def written(folder: Path, text: str) -> Path:
    (folder / "manifests").mkdir()
    (folder / "manifests" / "all.yaml").write_text(manifests())
    path = folder / "shiplap.yaml"
    path.write_text(text)
    return path


def roles_of(path: Path) -> Roles:
    return Roles(
        cloud_assembly.templates(Path(build(read(path), outdir=str(path.parent / "cdk.out")).synth().directory))
    )
