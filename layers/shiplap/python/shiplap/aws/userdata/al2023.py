"""AL2023: nodeadm's NodeConfig, after the user's own part, so that these values have the last word."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from shiplap.aws.userdata import mime
from shiplap.aws.userdata.bootstrap import Bootstrap
from shiplap.kubernetes.objects import Taint
from shiplap.manifests.validation.user_data_rules import is_archive

NODE_CONFIG = "application/node.eks.aws"

_IS_NODE_CONFIG = re.compile(r"""(?:^|[{,])\s*["']?apiVersion["']?\s*:\s*["']?node\.eks\.aws/""", re.MULTILINE)


def render(wanted: Bootstrap) -> str:
    """The MIME document. The NodeConfig is written as JSON, which is YAML too.

    Raises:
        NodeClassNotReady: the cluster's service range is unknown, or the user's document is broken.
    """
    if not wanted.service_cidr:
        text = (
            f"AL2023 nodes need the service CIDR of cluster {wanted.cluster}; set serviceCIDR for clusters outside EKS"
        )
        raise mime.invalid(text, "ClusterCIDRResolutionFailed")
    return mime.archive([*_custom(wanted.custom), mime.MimePart.of(NODE_CONFIG, _node_config(wanted))])


def _custom(text: str) -> list[mime.MimePart]:
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
