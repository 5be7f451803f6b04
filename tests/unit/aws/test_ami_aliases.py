"""Tests the parameters that an alias reads, for every family and variant."""

from __future__ import annotations

import pytest

from shiplap.aws.selectors.ami_aliases import ami_variants
from shiplap.aws.selectors.amis import ordered_amis
from shiplap.errors import NodeClassNotReady
from shiplap.instances.catalog.resolved_nodeclass import Ami

EKS = "/aws/service/eks/optimized-ami/1.32"
BOTTLEROCKET = "/aws/service/bottlerocket/aws-k8s-1.32"


def read(alias: str, version: str = "1.32") -> list[tuple[str, str]]:
    """(parameter, what the variant needs) of an alias."""
    return [(variant.parameter, need(variant.requirements)) for variant in ami_variants(alias, version)]


def need(requirements: tuple[tuple[str, str, tuple[str, ...]], ...]) -> str:
    arch = next(values[0] for key, _, values in requirements if key == "kubernetes.io/arch")
    exists = [key.rpartition("instance-")[2] for key, operator, _ in requirements if operator == "Exists"]
    return " ".join([arch, *exists])


def test_al2023_latest() -> None:
    base = f"{EKS}/amazon-linux-2023"
    assert read("al2023@latest") == [
        (f"{base}/x86_64/standard/recommended/image_id", "amd64"),
        (f"{base}/x86_64/nvidia/recommended/image_id", "amd64 gpu-count"),
        (f"{base}/x86_64/neuron/recommended/image_id", "amd64 accelerator-count"),
        (f"{base}/arm64/standard/recommended/image_id", "arm64"),
        (f"{base}/arm64/nvidia/recommended/image_id", "arm64 gpu-count"),
    ]


def test_al2023_pinned() -> None:
    name = f"{EKS}/amazon-linux-2023/x86_64/standard/amazon-eks-node-al2023-x86_64-standard-1.32-v20240625/image_id"
    assert read("al2023@v20240625")[0] == (name, "amd64")


def test_al2() -> None:
    assert read("al2@latest") == [
        (f"{EKS}/amazon-linux-2/recommended/image_id", "amd64"),
        (f"{EKS}/amazon-linux-2-arm64/recommended/image_id", "arm64"),
        (f"{EKS}/amazon-linux-2-gpu/recommended/image_id", "amd64 accelerator-count"),
        (f"{EKS}/amazon-linux-2-gpu/recommended/image_id", "amd64 gpu-count"),
    ]
    pinned = f"{EKS}/amazon-linux-2-arm64/amazon-eks-arm64-node-1.32-v20240625/image_id"
    assert read("al2@v20240625")[1] == (pinned, "arm64")


@pytest.mark.parametrize("version", ["1.32.0-cacc4ce9", "v1.32.0-cacc4ce9"])
def test_bottlerocket(version: str) -> None:
    assert read(f"bottlerocket@{version}") == [
        (f"{BOTTLEROCKET}/x86_64/1.32.0-cacc4ce9/image_id", "amd64"),
        (f"{BOTTLEROCKET}/x86_64/1.32.0-cacc4ce9/image_id", "amd64 accelerator-count"),
        (f"{BOTTLEROCKET}/arm64/1.32.0-cacc4ce9/image_id", "arm64"),
        (f"{BOTTLEROCKET}-nvidia/x86_64/1.32.0-cacc4ce9/image_id", "amd64 gpu-count"),
        (f"{BOTTLEROCKET}-nvidia/arm64/1.32.0-cacc4ce9/image_id", "arm64 gpu-count"),
    ]


def test_windows() -> None:
    [variant] = ami_variants("windows2022@latest", "1.32")
    assert variant.parameter == (
        "/aws/service/ami-windows-latest/Windows_Server-2022-English-Core-EKS_Optimized-1.32/image_id"
    )
    assert variant.requirements == (
        ("kubernetes.io/arch", "In", ("amd64",)),
        ("kubernetes.io/os", "In", ("windows",)),
        ("node.kubernetes.io/windows-build", "In", ("10.0.20348",)),
    )


def test_the_first_and_the_last_version_that_a_family_is_published_for() -> None:
    assert len(ami_variants("windows2025@latest", "1.35")) == 1
    assert len(ami_variants("al2@latest", "1.32")) == 4


@pytest.mark.parametrize(
    ("alias", "version", "reason"),
    [
        ("al2@latest", "1.33", "al2 is not published for Kubernetes 1.33"),
        ("windows2025@latest", "1.34", "windows2025 is published from Kubernetes 1.35 on"),
        ("windows2012@latest", "1.34", "unknown alias family 'windows2012'"),
        ("ubuntu@latest", "1.34", "unknown alias family 'ubuntu'"),
        ("al2023@latest", "", "needs the cluster's Kubernetes version"),
    ],
)
def test_aliases_that_do_not_exist(alias: str, version: str, reason: str) -> None:
    with pytest.raises(NodeClassNotReady, match=reason) as raised:
        ami_variants(alias, version)
    assert raised.value.code == "UnsupportedAlias"


def ami(number: int, created: str, *, arch: str = "amd64", deprecated: bool = False, name: str = "n") -> Ami:
    return Ami(f"ami-{number}", name, created, deprecated, (("kubernetes.io/arch", "In", (arch,)),))


def test_one_image_per_requirements_the_newest_that_is_not_deprecated() -> None:
    images = [ami(1, "2026"), ami(2, "2025"), ami(3, "2027", deprecated=True)]
    assert [found.id for found in ordered_amis(images)] == ["ami-1"]
    same_age = [ami(1, "2026", name="a"), ami(2, "2026", name="b")]
    assert [found.id for found in ordered_amis(same_age)] == ["ami-2"]


def test_newest_first_then_by_id_and_deprecated_last() -> None:
    images = [ami(3, "2026", arch="c"), ami(2, "2026", arch="b"), ami(1, "2025", arch="a"),
              ami(4, "2027", arch="d", deprecated=True)]  # fmt: skip
    assert [found.id for found in ordered_amis(images)] == ["ami-2", "ami-3", "ami-1", "ami-4"]
