"""The install beside this file, synthesised once for all tests that look at it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from shiplap_cdk.artifacts import layers
from tests.aws_rules import cloud_assembly
from tests.infra.synthesised import INSTALL

if TYPE_CHECKING:  # the CDK's binding starts Node.js when it is imported
    from aws_cdk import App
    from aws_cdk.assertions import Template


@pytest.fixture(scope="session")
def layers_built() -> None:
    """For tests of programs and commands, whose own errors do not say that a registry is out of reach."""
    layers.dependencies(layers.LAMBDA)


@pytest.fixture(scope="session")
def app(tmp_path_factory: pytest.TempPathFactory) -> App:
    from shiplap_cdk.install_document import read  # noqa: PLC0415 - as above
    from shiplap_cdk.synthesis import build  # noqa: PLC0415 - as above

    return build(read(INSTALL), outdir=str(tmp_path_factory.mktemp("cdk.out")))


@pytest.fixture(scope="session")
def template(app: App) -> Template:
    from aws_cdk.assertions import Template  # noqa: PLC0415 - as above

    return Template.from_stack(app.node.find_child("Shiplap"))


@pytest.fixture(scope="session")
def templates(app: App) -> list[cloud_assembly.Template]:
    """All templates of the install, nested ones too, with references resolved."""
    return cloud_assembly.templates(Path(app.synth().directory))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the manifests of one cluster."""
    manifests = tmp_path / "manifests"
    manifests.mkdir()
    (manifests / "nodes.yaml").write_text((INSTALL.parent / "manifests" / "edge" / "nodes.yaml").read_text())
    return tmp_path
