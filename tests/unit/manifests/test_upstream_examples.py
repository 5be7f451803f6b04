"""Karpenter's own examples pass `validate` and `plan`; what is refused of them is listed here with its reason.

The examples come with the Go module of its AWS provider. Its pages do not, as its website is a module of its own, which
is not published: `$KARPENTER_PAGES` may name a folder of them.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from shiplap_cli.main import run
from tests.builders.pods import pod_object
from tests.go_modules import KARPENTER, folder_of
from tests.unit.manifests.manifest_samples import EC2_NODE_CLASS

KINDS = ("NodePool", "EC2NodeClass", "NodeOverlay", "CapacityBuffer")
FILLED = {"ALIAS_VERSION": "v20250701"}
"""What stands in templates, where a name of any kind would not do."""
REFUSED = {
    "windows-custom-userdata.yaml": "spec.template.spec.nodeClassRef.group",
}
"""Example and field: Karpenter's CRD refuses a group with a slash too (`pattern: ^[^/]*$`)."""
WARNED = dict.fromkeys(("custom-family.yaml", "custom-family-with-alias.yaml"), "karpenter.sh/unregistered")
"""Examples and warning: Karpenter registers no new Node without this taint either; Custom user data has to add it."""
REFUSED_BLOCKS = {
    "NodeOverlay/example-overlay": "price and priceAdjustment exclude each other",
    "NodePool/default": "'720h | Never' is not a duration",
}
"""Blocks that show all choices at once: Karpenter refuses them too."""


@pytest.fixture(scope="module")
def examples() -> Path:
    return folder_of(KARPENTER) / "examples" / "v1"


def filled(text: str) -> str:
    return re.sub(r"\$\{([A-Z_]+)\}", lambda found: FILLED.get(found[1], "demo"), text)


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(filled(text))
    return path


def pods_for(pools: list[str]) -> list[dict[str, Any]]:
    """One pending pod for each pool, which takes its nodes as they are."""
    anywhere = {"waits": True, "tolerations": [{"operator": "Exists"}]}
    return [
        pod_object(f"pod-{number}", "100m", "64Mi", nodeSelector={"karpenter.sh/nodepool": name}, **anywhere)
        for number, name in enumerate(pools)
    ]


def problems(path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    code = run(["validate", str(path)])
    told = capsys.readouterr()
    assert code in (0, 2), told
    warned = [line for line in told.out.splitlines() if "warning:" in line]
    assert len(warned) == (path.name in WARNED), warned
    assert all(WARNED[path.name] in line for line in warned)
    return "" if code == 0 else told.out + told.err


def left_out(path: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The pods that `plan` finds no node for, or what else it says when it cannot plan."""
    known = list(filter(None, yaml.safe_load_all(path.read_text())))
    pools = [item["metadata"]["name"] for item in known if item["kind"] == "NodePool"]
    if not pools:
        return []
    if not any(item["kind"] == "EC2NodeClass" for item in known):
        path.write_text(f"{path.read_text()}\n---\n{json.dumps(EC2_NODE_CLASS)}\n")
    state = folder / "pods.json"
    state.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": pods_for(pools)}))
    capsys.readouterr()
    code = run(["plan", "--manifests", str(path), "-f", str(state), "--no-aws", "--region", "us-west-2", "-o", "json"])
    told = capsys.readouterr()
    if code not in (0, 1):
        return [told.err]
    answer = json.loads(told.out)
    claimed = {claim["nodePool"] for claim in answer["nodeClaims"]}
    return [f"{name}: {answer.get('unschedulable')}" for name in pools if name not in claimed]


def test_all_examples_are_valid_and_make_nodes(
    examples: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = sorted(examples.glob("*.yaml"))
    assert len(found) == 22
    wrong = {}
    for example in found:
        path = written(tmp_path, example.name, example.read_text())
        said = problems(path, capsys)
        refused = REFUSED.get(example.name)
        if refused is not None:
            assert said.count(refused) == 1, example.name
        elif said or (said := "\n".join(left_out(path, tmp_path, capsys))):
            wrong[example.name] = said
    assert wrong == {}


def test_what_is_refused_karpenter_refuses_too() -> None:
    (text,) = (folder_of(KARPENTER) / "pkg" / "apis" / "crds").glob("karpenter.sh_nodepools.yaml")
    (version,) = yaml.safe_load(text.read_text())["spec"]["versions"]
    field: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    for step in ("spec", "template", "spec", "nodeClassRef", "group"):
        field = field["properties"][step]
    assert not re.search(field["pattern"], "karpenter.k8s.aws/v1")


# Pages


def blocks(text: str) -> Iterator[str]:
    """Yield the YAML between fences that name YAML, and the text that a shell page writes into `kubectl apply`."""
    for indent, body in re.findall(r"^([ \t]*)```ya?ml[^\n]*\n(.*?)^[ \t]*```", text, re.MULTILINE | re.DOTALL):
        yield re.sub(rf"^{indent}", "", body, flags=re.MULTILINE)
    for _, body in re.findall(r"<<-?\s*['\"]?(EOF)['\"]?[^\n]*\n(.*?)^\s*EOF$", text, re.MULTILINE | re.DOTALL):
        yield body


def schemas() -> dict[tuple[str, str], dict[str, Any]]:
    """Karpenter's CRDs by apiVersion and kind."""
    found = {}
    for file in (folder_of(KARPENTER) / "pkg" / "apis" / "crds").glob("*.yaml"):
        spec = yaml.safe_load(file.read_text())["spec"]
        for version in spec["versions"]:
            key = (f"{spec['group']}/{version['name']}", spec["names"]["kind"])
            found[key] = version["schema"]["openAPIV3Schema"]
    return found


def lacks(schema: dict[str, Any], value: Any) -> bool:
    """True if a required field is missing."""
    if isinstance(value, list):
        return any(lacks(schema.get("items", {}), item) for item in value)
    if not isinstance(value, dict):
        return False
    fields = schema.get("properties", {})
    missing = any(name not in value for name in schema.get("required", ()))
    return missing or any(lacks(fields.get(name, {}), item) for name, item in value.items())


def is_complete(block: str, known: dict[tuple[str, str], dict[str, Any]]) -> bool:
    """True if all documents of the block are objects of our kinds without a missing field in Karpenter's CRDs."""
    try:
        documents = [item for item in yaml.safe_load_all(filled(block)) if item is not None]
    except yaml.YAMLError:
        return False
    if not documents or not all(isinstance(item, dict) and item.get("kind") in KINDS for item in documents):
        return False
    kinds = [known.get((item.get("apiVersion"), item["kind"])) for item in documents]
    return all(schema is not None and not lacks(schema, item) for schema, item in zip(kinds, documents, strict=True))


def test_the_complete_blocks_of_pages_are_valid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if not os.environ.get("KARPENTER_PAGES"):
        pytest.skip("KARPENTER_PAGES names no folder of Karpenter's pages, which its Go module does not hold")
    pages = sorted(Path(os.environ["KARPENTER_PAGES"]).rglob("*"))
    known, wrong, seen = schemas(), {}, 0
    for page in pages:
        found = blocks(page.read_text()) if page.suffix in (".md", ".sh") else ()
        for number, block in enumerate(item for item in found if is_complete(item, known)):
            seen += 1
            path = written(tmp_path, f"{number}.yaml", block)
            said = problems(path, capsys)
            if any(name in said and reason in said for name, reason in REFUSED_BLOCKS.items()):
                continue
            if said or (said := "\n".join(left_out(path, tmp_path, capsys))):
                wrong[f"{page} {number}"] = said
    assert seen > 0
    assert wrong == {}
