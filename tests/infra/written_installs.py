"""A shiplap.yaml as a test writes it, and what is read from it or refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from shiplap.errors import InvalidInput
from shiplap_cdk.install_document import InstallConfig, read

WRITTEN = """\
region: eu-west-1
clusters:
  - name: edge
    manifests: manifests
"""


def written(folder: Path, text: str) -> InstallConfig:
    path = folder / "shiplap.yaml"
    path.write_text(text)
    return read(path)


def refusal(folder: Path, text: str) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        written(folder, text)
    return caught.value
