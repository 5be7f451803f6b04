"""Parses user data as a node's boot scripts do: the labels, taints and kubelet settings that the node registers with.

It reads the formats of nodeadm (AL2023), Bottlerocket and the EKS bootstrap scripts (AL2, Windows). User data that a
real node would not understand leaves a simulated node without labels, too.
"""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Mapping
from email import message_from_string
from typing import Any

import msgspec
import yaml

from shiplap.errors import InvalidInput
from shiplap.kubernetes.objects import Taint

_TABLES = {
    "kube-reserved": "kubeReserved",
    "system-reserved": "systemReserved",
    "eviction-hard": "evictionHard",
}
_NUMBERS = {"max-pods": "maxPods", "pods-per-core": "podsPerCore"}
_FLAG = re.compile(r"--(?P<name>[a-z0-9-]+)[= ](?P<value>\S+)")
_HUGE_PAGES = re.compile(r"^[^#\n]*\bvm\.nr_hugepages=(\d+)", re.MULTILINE)


class NodeRegistration(msgspec.Struct, frozen=True):
    """The settings with which a kubelet registers. `kubelet` holds settings by their names in KubeletConfiguration.

    `huge_pages` counts the pages of 2 MiB that scripts set aside before kubelet starts.
    """

    family: str = "Custom"
    cluster: str = ""
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    kubelet: dict[str, Any] = {}
    huge_pages: int = 0


def registration(user_data: str) -> NodeRegistration:
    """Return what the node will do with its user data; nothing but `Custom` when no known boot script understands it.

    Raises:
        InvalidInput: the boot script would fail on it.
    """
    text = user_data.lstrip()
    try:
        return _understood(text)
    except (ValueError, yaml.YAMLError) as error:  # TOML errors and malformed numbers are ValueErrors
        raise InvalidInput("user data", " ".join(str(error).split())) from error


def _understood(text: str) -> NodeRegistration:
    if text.startswith("[settings") or "\n[settings" in text:
        return _bottlerocket(text)
    configs, scripts = _parts(text)
    pages = [int(count) for script in scripts for count in _HUGE_PAGES.findall(script)]
    return msgspec.structs.replace(_of_boot_parts(configs, scripts), huge_pages=pages[-1] if pages else 0)


def _of_boot_parts(configs: list[dict[str, Any]], scripts: list[str]) -> NodeRegistration:
    if configs:
        return _node_config(configs)
    for script in scripts:
        if "/etc/eks/bootstrap.sh" in script:
            return _bootstrap(script, "AL2")
        if "Start-EKSBootstrap.ps1" in script:
            return _bootstrap(script, "Windows2022")
    return NodeRegistration()


def _parts(text: str) -> tuple[list[dict[str, Any]], list[str]]:
    """The NodeConfigs and the scripts of a MIME document, or of a text that is one of them."""
    message = message_from_string(text)
    parts = [part for part in message.walk() if not part.is_multipart()] if message.is_multipart() else []
    bodies = [str(part.get_payload()) for part in parts] or [text]
    configs, scripts = [], []
    for body in bodies:
        if body.lstrip().startswith(("#!", "<powershell>")):
            scripts.append(body)
        elif "node.eks.aws/" in body:
            configs.append(yaml.safe_load(body))
    return configs, scripts


def _node_config(configs: list[dict[str, Any]]) -> NodeRegistration:
    """nodeadm merges all NodeConfigs, later ones winning; flags of all of them are passed on."""
    kubelet: dict[str, Any] = {}
    flags: list[str] = []
    cluster = ""
    for config in configs:
        spec = config.get("spec", {})
        cluster = spec.get("cluster", {}).get("name", cluster)
        kubelet |= spec.get("kubelet", {}).get("config", {})
        flags += spec.get("kubelet", {}).get("flags", [])
    taints = tuple(msgspec.convert(taint, Taint) for taint in kubelet.pop("registerWithTaints", ()))
    from_flags = _of_flags(" ".join(flags))
    return NodeRegistration(
        family="AL2023",
        cluster=cluster,
        labels=from_flags.labels,
        taints=taints + from_flags.taints,
        kubelet={**kubelet, **from_flags.kubelet},
    )


def _bootstrap(script: str, family: str) -> NodeRegistration:
    if family == "AL2":
        words = shlex.split(script, comments=True)
        call = words[words.index("/etc/eks/bootstrap.sh") :]
        options = dict(zip(call[2::2], call[3::2], strict=False))
        cluster, flags = call[1], options.get("--kubelet-extra-args", "")
    else:
        name = re.search(r"-EKSClusterName '?([^'\s]+)", script)
        arguments = re.search(r"-KubeletExtraArgs '([^']*)'", script)
        cluster, flags = name[1] if name else "", arguments[1] if arguments else ""
    parsed = _of_flags(flags)
    return msgspec.structs.replace(parsed, family=family, cluster=cluster)


def _of_flags(flags: str) -> NodeRegistration:
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    kubelet: dict[str, Any] = {}
    for match in _FLAG.finditer(flags):
        name, value = match["name"], match["value"].strip("\"'")  # systemd takes quotes away from nodeadm's flags
        if name == "node-labels":
            labels |= dict(label.split("=", 1) for label in value.split(","))
        elif name == "register-with-taints":
            taints += tuple(_taint(item) for item in value.split(","))
        elif name in _NUMBERS:
            kubelet[_NUMBERS[name]] = int(value)
        elif name in _TABLES:
            kubelet[_TABLES[name]] = dict(re.split("[=<]", item, maxsplit=1) for item in value.split(","))
    return NodeRegistration(labels=labels, taints=taints, kubelet=kubelet)


def _taint(text: str) -> Taint:
    """`key=value:Effect` or `key:Effect`."""
    left, _, effect = text.rpartition(":")
    key, _, value = left.partition("=")
    return Taint(key, effect, value)


def _bottlerocket(text: str) -> NodeRegistration:
    settings: Mapping[str, Any] = tomllib.loads(text).get("settings", {}).get("kubernetes", {})
    kubelet: dict[str, Any] = {field: settings[name] for name, field in _TABLES.items() if name in settings}
    kubelet |= {field: int(settings[name]) for name, field in _NUMBERS.items() if name in settings}
    taints = []
    for key, written in settings.get("node-taints", {}).items():
        for item in written:
            value, _, effect = item.partition(":")
            taints.append(Taint(key, effect, value))
    return NodeRegistration(
        family="Bottlerocket",
        cluster=settings.get("cluster-name", ""),
        labels=dict(settings.get("node-labels", {})),
        taints=tuple(taints),
        kubelet=kubelet,
    )
