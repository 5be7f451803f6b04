"""Folders as GitOps tools have them: what is Shiplap's is checked, the rest is counted, and nothing is no success."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shiplap_cli.main import run
from tests.commands import Shiplap
from tests.unit.manifests.manifest_samples import EC2_NODE_CLASS, NODE_POOL, changed

POOL, CLASS = json.dumps(NODE_POOL), json.dumps(EC2_NODE_CLASS)
AUTO_MODE_POOL = changed(
    NODE_POOL,
    "spec.template.spec.nodeClassRef",
    {"group": "eks.amazonaws.com", "kind": "NodeClass", "name": "default"},
)
BESIDE = {
    "values.yaml": "replicas: 2\n",
    "Chart.yaml": "apiVersion: v2\nname: nodes\nversion: 0.1.0\n",
    "kustomization.yaml": "resources: [pool.yaml]\n",
    "patches.yaml": "- {op: remove, path: /spec}\n",
    "stack.yaml": "Resources: {A: !Ref B}\n",
    "templates/web.yaml": "kind: Deployment\n{{- if .Values.web }}\n{{- end }}\n",
    "package.json": '{"name": "x"}',
    ".github/workflow.yaml": "kind: NodePool\n",
    ".hidden.yaml": "kind: NodePool\n",
    "app.yaml": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n",
    "other-pool.yaml": "apiVersion: hypershift.openshift.io/v1beta1\nkind: NodePool\nmetadata: {name: a}\n",
    "auto/class.yaml": "apiVersion: eks.amazonaws.com/v1\nkind: NodeClass\nmetadata: {name: auto}\n",
    "auto/pool.json": json.dumps(changed(AUTO_MODE_POOL, "metadata.name", "auto")),
}


def written(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


def test_what_is_ours_is_checked_and_the_rest_counted(tmp_path: Path, shiplap: Shiplap) -> None:
    folder = written(tmp_path, {**BESIDE, "pool.json": POOL, "class.json": CLASS})
    assert shiplap.page("validate", "--strict", folder) == (
        "2 manifests valid; passed over 2 objects of other kinds, 6 documents without a Kubernetes object, "
        "1 Helm template, NodeClass/auto, NodePool/auto of EKS Auto Mode"
    )
    skipped = shiplap.json("validate", folder)["skipped"]
    assert {
        "file": str(folder / "auto/class.yaml"),
        "line": 1,
        "document": "NodeClass/auto",
        "reason": "of EKS Auto Mode",
    } in skipped
    assert len(skipped) == 11


KUSTOMIZED = """\
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [../base]
namePrefix: prod-
patches:
- {target: {kind: NodePool}, patch: "[{op: replace, path: /spec/limits/cpu, value: 5}]"}
"""


def test_what_a_kustomization_would_change_is_told(tmp_path: Path, shiplap: Shiplap) -> None:
    plain = written(tmp_path / "plain", {"base/pool.json": POOL, "base/class.json": CLASS, **BESIDE})
    assert shiplap.json("validate", plain / "base")["warnings"] == []
    folder = written(plain, {"prod/kustomization.yaml": KUSTOMIZED, "test/kustomization.yml": "namePrefix: test-\n"})
    prod, test = shiplap.json("validate", folder)["warnings"]
    assert (prod["file"], prod["line"]) == (str(folder / "prod/kustomization.yaml"), 4)
    assert prod["reason"] == (
        f"namePrefix, patches not applied: render it first, such as by `kubectl kustomize {folder}/prod`"
    )
    assert (test["file"], test["line"]) == (str(folder / "test/kustomization.yml"), 1)
    assert "2 warnings" in shiplap.page("validate", folder)
    shiplap.page("validate", "--strict", folder, code=1)


PATCHES = """\
kind: Kustomization
patches: [{path: limits.yaml}]
patchesStrategicMerge:
- ../old/weight.yaml
- |
  kind: NodePool
