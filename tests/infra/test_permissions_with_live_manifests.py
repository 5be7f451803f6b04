"""The roles of an install that reads manifests from a cluster, simulated: each function may do what it asks for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from shiplap_cdk.install_document import read

pytest.importorskip("tests.nodejs")  # before the CDK's binding is imported

from shiplap_cdk.synthesis import build
from tests.aws_rules import cloud_assembly
from tests.infra.synthesised import FUNCTIONS
from tests.permissions.evaluator import allowed
from tests.permissions.recording import KubernetesRequest, Recording
from tests.permissions.roles import Roles
from tests.permissions.story import told

pytestmark = pytest.mark.thorough

WRITTEN = """\
region: eu-west-1
clusters:
  - name: production
    manifests: cluster
    audit: true
    zonalShift: true
    nodeRoles: [shiplap-node-production]
    imageParameters: [/images/golden]
    volumeKeys: [1234abcd-12ab-34cd-56ef-1234567890ab, alias/nodes]
"""
UNTOLD = {("delete", "karpenter.sh", "nodeclaims"): "the object of a claim that ended by a command (shown_claims)"}
DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("live") / "shiplap.yaml"
    path.write_text(WRITTEN)
    return path


@pytest.fixture(scope="module")
def roles(written: Path) -> Roles:
    app = build(read(written), outdir=str(written.parent / "cdk.out"))
    return Roles(cloud_assembly.templates(Path(app.synth().directory)))


@pytest.fixture(scope="module")
def recording(written: Path, roles: Roles) -> Iterator[Recording]:
    with told(read(written), roles, tuple(roles.functions()), written.parent) as recording:
        yield recording


@pytest.mark.parametrize("function", FUNCTIONS)
def test_each_function_may_do_what_it_asks_for(roles: Roles, recording: Recording, function: str) -> None:
    statements = roles.statements(function)
    assert sorted(asked for asked in recording.aws[function] if not allowed(statements, asked)) == []


def test_the_story_is_long_enough_to_prove_something(recording: Recording) -> None:
    asked = {request.action for requests in recording.aws.values() for request in requests}
    assert {"ec2:CreateFleet", "ec2:TerminateInstances", "iam:PassRole", "kms:CreateGrant", "s3:PutObject"} <= asked


def test_the_rbac_manifests_grant_what_the_functions_ask_of_the_api_server(recording: Recording) -> None:
    asked = {request for requests in recording.kubernetes.values() for request in requests}
    assert asked - granted("rbac.yaml") - granted("rbac-cluster-manifests.yaml") == set()
    assert granted("rbac-cluster-manifests.yaml") - asked == set(UNTOLD)


def granted(name: str) -> set[KubernetesRequest]:
    roles = [item for item in yaml.safe_load_all((DOCS / name).read_text()) if item["kind"] == "ClusterRole"]
    return {
        (verb, group, resource)
        for role in roles
        for rule in role["rules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
