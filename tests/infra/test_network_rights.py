"""Rights inside a VPC: the code of each function of each network is denied interfaces, under its own name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.aws_rules import cloud_assembly, installs
from tests.permissions.evaluator import allowed, of
from tests.permissions.roles import Roles

pytest.importorskip("tests.nodejs")  # before the CDK's binding is imported

from shiplap_cdk.constructs.function_roles import CLUSTER_FUNCTIONS
from shiplap_cdk.install_document import read
from shiplap_cdk.synthesis import build

_ACTION = "ec2:CreateNetworkInterface"


@pytest.fixture(scope="module")
def roles(tmp_path_factory: pytest.TempPathFactory) -> Roles:
    """An install of two networks inside VPCs and one outside."""
    folder = tmp_path_factory.mktemp("networks")
    install: Any = installs.many_clusters(folder, count=2, networks=2)
    for number, cluster in enumerate(install["clusters"]):
        cluster["vpc"] = {**cluster["vpc"], "name": f"n{number}"}
    outside = {"name": "outside", "manifests": str(installs.MANIFESTS / "production")}
    path = installs.write(folder, {**install, "clusters": [outside, *install["clusters"]]})
    app = build(read(path), outdir=str(folder / "cdk.out"), builtin_cloud_formation_validation=False)
    return Roles(cloud_assembly.templates(Path(app.synth().directory)))


def may(roles: Roles, function: str, source: str) -> bool:
    arn = f"arn:aws:lambda:eu-west-1:123456789012:function:{source}"
    return allowed(roles.statements(function), of(_ACTION, "*", {"lambda:SourceFunctionArn": arn}))


def test_functions_of_every_network_are_denied_interfaces_under_their_own_names(roles: Roles) -> None:
    inside = [f"{name}-n{number}" for name in CLUSTER_FUNCTIONS for number in range(2)]

    assert set(inside) < set(roles.functions())
    for function in inside:
        assert allowed(roles.statements(function), of(_ACTION, "*", {}))
        assert not may(roles, function, f"shiplap-{function}")
        assert may(roles, function, f"shiplap-{function[:-1]}9"), "another function is not ours to bind"


def test_functions_outside_of_networks_have_no_right_to_interfaces(roles: Roles) -> None:
    for function in [*CLUSTER_FUNCTIONS, "interrupt", "catalog", "widget", "audit"]:
        assert not allowed(roles.statements(function), of(_ACTION, "*", {}))
        assert not [each for each in roles.statements(function) if each["Effect"] == "Deny"]
