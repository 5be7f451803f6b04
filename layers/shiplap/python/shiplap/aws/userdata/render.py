"""User data by AMI family, within EC2's limit of size."""

from __future__ import annotations

import re
from collections.abc import Callable
from shlex import quote
from typing import Any

import msgspec

from shiplap.aws.userdata import bottlerocket, mime
from shiplap.aws.userdata.bootstrap import Bootstrap, kubelet_flags
from shiplap.errors import NodeClassNotReady
from shiplap.kubernetes.objects import Taint
from shiplap.manifests.validation.user_data_rules import LIMIT_BYTES, is_archive

NODE_CONFIG = "application/node.eks.aws"

_IS_NODE_CONFIG = re.compile(r"""(?:^|[{,])\s*["']?apiVersion["']?\s*:\s*["']?node\.eks\.aws/""", re.MULTILINE)
_WINDOWS_SCRIPT = r"$env:ProgramFiles\Amazon\EKS\Start-EKSBootstrap.ps1"


def al2(wanted: Bootstrap) -> str:
    """AL2: a MIME document that calls the AMI's bootstrap script, after the user's own part.

    Raises:
        NodeClassNotReady: the user's document is broken.
    """
    custom: list[mime.MimePart] = []
    if wanted.custom.strip():
        archive = is_archive(wanted.custom)
        custom = mime.parts(wanted.custom) if archive else [mime.MimePart.of(mime.SHELL, wanted.custom)]
    return mime.archive([*custom, mime.MimePart.of(mime.SHELL, _al2_script(wanted))])


def _al2_script(wanted: Bootstrap) -> str:
    words = ["/etc/eks/bootstrap.sh", quote(wanted.cluster)]
    words += ["--apiserver-endpoint", quote(wanted.endpoint), "--b64-cluster-ca", quote(wanted.ca)]
    if wanted.dns:
        words += ["--dns-cluster-ip", quote(wanted.dns)]
        if ":" in wanted.dns:
            words += ["--ip-family", "ipv6"]
    words += ["--use-max-pods", "false"]
    if wanted.raid0:
        words += ["--local-disks", "raid0"]
    words += ["--kubelet-extra-args", quote(" ".join(kubelet_flags(wanted)))]
    return "\n".join(("#!/bin/bash", "set -euo pipefail", " ".join(words)))


def al2023(wanted: Bootstrap) -> str:
    """AL2023: a MIME document with nodeadm's NodeConfig, after the user's own part, so that these values apply.

    The NodeConfig is written as JSON, which is YAML too.

    Raises:
        NodeClassNotReady: the cluster's service range is unknown, or the user's document is broken.
    """
    if not wanted.service_cidr:
        text = (
            f"AL2023 nodes need the service CIDR of cluster {wanted.cluster}; set serviceCIDR for clusters outside EKS"
        )
        raise mime.invalid(text, "ClusterCIDRResolutionFailed")
    return mime.archive([*_al2023_custom(wanted.custom), mime.MimePart.of(NODE_CONFIG, _node_config(wanted))])


def _al2023_custom(text: str) -> list[mime.MimePart]:
    """The user's part(s): a MIME archive, a NodeConfig, cloud-config or a script, told apart by how they begin."""
    if not text.strip():
        return []
    if is_archive(text):
        return mime.parts(text)
    if text.lstrip().startswith("#cloud-config"):
        return [mime.MimePart.of("text/cloud-config", text)]
    if not text.lstrip().startswith("#!") and _IS_NODE_CONFIG.search(text):
        return [mime.MimePart.of(NODE_CONFIG, text)]
    return [mime.MimePart.of(mime.SHELL, text)]


def _node_config(wanted: Bootstrap) -> str:
    config: dict[str, Any] = dict(wanted.kubelet)
    if wanted.max_pods:
        config["maxPods"] = wanted.max_pods
    if wanted.taints:
        config["registerWithTaints"] = [_taint(taint) for taint in wanted.taints]
    spec: dict[str, Any] = {
        "cluster": {
            "name": wanted.cluster,
            "apiServerEndpoint": wanted.endpoint,
            "certificateAuthority": wanted.ca,
            "cidr": wanted.service_cidr,
        },
        "kubelet": {"config": config},
    }
    if wanted.raid0:
        spec["instance"] = {"localStorage": {"strategy": "RAID0"}}
    if wanted.labels:
        spec["kubelet"]["flags"] = [
            "--node-labels=" + ",".join(f"{key}={value}" for key, value in wanted.labels.items())
        ]
    document = {"apiVersion": "node.eks.aws/v1alpha1", "kind": "NodeConfig", "spec": spec}
    return msgspec.json.format(msgspec.json.encode(document, order="deterministic"), indent=2).decode()


def _taint(taint: Taint) -> dict[str, str]:
    shown = {"key": taint.key, "value": taint.value, "effect": taint.effect}
    return {name: value for name, value in shown.items() if value}


def windows(wanted: Bootstrap) -> str:
    """Windows: a PowerShell block that calls the AMI's bootstrap script, after the user's own part.

    The user's own `<powershell>` tags are taken off, because only one block may be there.
    """
    custom = wanted.custom.strip().removeprefix("<powershell>").removesuffix("</powershell>").strip()
    call = [
        f'& "{_WINDOWS_SCRIPT}"',
        f"-EKSClusterName {_powershell_quote(wanted.cluster)}",
        f"-APIServerEndpoint {_powershell_quote(wanted.endpoint)}",
        f"-Base64ClusterCA {_powershell_quote(wanted.ca)}",
    ]
    if wanted.dns:
        call.append(f"-DNSClusterIP {_powershell_quote(wanted.dns)}")
    call.append(f"-KubeletExtraArgs {_powershell_quote(' '.join(kubelet_flags(wanted)))}")
    lines = ["<powershell>", *([custom] if custom else []), " ".join(call), "</powershell>", ""]
    return "\n".join(lines)


def _powershell_quote(text: str) -> str:
    """A PowerShell string that expands nothing."""
    return "'" + text.replace("'", "''") + "'"


def _custom(wanted: Bootstrap) -> str:
    """Nothing is added: such images join the cluster by their own means."""
    return wanted.custom


_RENDER: dict[str, Callable[[Bootstrap], str]] = {
    "AL2": al2,
    "AL2023": al2023,
    "Bottlerocket": bottlerocket.render,
    "Windows2019": windows,
    "Windows2022": windows,
    "Windows2025": windows,
    "Custom": _custom,
}


def user_data(wanted: Bootstrap) -> str:
    """User data as text. It is never put into a message: users keep secrets in it.

    Raises:
        NodeClassNotReady: the user's part cannot be merged, or the whole is larger than EC2 takes.
    """
    text = _RENDER[wanted.family](wanted)
    size = len(text.encode())
    if size > LIMIT_BYTES:
        raise NodeClassNotReady(
            f"user data is {size} bytes, EC2 takes {LIMIT_BYTES}: shorten spec.userData or the labels and taints",
            code="UserDataSizeLimitExceeded",
        )
    return text
