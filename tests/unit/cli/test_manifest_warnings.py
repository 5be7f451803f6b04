"""Warnings of `shiplap validate`: what is legal and surely not meant."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shiplap_cli.main import run
from tests.commands import Shiplap, listed
from tests.unit.manifests.manifest_samples import EC2_NODE_CLASS, NODE_POOL, changed

FAMILY = "karpenter.k8s.aws/instance-family"
REQUIREMENTS = "spec.template.spec.requirements"
VALUES = f"{REQUIREMENTS}[0].values"


def asks(*requirements: tuple[Any, ...]) -> dict[str, Any]:
    """A NodePool with requirements: key, operator, values."""
    return changed(
        NODE_POOL,
        REQUIREMENTS,
        [{"key": key, "operator": what, "values": list(given)} for key, what, *given in requirements],
    )


WARNED: dict[str, tuple[dict[str, Any], str, str]] = {
    "a family with a letter missing": (
        asks((FAMILY, "In", "c7iflex")),
        VALUES,
        f"no instance type has {FAMILY}=c7iflex; did you mean c7i-flex?",
    ),
    "a family in an exclusion": (
        asks((FAMILY, "NotIn", "m5", "c7iflex")),
        VALUES,
        f"no instance type has {FAMILY}=c7iflex; did you mean c7i-flex?",
    ),
    "a family beside a glob": (
        asks((FAMILY, "In", "c7iflex", "*")),
        VALUES,
        f"no instance type has {FAMILY}=c7iflex; did you mean c7i-flex?",
    ),
    "the architecture as uname says it": (
        asks(("kubernetes.io/arch", "In", "x86_64")),
        VALUES,
        "no instance type has kubernetes.io/arch=x86_64; did you mean amd64?",
    ),
    "a capacity type": (
        asks(("karpenter.sh/capacity-type", "In", "spot", "ondemand")),
        VALUES,
        "no instance type has karpenter.sh/capacity-type=ondemand; did you mean on-demand?",
    ),
    "the former spelling of a label": (
        asks(("beta.kubernetes.io/instance-type", "In", "m5.lage")),
        VALUES,
        "no instance type has node.kubernetes.io/instance-type=m5.lage; did you mean m5.large?",
    ),
    "two lists without a common value": (
        asks((FAMILY, "In", "m5"), (FAMILY, "In", "c5")),
        REQUIREMENTS,
        "the requirements contradict each other: no node can meet them",
    ),
    "two lists of an own label": (
        asks(("team", "In", "a"), ("team", "NotIn", "a")),
        REQUIREMENTS,
        "the requirements contradict each other: no node can meet them",
    ),
    "fewer nodes than replicas": (
        changed(changed(NODE_POOL, "spec.replicas", 3), "spec.limits", {"nodes": "2"}),
        "spec.limits.nodes",
        "2 is below spec.replicas: 3 nodes are never reached",
    ),
    "a family of the other architecture": (
        asks((FAMILY, "In", "m7g"), ("kubernetes.io/arch", "In", "amd64")),
        REQUIREMENTS,
        "instance types of the embedded catalogue meets them all",
    ),
    "more CPUs than there are": (
        asks((FAMILY, "In", "m5"), ("karpenter.k8s.aws/instance-cpu", "Gt", "4000")),
        REQUIREMENTS,
        "instance types of the embedded catalogue meets them all",
    ),
    "an annotation about a type that does not exist": (
        changed(EC2_NODE_CLASS, "metadata.annotations", {"shiplap.dev/vm-memory-overhead-percent.m5.lage": "0.05"}),
        "metadata.annotations[shiplap.dev/vm-memory-overhead-percent.m5.lage]",
        "there is no instance type m5.lage; did you mean m5.large?",
    ),
    "a role with a shell variable": (
        changed(EC2_NODE_CLASS, "spec.role", "KarpenterNodeRole-${CLUSTER_NAME}"),
        "spec.role",
        "'KarpenterNodeRole-${CLUSTER_NAME}' holds the placeholder ${CLUSTER_NAME}",
    ),
    "images of AL2": (
        changed(EC2_NODE_CLASS, "spec.amiSelectorTerms", [{"alias": "al2@latest"}]),
        "spec.amiSelectorTerms[0].alias",
        "Kubernetes 1.32 and older only",
    ),
    "user data of one's own image that says nothing of the taint": (
        changed(
            changed(EC2_NODE_CLASS, "spec.amiFamily", "Custom"),
            "spec.amiSelectorTerms",
            [{"id": "ami-0123456789abcdef0"}],
        ),
        "spec.userData",
        "--register-with-taints=karpenter.sh/unregistered:NoExecute",
    ),
    "a tag to be filled in": (
        changed(EC2_NODE_CLASS, "spec.subnetSelectorTerms", [{"tags": {"karpenter.sh/discovery": "<your cluster>"}}]),
        "spec.subnetSelectorTerms[0].tags[karpenter.sh/discovery]",
        "'<your cluster>' holds the placeholder <your cluster>",
    ),
}


@pytest.mark.parametrize("case", WARNED)
def test_a_warning(case: str, tmp_path: Path, shiplap: Shiplap) -> None:
    manifest, field, why = WARNED[case]
    file = tmp_path / "manifests.json"
    file.write_text(json.dumps(manifest))
    answer = shiplap.json("validate", file)
    (warning,) = answer["warnings"]
    assert answer["valid"] is True
    assert (warning["file"], warning["line"], warning["field"]) == (str(file), 1, field)
    assert warning["document"] == f"{manifest['kind']}/default"
    assert why in warning["reason"]


QUIET: dict[str, dict[str, Any]] = {
    "globs": asks((FAMILY, "In", "c7i-flex", "*")),
    "a glob that nothing has yet": asks((FAMILY, "In", "z99*", "*")),
    "own labels": asks(("team", "In", "payments"), ("zone.example.com/rack", "Exists")),
    "a zone elsewhere": asks(("topology.kubernetes.io/zone", "In", "eu-west-1a")),
    "numbers between types": asks(
        ("karpenter.k8s.aws/instance-cpu", "Gt", "3"), ("karpenter.k8s.aws/instance-cpu", "Lt", "9")
    ),
    "a label that types lack": asks(("karpenter.k8s.aws/instance-gpu-count", "DoesNotExist")),
    "user data with variables": changed(EC2_NODE_CLASS, "spec.userData", "#!/bin/sh\necho ${HOME} <<EOF\n"),
}


@pytest.mark.parametrize("case", QUIET)
def test_no_warning(case: str, tmp_path: Path, shiplap: Shiplap) -> None:
    file = tmp_path / "manifests.json"
    file.write_text(json.dumps(QUIET[case]))
    assert shiplap.json("validate", file)["warnings"] == []


def test_lines_and_exit_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "manifests.json"
    file.write_text(listed(asks((FAMILY, "In", "c7iflex")), EC2_NODE_CLASS))
    said = f"no instance type has {FAMILY}=c7iflex; did you mean c7i-flex?"
    lines = f"{file}:1: warning: NodePool/default: {VALUES}: {said}\n2 manifests valid, 1 warning\n"
    for options, code in (([], 0), (["--strict"], 1)):
        assert run(["validate", str(file), *options]) == code
        assert " ".join(capsys.readouterr().out.split()) == " ".join(lines.split())


def test_manifests_with_problems_get_no_warnings(tmp_path: Path, shiplap: Shiplap) -> None:
    file = tmp_path / "manifests.json"
    file.write_text(listed(changed(asks((FAMILY, "In", "c7iflex")), "spec.weight", 0), EC2_NODE_CLASS))
    answer = shiplap.json("validate", file, "--strict", code=2)
    assert len(answer["problems"]) == 1
    assert answer["warnings"] == []


@pytest.mark.parametrize(
    ("version", "kind", "words"),
    [
        ("karpenter.sh/v1beta1", "NodePool", "`shiplap migrate convert` converts it"),
        ("karpenter.k8s.aws/v1beta1", "EC2NodeClass", "`shiplap migrate convert` converts it"),
        ("karpenter.sh/v1alpha5", "Provisioner", "bring it to v1 first, `shiplap migrate convert` says how"),
    ],
)
def test_former_versions_name_the_way(version: str, kind: str, words: str, tmp_path: Path, shiplap: Shiplap) -> None:
    file = tmp_path / "manifests.json"
    file.write_text(json.dumps({"apiVersion": version, "kind": kind, "metadata": {"name": "a"}, "spec": {}}))
    assert words in shiplap.json("validate", file, code=2)["problems"][0]["reason"]
