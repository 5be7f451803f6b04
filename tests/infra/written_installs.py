"""A shiplap.yaml as a test writes it, and what is read from it or refused."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest

from shiplap.errors import InvalidInput
from shiplap.manifests.files.documents import read_documents
from shiplap_cdk.install_document import InstallConfig, read
from shiplap_cdk.install_schema import install_schema

WRITTEN = """\
region: eu-west-1
clusters:
  - name: edge
    manifests: manifests
"""


def written(folder: Path, text: str) -> InstallConfig:
    """What is read; its schema, by which editors check it, takes the text as well."""
    path = folder / "shiplap.yaml"
    path.write_text(text)
    install = read(path)
    (document,) = read_documents(path)
    jsonschema.validate(document.data, install_schema())
    return install


def refusal(folder: Path, text: str) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        written(folder, text)
    return caught.value
