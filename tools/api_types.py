"""Writes api_types.json of src/shiplap_lab/api_server/bodies: Kubernetes' types, by which the local API reads bodies.

They are read from Kubernetes' Go types, one type a line. A field is written as its number in protobuf and its type,
then the key by which a strategic merge patch merges its list (`merge=`, empty for one of plain values) and those by
which server-side apply does (`keys=`). A name that begins with + is a struct whose fields JSON writes in its holder.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # run as a program, it finds only its own folder

from tests.go_modules import folder_of, kubernetes_module  # noqa: E402

FILE = ROOT / "src" / "shiplap_lab" / "api_server" / "bodies" / "api_types.json"
PACKAGES = {
    "k8s.io/api": (
        *("core/v1", "apps/v1", "batch/v1", "policy/v1", "storage/v1", "scheduling/v1", "coordination/v1"),
        *("networking/v1", "autoscaling/v2", "rbac/v1", "node/v1"),
    ),
    "k8s.io/apimachinery": ("pkg/apis/meta/v1",),
}
ROOTS = (
    *("Pod", "Node", "Event", "Namespace", "PersistentVolumeClaim", "PersistentVolume", "ConfigMap", "Service"),
    *("ReplicationController", "PodTemplate", "Binding", "DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"),
    *("ControllerRevision", "Job", "PodDisruptionBudget", "Eviction", "StorageClass", "CSINode", "CSIDriver"),
    *("VolumeAttachment", "PriorityClass", "Lease", "DeleteOptions", "CronJob", "ServiceAccount", "Secret"),
    *("Endpoints", "LimitRange", "ResourceQuota", "Ingress", "IngressClass", "NetworkPolicy"),
    *("HorizontalPodAutoscaler", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "RuntimeClass"),
)
SCALARS = {
    **dict.fromkeys(("int", "int32", "int64", "uint8", "uint32", "uint64", "int16"), "int"),
    **{name: name for name in ("bool", "string", "bytes")},
    **{name: name for name in ("Time", "MicroTime", "Quantity", "IntOrString")},
    **dict.fromkeys(("RawExtension", "FieldsV1", "Duration", "float64"), "any"),
}
_STRUCT = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_NAMED = re.compile(r"^type (\w+) ([\w.\[\]*]+)$", re.MULTILINE)
_FIELD = re.compile(r"^\t(?:(?P<field>\w+)\s+)?(?P<type>[\w.\[\]*]+)\s+`(?P<tag>[^`]*)`")
_MARK = re.compile(r"^\t// \+(listType|listMapKey)=(\w+)")


class Source(NamedTuple):
    """Structs by their name, and what other named types stand for."""

    structs: dict[str, str]
    named: dict[str, str]


def read_source() -> Source:
    """The Go types of all packages."""
    structs: dict[str, str] = {}
    named: dict[str, str] = {}
    for module, packages in PACKAGES.items():
        folder = folder_of(kubernetes_module(module))
        for package in packages:
            for path in sorted((folder / package).glob("*.go")):
                if path.name.endswith("_test.go") or path.name.startswith(("generated", "zz_generated")):
                    continue
                text = path.read_text(encoding="utf-8")
                for name, body in _STRUCT.findall(text):
                    structs.setdefault(name, body)
                for name, target in _NAMED.findall(text):
                    named.setdefault(name, target)
    return Source(structs, named)


def plain(kind: str, source: Source) -> str:
    """A Go type as the file writes it: a scalar, a struct, `[]` or `map ` of one."""
    kind = kind.lstrip("*")
    if kind == "[]byte":
        return "bytes"
    if kind.startswith("[]"):
        return f"[]{plain(kind[2:], source)}"
    if kind.startswith("map["):
        return f"map {plain(kind.partition(']')[2], source)}"
    kind = kind.rpartition(".")[2]
    if kind in SCALARS:
        return SCALARS[kind]
    if kind in source.structs:
        return kind
    return plain(source.named[kind], source) if kind in source.named else "string"


def fields_of(body: str, source: Source) -> Iterator[tuple[str, str]]:
    """Yield the name of each field of a struct in JSON, and what the file says of it."""
    marks: dict[str, list[str]] = {}
    for line in body.splitlines():
        if mark := _MARK.match(line):
            marks.setdefault(mark[1], []).append(mark[2])
            continue
        found = _FIELD.match(line)
        if found is None:
            continue
        tags = dict(re.findall(r'(\w+):"([^"]*)"', found["tag"]))
        number = tags["protobuf"].split(",")[1] if "protobuf" in tags else "0"
        words = [number, plain(found["type"], source)]
        if "merge" in tags.get("patchStrategy", ""):
            words.append(f"merge={tags.get('patchMergeKey', '')}")
        if marks.get("listType") == ["map"]:
            words.append(f"keys={','.join(marks['listMapKey'])}")
        elif marks.get("listType") == ["set"]:
            words.append("keys=")
        marks = {}
        name = tags.get("json", "").split(",")[0]
        if name != "-":
            yield name or f"+{found['type'].rpartition('.')[2]}", " ".join(words)


def types() -> dict[str, dict[str, str]]:
    """Every type that an object of ROOTS may hold."""
    source = read_source()
    found: dict[str, dict[str, str]] = {}
    waiting = list(ROOTS)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found[name] = dict(fields_of(source.structs[name], source))
        held = (field.split()[1:] for field in found[name].values())
        kinds = (words[1] if words[0] == "map" else words[0].removeprefix("[]") for words in held)
        waiting += [kind for kind in kinds if kind in source.structs and kind not in SCALARS]
    return dict(sorted(found.items()))


def written() -> str:
    """The content of the file."""
    lines = (
        f"{msgspec.json.encode(name).decode()}: {msgspec.json.encode(kind).decode()}" for name, kind in types().items()
    )
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    FILE.write_text(written(), encoding="utf-8")