patchesJson6902: [{target: {kind: NodePool}, path: absent.yaml}, null]
"""
PATCH = "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: default}\nspec: {weight: 5}\n"


@pytest.mark.parametrize("command", ["validate", "plan"])
def test_patches_that_a_kustomization_names_are_no_manifests(
    command: str, tmp_path: Path, shiplap: Shiplap, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {"pool.json": POOL, "class.json": CLASS, "prod/kustomization.yaml": PATCHES}
    folder = written(tmp_path / "pools", {**files, "prod/limits.yaml": PATCH, "old/weight.yaml": PATCH})
    if command == "validate":
        assert "2 manifests valid, 1 warning; passed over" in (page := shiplap.page("validate", folder))
        assert "2 patch files of kustomizations" in page
        assert "spec.template" in shiplap.page("validate", folder / "prod/limits.yaml", code=2), "named, it is judged"
        (folder / "stray.yaml").write_text(PATCH)
        assert "stray.yaml" in shiplap.page("validate", folder, code=2), "a part that nothing names is a mistake"
        return
    pending = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "default"}}
    (tmp_path / "state.json").write_text(json.dumps(pending))
    assert run(["plan", "--cluster-state", str(tmp_path / "state.json"), "--manifests", str(folder)]) == 0
    assert "patches, patchesJson6902, patchesStrategicMerge not applied" in capsys.readouterr().err


def test_plan_tells_what_a_kustomization_would_change(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pending = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "default"}}
    (tmp_path / "state.json").write_text(json.dumps(pending))
    folder = written(
        tmp_path / "pools", {"pool.json": POOL, "class.json": CLASS, "prod/kustomization.yaml": KUSTOMIZED}
    )
    assert run(["plan", "--cluster-state", str(tmp_path / "state.json"), "--manifests", str(folder)]) == 0
    assert f"! {folder}/prod/kustomization.yaml:4: namePrefix, patches not applied" in capsys.readouterr().err


def test_only_what_is_ours_fails(tmp_path: Path, shiplap: Shiplap) -> None:
    folder = written(tmp_path, {**BESIDE, "pool.json": json.dumps(changed(NODE_POOL, "spec.weight", 0))})
    problems = shiplap.json("validate", folder, code=2)["problems"]
    assert [(problem["document"], problem["field"]) for problem in problems] == [("NodePool/default", "spec.weight")]


TEMPLATE = "{{- if .Values.on }}\napiVersion: karpenter.sh/v1\nkind: NodePool\n{{- end }}\n"
QUOTED = 'apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: "{{ .Values.name }}"}\n'
LIKELY = {
    "an empty file": ({"a.yaml": ""}, "it is empty"),
    "a comment": ({"a.yaml": "# later\n---\n"}, "it is empty"),
    "no file": ({}, "the folder holds no .yaml"),
    "another kind": ({"a.yaml": BESIDE["app.yaml"]}, "passed over 1 object of other kinds"),
    "a misspelt group": ({"a.json": POOL.replace("karpenter.sh", "karpenter.io")}, "did you mean karpenter.sh/v1?"),
    "no version": ({"a.json": POOL.replace("karpenter.sh/v1", "karpenter.sh")}, "did you mean karpenter.sh/v1?"),
    "no group": ({"a.json": POOL.replace("karpenter.sh/v1", "v1")}, "did you mean karpenter.sh/v1?"),
    "the group of NodePools": (
        {"a.json": CLASS.replace("karpenter.k8s.aws/v1", "karpenter.sh/v1")},
        "did you mean karpenter.k8s.aws/v1?",
    ),
    "a misspelt group of classes": (
        {"a.json": CLASS.replace("karpenter.k8s.aws", "karpenter.k8s.amazonaws")},
        "did you mean karpenter.k8s.aws/v1?",
    ),
    "a misspelt kind": ({"a.json": POOL.replace('"NodePool"', '"Nodepool"')}, "karpenter.sh has NodeOverlay, NodePool"),
    "a group and kind misspelt": (
        {"a.json": POOL.replace("karpenter.sh", "karpenter.io").replace('"NodePool"', '"Nodepool"')},
        "did you mean karpenter.sh/v1?",
    ),
    "EKS Auto Mode": ({"a.json": json.dumps(AUTO_MODE_POOL)}, "EKS Auto Mode launches its nodes itself"),
    "a chart": ({"Chart.yaml": BESIDE["Chart.yaml"], "templates/pool.yaml": TEMPLATE}, "`helm template {folder}`"),
    "a chart's quoted template": (
        {"Chart.yaml": "name: a\n", "templates/pool.yaml": QUOTED},
        "`helm template {folder}`",
    ),
    "a chart of other kinds": ({"Chart.yaml": "name: a\n", "values.yaml": "a: 1\n"}, "`helm template CHART"),
    "a kustomization": ({"kustomization.yaml": BESIDE["kustomization.yaml"]}, "`kubectl kustomize FOLDER"),
    "settings": ({"shiplap.yaml": "region: eu-west-1\nclusters: []\n"}, "must name at least one cluster"),
    "no kind": ({"a.json": json.dumps({"metadata": {"name": "a"}, "spec": {}})}, "kind: required field is missing"),
}


@pytest.mark.parametrize("strict", [[], ["--strict"]])
@pytest.mark.parametrize("case", LIKELY)
def test_input_without_a_sound_manifest_is_no_success(
    case: str, strict: list[str], tmp_path: Path, shiplap: Shiplap
) -> None:
    files, intention = LIKELY[case]
    answer = shiplap.json("validate", written(tmp_path, files), *strict, code=2)
    assert intention.replace("{folder}", str(tmp_path)) in "; ".join(
        f"{problem['field']}: {problem['reason']}" for problem in answer["problems"]
    )


@pytest.mark.parametrize("case", LIKELY)
def test_a_plan_without_a_sound_node_pool_is_refused(case: str, tmp_path: Path, shiplap: Shiplap) -> None:
    files, _ = LIKELY[case]
    pods = tmp_path / "pods.json"
    pods.write_text("{}")
    folder = tmp_path / "manifests"
    folder.mkdir()
    for command in ("plan", "disrupt"):
        lines = shiplap.errors(command, "-f", pods, "--manifests", written(folder, files))
        assert all("manifests" in line for line in lines)


def test_a_role_is_named_without_its_arn(tmp_path: Path, shiplap: Shiplap) -> None:
    role = changed(EC2_NODE_CLASS, "spec.role", "arn:aws:iam::123456789012:role/nodes/web")
    (problem,) = shiplap.json("validate", written(tmp_path, {"a.json": json.dumps(role)}), code=2)["problems"]
    assert problem["field"] == "spec.role"
    assert problem["reason"].endswith("without its ARN; write nodes/web")


@pytest.mark.parametrize("command", [("plan", "-f"), ("migrate", "convert")])
def test_commands_that_read_every_file_name_a_chart_for_what_it_is(
    command: tuple[str, ...], tmp_path: Path, shiplap: Shiplap
) -> None:
    (tmp_path / "deploy.yaml").write_text("kind: Deployment\nmetadata:\n  name: {{ .Values.name }}\n")
    said = shiplap.error(*command, str(tmp_path))
    assert "deploy.yaml:3: is a Helm template, not YAML: render it first, such as by `helm template CHART`" in said


def test_a_template_of_ours_beside_no_chart_is_named_for_what_it_is(tmp_path: Path, shiplap: Shiplap) -> None:
    text = "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata:\n  name: {{ .Values.name }}\n"
    folder = written(tmp_path, {"pool.json": POOL, "class.json": CLASS, "made.yaml": text})
    said = shiplap.page("validate", folder, code=2)
    assert "made.yaml" in said
    assert "is a Helm template, not YAML: render it first" in said
