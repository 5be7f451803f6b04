"""Bottlerocket: settings in TOML. The user's settings stay, except those the plan relies on.

The standard library only reads TOML; `dumps` writes the kinds of tables and values that settings have.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from datetime import date, datetime, time
from typing import Any

from shiplap.aws.userdata.bootstrap import Bootstrap
from shiplap.aws.userdata.mime import invalid

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def dumps(document: Mapping[str, Any]) -> str:
    """A document as TOML, keys sorted, so that equal documents give equal text.

    Raises:
        TypeError: a value has no form in TOML.
    """
    return "\n".join(_table(document, ())) + "\n"


def _table(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    plain = {key: value for key, value in sorted(table.items()) if not isinstance(value, Mapping)}
    if path and (plain or not table):
        yield f"[{'.'.join(_key(part) for part in path)}]"
    for key, value in plain.items():
        yield f"{_key(key)} = {_value(value)}"
    for key, value in sorted(table.items()):
        if isinstance(value, Mapping):
            yield from _table(value, (*path, key))


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _text(key)


def _text(text: str) -> str:
    # A JSON string is a TOML basic string, but for DEL, which TOML wants escaped.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return _text(value)
        case int() | float():
            return repr(value)
        case datetime() | date() | time():
            return value.isoformat()
        case list() | tuple():
            return f"[{', '.join(_value(item) for item in value)}]"
        case Mapping():
            return "{ " + ", ".join(f"{_key(key)} = {_value(item)}" for key, item in sorted(value.items())) + " }"
    raise TypeError(f"{type(value).__name__} has no form in TOML")


_BINDS_BY_ITSELF = (1, 46)
"""From this version on `ephemeral-storage bind` knows the directories by itself."""

_MOUNT = "000-mount-instance-storage"
_DIRECTORIES = ["/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods"]
_TABLES = {
    "kubeReserved": "kube-reserved",
    "systemReserved": "system-reserved",
    "evictionHard": "eviction-hard",
    "evictionSoft": "eviction-soft",
    "evictionSoftGracePeriod": "eviction-soft-grace-period",
}


def render(wanted: Bootstrap) -> str:
    """The merged settings.

    Raises:
        NodeClassNotReady: the user's settings are not TOML.
    """
    try:
        document = tomllib.loads(wanted.custom)
    except tomllib.TOMLDecodeError as error:
        raise invalid(f"userData is not TOML: {error}") from error
    settings = _section(document, "settings")
    own = _section(settings, "kubernetes")
    own |= _kubernetes(wanted)
    own["node-labels"] = _section(own, "node-labels") | wanted.labels
    own["node-taints"] = _taints(wanted)
    if wanted.raid0:
        _section(settings, "bootstrap-commands")[_MOUNT] = _mount(wanted.release)
    return dumps({"settings": settings})


def _section(table: dict[str, Any], key: str) -> dict[str, Any]:
    """A table inside a table, made when it is not there."""
    section = table.setdefault(key, {})
    if not isinstance(section, dict):
        raise invalid(f"userData: {key} must be a table")
    return section


def _kubernetes(wanted: Bootstrap) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "api-server": wanted.endpoint,
        "cluster-certificate": wanted.ca,
        "cluster-name": wanted.cluster,
    }
    if wanted.dns:
        settings["cluster-dns-ip"] = wanted.dns
    if wanted.max_pods:
        settings["max-pods"] = wanted.max_pods
    kubelet = wanted.kubelet
    for written, name in _TABLES.items():
        if kubelet.get(written):
            settings[name] = {key: str(value) for key, value in kubelet[written].items()}
    settings |= _scalars(kubelet)
    return settings


def _scalars(kubelet: Mapping[str, Any]) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    if "evictionMaxPodGracePeriod" in kubelet:
        settings["eviction-max-pod-grace-period"] = int(kubelet["evictionMaxPodGracePeriod"])
    if "imageGCHighThresholdPercent" in kubelet:
        settings["image-gc-high-threshold-percent"] = str(kubelet["imageGCHighThresholdPercent"])
    if "imageGCLowThresholdPercent" in kubelet:
        settings["image-gc-low-threshold-percent"] = str(kubelet["imageGCLowThresholdPercent"])
    if "cpuCFSQuota" in kubelet:
        settings["cpu-cfs-quota-enforced"] = bool(kubelet["cpuCFSQuota"])
    return settings


def _taints(wanted: Bootstrap) -> dict[str, list[str]]:
    taints: dict[str, list[str]] = {}
    for taint in wanted.taints:
        taints.setdefault(taint.key, []).append(f"{taint.value}:{taint.effect}")
    return taints


def _mount(release: str) -> dict[str, Any]:
    bind = ["apiclient", "ephemeral-storage", "bind"]
    if not binds_by_itself(release):
        bind += ["--dirs", *_DIRECTORIES]
    return {
        "commands": [["apiclient", "ephemeral-storage", "init"], bind],
        "essential": True,
        "mode": "always",
    }


def binds_by_itself(release: str) -> bool:
    """True if a release such as `1.46.0`, `v1.46.0-abc` or `latest` needs no list of directories."""
    if release == "latest":
        return True
    match = re.match(r"v?(\d+)\.(\d+)\.(\d+)", release)
    return match is not None and tuple(int(number) for number in match.groups()) >= _BINDS_BY_ITSELF
