"""Installs of all kinds, synthesised once for the tests of this folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from shiplap.errors import ShiplapError
from shiplap_lab.emulated_aws import cdk
from tests.aws_rules import installs
from tests.aws_rules.cloud_assembly import Template, templates

_MANY = 100
_NETWORKS = 3
_INSTALLS: dict[str, Callable[[Path], object]] = {
    "public": lambda _: installs.PUBLIC,
    "private": lambda _: installs.PRIVATE,
    "many": lambda folder: installs.many_clusters(folder, _MANY, _NETWORKS),
}


@pytest.fixture(scope="session", params=_INSTALLS)
def assembly(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Template]:
    """All templates of one install."""
    try:
        executable = cdk.executable()
    except ShiplapError as error:
        pytest.skip(f"the CDK cannot run: {error}")
    # Read when the CDK's binding is imported.
    os.environ.setdefault("JSII_NODE", str(executable))
    os.environ.setdefault("JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION", "18,20")
    from shiplap_cdk.install_document import read  # noqa: PLC0415 - as above
    from shiplap_cdk.synthesis import build  # noqa: PLC0415 - as above

    folder = tmp_path_factory.mktemp(request.param)
    path = installs.write(folder, _INSTALLS[request.param](folder))
    return templates(Path(build(read(path), outdir=str(folder / "cdk.out")).synth().directory))
