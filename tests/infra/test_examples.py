"""The examples that users copy: each is read, validates without a warning, and launches what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
import yaml

from shiplap.manifests.files.described_installs import read_installs
from shiplap.manifests.files.documents import read_documents
from shiplap.manifests.files.loading import inspect_files
from shiplap_cdk.install_document import read
from shiplap_cdk.install_schema import install_schema
from shiplap_cli.inputs.manifest_warnings import manifest_warnings
from shiplap_lab.catalogue import embedded
from tests.builders.pods import pod_object
from tests.commands import Shiplap

EXAMPLES = Path(__file__).parents[2] / "examples"
INSTALLS = EXAMPLES / "fleet" / "installs.yaml"
SETTINGS = sorted(
    {*EXAMPLES.glob("*/shiplap.yaml"), *(INSTALLS.parent / each.settings for each in read_installs(INSTALLS))}
)
SCHEMA = install_schema()
FOLDERS = sorted({path.parent for path in EXAMPLES.glob("**/nodes.yaml")})


ORDINARY = pod_object("waiting", "1", "2Gi", waits=True)
WITH_GPU = pod_object("waiting", "1", "4Gi", waits=True, tolerations=[{"key": "nvidia.com/gpu"}])
WITH_GPU["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"] = "1"


def named(path: Path) -> str:
    return str(path.relative_to(EXAMPLES))


def test_there_are_as_many_as_the_page_lists() -> None:
    page = (EXAMPLES / "README.md").read_text()
    assert {path.parent.name for path in SETTINGS} | {"terraform"} == {
        line.partition("](")[0].removeprefix("| [") for line in page.splitlines() if line.startswith("| [")
    }


@pytest.mark.parametrize("path", SETTINGS, ids=named)
def test_settings_are_read_with_their_manifests(path: Path) -> None:
    install = read(path)
    assert install.document.clusters
    for cluster in install.document.clusters:
        assert cluster.manifests == "cluster" or (path.parent / cluster.manifests).is_dir()


@pytest.mark.parametrize("path", SETTINGS, ids=named)
def test_editors_take_the_settings(path: Path) -> None:
    (document,) = read_documents(path)
    jsonschema.validate(document.data, SCHEMA)


def test_editors_take_what_pages_show_of_shiplap_yaml() -> None:
    """Parts of a file are completed with the keys that each needs."""
    root = EXAMPLES.parent
    pages = [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
    blocks = [block for page in pages for block in re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.M | re.S)]
    shown = [found for block in blocks for found in yaml.safe_load_all(block) if isinstance(found, dict)]
    installs = [found for found in shown if isinstance(found.get("clusters"), list)]
    assert len(installs) >= 5
    for install in installs:
        clusters = [{"name": "a", "manifests": "b"} | cluster for cluster in install["clusters"]]
        jsonschema.validate({"region": "eu-west-1"} | install | {"clusters": clusters}, SCHEMA)


@pytest.mark.parametrize("folder", FOLDERS, ids=named)
def test_manifests_are_valid_without_a_warning(folder: Path) -> None:
    report = inspect_files([folder])
    assert report.problems == ()
    assert report.checked >= 2
    assert manifest_warnings(report.sound, embedded.load()) == []


def launched(shiplap: Shiplap, tmp_path: Path, folder: Path, waiting: dict[str, Any]) -> dict[str, Any]:
    state = tmp_path / "pods.json"
    state.write_bytes(msgspec.json.encode(waiting))
    (claim,) = shiplap.json("plan", "-f", state, "--manifests", folder)["nodeClaims"]
    return dict(claim)


@pytest.mark.parametrize("folder", FOLDERS, ids=named)
def test_an_ordinary_pod_gets_a_flex_node(shiplap: Shiplap, tmp_path: Path, folder: Path) -> None:
    claim = launched(shiplap, tmp_path, folder, ORDINARY)
    assert "-flex." in claim["instanceTypes"][0]
    rules = {item["key"]: item["values"] for item in claim["requirements"]}
    expected = "spot" if folder.parent.name == "spot-with-fallback" else "on-demand"
    assert rules["karpenter.sh/capacity-type"] == [expected]


def test_a_pod_with_a_gpu_gets_a_node_of_its_pool(shiplap: Shiplap, tmp_path: Path) -> None:
    claim = launched(shiplap, tmp_path, EXAMPLES / "gpu/manifests", WITH_GPU)
    assert claim["nodePool"] == "gpu"
    assert claim["instanceTypes"][0][0] in "gp"


@pytest.mark.parametrize("name", ["gitops/argocd.yaml", "gitops/flux.yaml", "fleet/pipeline.yaml"])
def test_files_of_other_tools_can_be_parsed(name: str) -> None:
    found = [item for item in yaml.safe_load_all((EXAMPLES / name).read_text()) if item]
    assert found
    assert all(isinstance(item, dict) for item in found)


def test_flux_and_argo_cd_look_at_the_kinds_that_have_a_status() -> None:
    flux = yaml.safe_load((EXAMPLES / "gitops/flux.yaml").read_text())
    kinds = {item["kind"] for item in flux["spec"]["healthCheckExprs"]}
    settings, application = yaml.safe_load_all((EXAMPLES / "gitops/argocd.yaml").read_text())
    checks = {name.rpartition("_")[2] for name in settings["data"] if ".health." in name}
    assert kinds == checks == {"NodePool", "EC2NodeClass"}
    assert application["spec"]["source"]["path"] == flux["spec"]["path"].removeprefix("./")


def test_the_fleet_can_be_deployed_and_names_the_stacks_that_are_made(shiplap: Shiplap) -> None:
    planned = shiplap.json("install", "deploy", "-f", INSTALLS, "--dry-run")
    assert [item["wave"] for item in planned] == [1, 2, 3]
    for install in read_installs(INSTALLS):
        assert install.stack == read(INSTALLS.parent / install.settings).document.name.title()
