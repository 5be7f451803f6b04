"""`shiplap install template`: the CDK's stack without the CDK's bucket, and all that its templates refer to."""

from __future__ import annotations

import contextlib
import io
import json
import re
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import hcl2
import pytest
import yaml

from tests.commands import Shiplap
from tests.infra.synthesised import INSTALL

pytest.importorskip("tests.nodejs")  # before the CDK's binding is imported

from shiplap_cdk.plain_template import BUCKET
from shiplap_cli.main import run

if TYPE_CHECKING:
    from aws_cdk import App

ROOT = Path(__file__).parents[2]
BUCKET_NAME = "my-assets-${AWS::AccountId}-${AWS::Region}"
TERRAFORM = ROOT / "examples" / "terraform" / "main.tf"
_ASSET = re.compile(r"[0-9a-f]{64}\.(?:zip|json)")


@pytest.fixture(scope="module")
def folder(layers_built: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the command's output, in which an earlier synthesis and a file of the user's were."""
    del layers_built
    to = tmp_path_factory.mktemp("template") / "out"
    (to / "assets").mkdir(parents=True)
    (to / "assets" / "old.zip").write_text("")
    (to / "README.md").write_text("ours")
    with contextlib.redirect_stdout(io.StringIO()) as said:
        code = run(
            ["install", "template", "--settings", str(INSTALL), "--to", str(to), "--bucket", BUCKET_NAME, "-o", "json"]
        )
    assert code == 0
    (to / "said.json").write_text(said.getvalue())
    return to


def test_the_stack_is_the_cdks_but_for_the_bucket_of_its_assets(folder: Path, app: App) -> None:
    deployed = (Path(app.synth().directory) / "Shiplap.template.json").read_text()
    expected = json.loads(deployed.replace("cdk-hnb659fds-assets-", "my-assets-"))
    del expected["Rules"], expected["Parameters"]["BootstrapVersion"]
    written = json.loads((folder / "template.json").read_text())

    # Nested templates and functions name the bucket, so hashes of the ones and of the others' versions differ.
    hashes = re.compile(r"(?<=CurrentVersion)[0-9A-F]{8}[0-9a-f]{32}|[0-9a-f]{64}(?=\.json)")
    found = [hashes.sub("", json.dumps(each)) for each in (written, expected)]
    assert json.loads(found[0]) == {name: section for name, section in json.loads(found[1]).items() if section}


def test_every_asset_that_a_template_refers_to_is_in_the_folder_and_no_other(folder: Path) -> None:
    assets = {path.name for path in (folder / "assets").iterdir()}
    templates = [folder / "template.json", *(folder / "assets").glob("*.json")]
    referred = {name for path in templates for name in _ASSET.findall(path.read_text())}

    assert len(assets) > 10
    assert referred == assets
    assert (folder / "README.md").read_text() == "ours"


def test_functions_are_packed_with_their_handlers_at_the_top(folder: Path) -> None:
    written = json.loads((folder / "template.json").read_text())["Resources"]
    functions = [item["Properties"] for item in written.values() if item["Type"] == "AWS::Lambda::Function"]

    assert functions
    for item in functions:
        assert item["Code"]["S3Bucket"] == {"Fn::Sub": BUCKET_NAME.replace("${AWS::Region}", "eu-west-1")}
        with zipfile.ZipFile(folder / "assets" / item["Code"]["S3Key"]) as archive:
            assert archive.namelist() == ["handler.py"]


def test_what_is_told_can_be_run(folder: Path) -> None:
    told = json.loads((folder / "said.json").read_text())

    assert told["stack"] == "Shiplap"
    assert {Path(path).name for path in told["rbac"]} == {path.name for path in folder.glob("*.yaml")}
    upload, deploy, grant = told["commands"]
    assert upload == f"aws s3 sync {folder}/assets s3://my-assets-ACCOUNT-REGION/"
    assert "--s3-bucket my-assets-ACCOUNT-REGION " in deploy
    assert grant == f"kubectl apply -f {folder}/rbac.yaml"


@pytest.mark.parametrize("bucket", ["Upper", "a", "with space", "${AWS::StackName}-a", "-a-", "a" * 64])
def test_what_is_no_bucket_is_refused_before_anything_is_synthesised(bucket: str, shiplap: Shiplap) -> None:
    assert f"--bucket: {bucket!r} is no name of a bucket" in shiplap.error("install", "template", "--bucket", bucket)


def test_the_kustomization_names_files_that_are_there(folder: Path) -> None:
    for where in (ROOT / "docs", folder):
        text = (where / "kustomization.yaml").read_text()
        every = yaml.safe_load(text.replace("# - ", "- "))["resources"]
        chosen = yaml.safe_load(text)["resources"]

        assert chosen == ["rbac.yaml"]
        assert every == ["rbac.yaml", "rbac-cluster-manifests.yaml", "rbac-rollouts.yaml", "rbac-deletion-costs.yaml"]
        objects = [item for name in every for item in yaml.safe_load_all((where / name).read_text())]
        names = [(item["kind"], item["metadata"].get("namespace"), item["metadata"]["name"]) for item in objects]
        assert len(set(names)) == len(names) > 3


def test_the_terraform_module_uploads_every_file_and_wraps_the_template(folder: Path) -> None:
    text = TERRAFORM.read_text()
    module = hcl2.loads(text)
    resources = {kind.strip('"'): item for each in module["resource"] for kind, item in each.items()}

    assert len(text.splitlines()) <= 60
    assert set(resources) == {"aws_s3_bucket", "aws_s3_object", "aws_cloudformation_stack"}
    assert {name.strip('"') for each in module["variable"] for name in each} == {"template", "bucket", "stack"}
    assert "CAPABILITY_NAMED_IAM" in str(resources["aws_cloudformation_stack"])
    assert 'fileset(var.template, "assets/*")' in text
    assert all(line == line.rstrip() and "\t" not in line for line in text.splitlines())
    assert all((len(line) - len(line.lstrip())) % 2 == 0 for line in text.splitlines())
    assert "never applied" in text
    known = re.search(r'"(shiplap-assets-[^"]*)"\)\n', text)
    assert known is not None
    expected = known[1].replace("${data.aws_caller_identity.current.account_id}", "${AWS::AccountId}")
    assert expected.replace("${data.aws_region.current.name}", "${AWS::Region}") == BUCKET
