"""What the user data of an old node says about its labels, taints and pods per node.

Self-managed groups tell their nodes so at boot: by `--kubelet-extra-args` of the AL2 bootstrap script, by a NodeConfig
or by Bottlerocket's settings.
"""

from __future__ import annotations

import base64
import binascii
import re

import msgspec

from shiplap.kubernetes.objects import Taint

_LABELS = re.compile(r"--node-labels[= ]['\"]?([^\s'\"]+)")
_TAINTS = re.compile(r"--register-with-taints[= ]['\"]?([^\s'\"]+)")
_MAX_PODS = re.compile(r"(?:--max-pods[= ]['\"]?|max-pods\s*=\s*|maxPods:\s*)(\d+)")
_TABLE = re.compile(r"^\s*\[([^\]\n]+)\]\s*$", re.MULTILINE)
_PAIR = re.compile(r"^\s*[\"']?([A-Za-z0-9./_-]+)[\"']?\s*=\s*[\[]?\s*[\"']([^\"'\n]*)[\"']", re.MULTILINE)


class UserData(msgspec.Struct, frozen=True):
    """`family` is the AMI family that the user data is written for, empty when it cannot be told."""

    text: str = ""
    family: str = ""
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    max_pods: int | None = None


def read(user_data: str) -> UserData:
    """What a launch template's user data (base64) says; nothing when it is not text."""
    try:
        text = base64.b64decode(user_data, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return UserData()
    if not text:
        return UserData()
    pods = _MAX_PODS.search(text)
    labels, taints = _flags(text)
    if _family(text) == "Bottlerocket":
        labels, taints = _tables(text)
    return UserData(text, _family(text), labels, taints, int(pods[1]) if pods else None)


def _family(text: str) -> str:
    if "/etc/eks/bootstrap.sh" in text:
        return "AL2"
    if "node.eks.aws" in text:
        return "AL2023"
    if "[settings.kubernetes" in text:
        return "Bottlerocket"
    return "Windows" if "Start-EKSBootstrap" in text else ""


def _flags(text: str) -> tuple[dict[str, str], tuple[Taint, ...]]:
    labels: dict[str, str] = {}
    for found in _LABELS.findall(text):
        for pair in found.split(","):
            key, _, value = pair.partition("=")
            if key:
                labels[key] = value
    taints = [taint for found in _TAINTS.findall(text) for part in found.split(",") if (taint := parsed_taint(part))]
    return labels, tuple(taints)


def _tables(text: str) -> tuple[dict[str, str], tuple[Taint, ...]]:
    pieces = _TABLE.split(text)
    labels: dict[str, str] = {}
    taints: list[Taint] = []
    for name, body in zip(pieces[1::2], pieces[2::2], strict=True):
        match name.strip():
            case "settings.kubernetes.node-labels":
                labels |= dict(_PAIR.findall(body))
            case "settings.kubernetes.node-taints":
                taints += [taint for key, rest in _PAIR.findall(body) if (taint := parsed_taint(f"{key}={rest}"))]
    return labels, tuple(taints)


def parsed_taint(text: str) -> Taint | None:
    """`key=value:Effect`, as a taint is written on command lines; None when it is not one."""
    rest, colon, effect = text.rpartition(":")
    key, _, value = rest.partition("=")
    return Taint(key, effect, value) if colon and key and effect else None
