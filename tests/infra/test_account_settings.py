"""Tests the settings of an account for every stack: a permissions boundary, and a bootstrap with its own qualifier."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import pytest

from tests.aws_rules import installs

pytest.importorskip("tests.nodejs")  # before the CDK's binding is imported

from shiplap_cdk.install_document import read
from shiplap_cdk.synthesis import build
from shiplap_cli.main import run

ARN = "arn:aws:iam::123456789012:policy/team/developers"


def written(folder: Path, **fields: Any) -> Path:
    """An install of two networks, so that there are roles in several nested stacks."""
    install = installs.many_clusters(folder, count=2, networks=2)
    assert isinstance(install, dict)
    own = {"name": "own", "manifests": str(installs.MANIFESTS / "production"), "audit": True}
    named = [
        {**cluster, "vpc": cluster["vpc"] | {"name": f"n{index}"}} for index, cluster in enumerate(install["clusters"])
    ]
    return installs.write(folder, {"region": "eu-west-1", "clusters": [own, *named], **fields})


def templates(folder: Path, **fields: Any) -> list[dict[str, Any]]:
    app = build(
        read(written(folder, **fields)), outdir=str(folder / "cdk.out"), builtin_cloud_formation_validation=False
    )
    assembly = Path(app.synth().directory)
    return [json.loads(path.read_text()) for path in sorted(assembly.glob("*.template.json"))]


def boundaries(found: list[dict[str, Any]]) -> list[Any]:
    roles = [item for each in found for item in each["Resources"].values() if item["Type"] == "AWS::IAM::Role"]
    assert len(roles) > 15
    return [item["Properties"].get("PermissionsBoundary") for item in roles]


def test_every_role_of_every_stack_has_the_boundary_that_is_named(tmp_path: Path) -> None:
    found = templates(tmp_path, permissionsBoundary="team/developers", bootstrapQualifier="corp")

    own = ["arn:aws:iam::", {"Ref": "AWS::AccountId"}, ":policy/team/developers"]
    assert {json.dumps(each) for each in boundaries(found)} == {json.dumps({"Fn::Join": ["", own]})}
    text = json.dumps(found)
    assert "cdk-corp-assets-" in text
    assert "hnb659fds" not in text
    (main,) = [each for each in found if "BootstrapVersion" in each.get("Parameters", {})]
    assert main["Parameters"]["BootstrapVersion"]["Default"] == "/cdk-bootstrap/corp/version"


@pytest.mark.usefixtures("layers_built")
def test_a_plain_template_has_both_and_says_what_its_region_lacks(tmp_path: Path) -> None:
    arn = ARN.replace("arn:aws:", "arn:aws-cn:")
    settings = written(tmp_path, region="cn-north-1", permissionsBoundary=arn, bootstrapQualifier="corp")
    with contextlib.redirect_stdout(io.StringIO()) as said:
        code = run(["install", "template", "--settings", str(settings), "--to", str(tmp_path / "out"), "-o", "json"])
    told = json.loads(said.getvalue())
    written_files = [tmp_path / "out" / "template.json", *(tmp_path / "out" / "assets").glob("*.json")]
    found = [json.loads(path.read_text()) for path in written_files]

    assert code == 0
    assert set(boundaries(found)) == {arn}
    assert told["bucket"] == "cdk-corp-assets-${AWS::AccountId}-${AWS::Region}"
    assert "aws s3 sync" in told["commands"][0]
    assert told["commands"][0].endswith(" s3://cdk-corp-assets-ACCOUNT-REGION/")
    assert [remark.partition(",")[0] for remark in told["remarks"]] == [
        "left out: tags of event source mappings",
        "left out: RecursiveLoop of functions",
    ]


def test_without_them_no_role_has_a_boundary_and_the_bootstrap_is_the_cdks(tmp_path: Path) -> None:
    found = templates(tmp_path)

    assert set(boundaries(found)) == {None}
    assert "cdk-hnb659fds-assets-" in json.dumps(found)
