"""Maps an AMI alias to its SSM parameters, each with the requirements on an instance type that runs the variant."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from shiplap.errors import NodeClassNotReady
from shiplap.instances.catalog.ami_families import FAMILIES
from shiplap.kubernetes import labels

RequirementLines = tuple[tuple[str, str, tuple[str, ...]], ...]

_GPU_COUNT = labels.AWS_PREFIX + "instance-gpu-count"
_ACCELERATOR_COUNT = labels.AWS_PREFIX + "instance-accelerator-count"

_STANDARD: RequirementLines = ((_ACCELERATOR_COUNT, "DoesNotExist", ()), (_GPU_COUNT, "DoesNotExist", ()))
_NVIDIA: RequirementLines = ((_GPU_COUNT, "Exists", ()),)
_NEURON: RequirementLines = ((_ACCELERATOR_COUNT, "Exists", ()),)

_ARCHITECTURES = {"x86_64": "amd64", "arm64": "arm64"}
_EKS = "/aws/service/eks/optimized-ami"
_BOTTLEROCKET = "/aws/service/bottlerocket"
_WINDOWS = "/aws/service/ami-windows-latest"
_MINOR = re.compile(r"1\.(\d+)")


class AmiVariant(msgspec.Struct, frozen=True):
    """One image an alias stands for; one parameter may serve two variants."""

    parameter: str
    requirements: RequirementLines


def _unsupported(reason: str) -> NodeClassNotReady:
    return NodeClassNotReady(reason, code="UnsupportedAlias")


def ami_variants(alias: str, kubernetes_version: str) -> tuple[AmiVariant, ...]:
    """All variants of an alias such as `al2023@latest` for a Kubernetes minor version such as `1.34`.

    Raises:
        NodeClassNotReady: unknown family, or a family that was never published for this version.
    """
    family, _, version = alias.partition("@")
    minor = _MINOR.match(kubernetes_version)
    if minor is None:
        raise _unsupported(f"alias {alias} needs the cluster's Kubernetes version, which is {kubernetes_version!r}")
    kubernetes = minor[0]
    if family == "al2":
        if int(minor[1]) >= 33:
            raise _unsupported(f"al2 is not published for Kubernetes {kubernetes}: 1.32 is its last; use al2023")
        return tuple(_al2(kubernetes, version))
    if family == "al2023":
        return tuple(_al2023(kubernetes, version))
    if family == "bottlerocket":
        return tuple(_bottlerocket(kubernetes, version))
    if family.startswith("windows"):
        return (_windows(family, kubernetes, int(minor[1])),)
    raise _unsupported(f"unknown alias family {family!r}: al2, al2023, bottlerocket, windows2019, 2022 or 2025")


def _arch(name: str) -> RequirementLines:
    return ((labels.ARCH, "In", (name,)),)


def _al2(kubernetes: str, version: str) -> Iterator[AmiVariant]:
    for suffix, arch, requirements in (
        ("", "amd64", _STANDARD),
        ("-arm64", "arm64", _STANDARD),
        ("-gpu", "amd64", _NEURON),
        ("-gpu", "amd64", _NVIDIA),
    ):
        image = f"amazon-linux-2{suffix}"
        release = "recommended" if version == "latest" else f"amazon-eks{suffix}-node-{kubernetes}-{version}"
        yield AmiVariant(f"{_EKS}/{kubernetes}/{image}/{release}/image_id", _arch(arch) + requirements)


def _al2023(kubernetes: str, version: str) -> Iterator[AmiVariant]:
    for machine, kind, requirements in (
        ("x86_64", "standard", _STANDARD),
        ("x86_64", "nvidia", _NVIDIA),
        ("x86_64", "neuron", _NEURON),
        ("arm64", "standard", _STANDARD),
        ("arm64", "nvidia", _NVIDIA),
    ):
        pinned = f"amazon-eks-node-al2023-{machine}-{kind}-{kubernetes}-{version}"
        release = "recommended" if version == "latest" else pinned
        yield AmiVariant(
            f"{_EKS}/{kubernetes}/amazon-linux-2023/{machine}/{kind}/{release}/image_id",
            _arch(_ARCHITECTURES[machine]) + requirements,
        )


def _bottlerocket(kubernetes: str, version: str) -> Iterator[AmiVariant]:
    release = version.removeprefix("v")
    for suffix, machine, requirements in (
        ("", "x86_64", _STANDARD),
        ("", "x86_64", _NEURON),
        ("", "arm64", _STANDARD),
        ("-nvidia", "x86_64", _NVIDIA),
        ("-nvidia", "arm64", _NVIDIA),
    ):
        yield AmiVariant(
            f"{_BOTTLEROCKET}/aws-k8s-{kubernetes}{suffix}/{machine}/{release}/image_id",
            _arch(_ARCHITECTURES[machine]) + requirements,
        )


def _windows(family: str, kubernetes: str, minor: int) -> AmiVariant:
    year = family.removeprefix("windows")
    build = FAMILIES[f"Windows{year}"].windows_build if f"Windows{year}" in FAMILIES else ""
    if not build:
        raise _unsupported(f"unknown alias family {family!r}: windows2019, windows2022 or windows2025")
    if year == "2025" and minor < 35:
        raise _unsupported(f"windows2025 is published from Kubernetes 1.35 on, the cluster runs {kubernetes}")
    return AmiVariant(
        f"{_WINDOWS}/Windows_Server-{year}-English-Core-EKS_Optimized-{kubernetes}/image_id",
        (*_arch("amd64"), (labels.OS, "In", ("windows",)), (labels.WINDOWS_BUILD, "In", (build,))),
    )
