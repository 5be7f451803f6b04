"""Writes docs/reference/karpenter-fields.md from the CRDs of a Karpenter release, and prints what differs.

`python tools/karpenter_fields.py` writes the page for the release that the tests compare with. `make upstream
KARPENTER=v1.16.0` writes it for another one and prints each field, bound, enum, rule and default that changed.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import yaml
from msgspec import inspect

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # run as a program, it finds only its own folder

from shiplap.kubernetes.objects import Taint  # noqa: E402
from tests.crds.manifest_fields import BY_RULE, SPECS, fields_here  # noqa: E402
from tests.crds.schemas import ENTRY, ITEM, Schema, inner_schemas, own_constraints, schema_in  # noqa: E402
from tests.go_modules import KARPENTER, KARPENTER_CORE, download  # noqa: E402

PAGE = ROOT / "docs" / "reference" / "karpenter-fields.md"
CRDS = Path("pkg", "apis", "crds")
"""Where the provider's module has its CRDs and those of Karpenter's core."""

WITHOUT_EFFECT = {
    "spec.template.spec.taints[].timeAdded": "nodes get their taints without it",
    "spec.template.spec.startupTaints[].timeAdded": "nodes get their taints without it",
}
"""Fields that are accepted and decide nothing, and the reason."""
NOT_READ = {
    "NodeClaim": "Table `state` has the claims. With `manifests: cluster` objects show them; only a deletion is read.",
}
"""Kinds without effect, and the reason."""


NO_REBOOTS = "without effect: table `state` has the reboots of a claim"
ANNOTATIONS = {
    "karpenter.sh/do-not-disrupt": "read on pods, Nodes and the template of a NodePool; without effect on a NodeClaim",
    "karpenter.sh/do-not-repair": "read on Nodes and NodeClaims, and on the template of a NodePool",
    "karpenter.sh/nodepool-hash": "read and written",
    "karpenter.sh/nodepool-hash-version": "read and written",
    "karpenter.sh/nodeclaim-termination-timestamp": "written",
    "karpenter.sh/nodeclaim-min-values-relaxed": "written",
    "karpenter.sh/reboot-pre-boot-id": NO_REBOOTS,
    "karpenter.sh/reboot-termination-grace-period": NO_REBOOTS,
    "karpenter.sh/requested-dra-drivers": "without effect: nodes are initialized without waiting for DRA drivers",
    "karpenter.sh/disruption-cost": "read on pods, before `controller.kubernetes.io/pod-deletion-cost`",
    "karpenter.k8s.aws/ec2nodeclass-hash": "read and written",
    "karpenter.k8s.aws/ec2nodeclass-hash-version": "read and written",
    "karpenter.k8s.aws/tagged": "without effect: table `state` has the instance of a claim",
    "karpenter.k8s.aws/instance-profile-name": "without effect: the name follows from install, EC2NodeClass and role",
    "karpenter.k8s.aws/nvidia-consumable-capacity": "without effect: devices of DRA are not planned for",
    "compatibility.karpenter.k8s.aws/cluster-name-tagged": "without effect: instances get their tags at launch",
}
"""The use of each annotation that Karpenter reads or writes."""

_GO_ANNOTATION = re.compile(
    r'^\s*\w*Annotation\w*\s*=\s*apis\.(Group|CompatibilityGroup)\s*\+\s*"(/[a-z0-9-]+)"', re.MULTILINE
)


class Release(NamedTuple):
    """The schema of `spec` by kind, and the names of annotations."""

    version: str
    schemas: Mapping[str, Schema]
    annotations: tuple[str, ...] = ()


def release_in(folder: Path, version: str, annotations: tuple[str, ...] = ()) -> Release:
    """The CRDs that are YAML files of a folder."""
    crds = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.yaml"))]
    return Release(version, {crd["spec"]["names"]["kind"]: schema_in(crd) for crd in crds}, annotations)


def annotations_in(provider: Path, core: Path) -> tuple[str, ...]:
    """The annotations that the Go source of Karpenter's AWS provider and of its core name, sorted."""
    found = []
    for folder, group in ((core, "karpenter.sh"), (provider, "karpenter.k8s.aws")):
        source = (folder / "pkg" / "apis" / "v1" / "labels.go").read_text(encoding="utf-8")
        for kind, name in _GO_ANNOTATION.findall(source):
            found.append(("compatibility." if kind == "CompatibilityGroup" else "") + group + name)
    return tuple(sorted(found))


def download_release(version: str = "") -> tuple[Release, str]:
    """A release of Karpenter's AWS provider, by default the pinned one, and the sum to pin it with.

    The annotations of the core are those of the pinned core.
    """
    module, pinned = KARPENTER[0].split("@")
    folder, found = download(f"{module}@{version or pinned}")
    core, _ = download(KARPENTER_CORE[0])
    return release_in(folder / CRDS, version or pinned, annotations_in(folder, core)), found


def changes(old: Release, new: Release) -> Iterator[str]:
    """Each difference between two releases, one line each: annotations, then by kind and field."""
    for name in sorted(set(old.annotations) ^ set(new.annotations)):
        yield f"annotation {name}: {'added' if name in new.annotations else 'removed'}"
    for kind in sorted(old.schemas.keys() | new.schemas.keys()):
        if kind not in new.schemas or kind not in old.schemas:
            yield f"{kind}: kind {'added' if kind in new.schemas else 'removed'}"
            continue
        before, after = (dict(_places(release.schemas[kind])) for release in (old, new))
        for path in sorted(before.keys() | after.keys()):
            where = f"{kind} {path}"
            if path not in before:
                yield f"{where}: field added ({_summary(after[path])})"
            elif path not in after:
                yield f"{where}: field removed"
            else:
                yield from (f"{where}: {text}" for text in _altered(before[path], after[path]))


def _places(schema: Schema, path: str = "spec") -> Iterator[tuple[str, Schema]]:
    yield path, schema
    for step, inner in inner_schemas(schema):
        yield from _places(inner, f"{path}{step}" if step in (ITEM, ENTRY) else f"{path}.{step}")


def _altered(before: Schema, after: Schema) -> Iterator[str]:
    """Of one field: bounds, enums, rules and the default."""
    single = {name: _demands(schema) for name, schema in (("before", before), ("after", after))}
    for keyword in sorted(single["before"].keys() | single["after"].keys()):
        was, now = (single[name].get(keyword, "none") for name in ("before", "after"))
        if was != now:
            yield f"{keyword} {was} → {now}"
    old_sets, new_sets = _collections(before), _collections(after)
    yield from (f"{word} removed: {text}" for word, text in sorted(old_sets - new_sets))
    yield from (f"{word} added: {text}" for word, text in sorted(new_sets - old_sets))


def _demands(schema: Schema) -> dict[str, str]:
    """Constraints that a field has once: its type, its bounds, its default."""
    found = {
        item.keyword: item.detail
        for item in own_constraints(schema, ())
        if item.keyword not in ("enum", "rule", "required")
    }
    return found | ({"default": json.dumps(schema["default"])} if "default" in schema else {})


def _collections(schema: Schema) -> set[tuple[str, str]]:
    """Constraints that a field has several of: values of an enum, required fields, rules."""
    found = {("value", str(value)) for value in schema.get("enum", ())}
    found |= {("required field", name) for name in schema.get("required", ())}
    return found | {("rule", " ".join(rule["rule"].split())) for rule in schema.get("x-kubernetes-validations", ())}


def _summary(schema: Schema) -> str:
    return ", ".join(f"{keyword} {detail}" for keyword, detail in _demands(schema).items())


def text(release: Release) -> str:
    """The page."""
    lines = [
        "# Fields of Karpenter's API",
        "",
        f"Every field of `spec` in the CRDs of Karpenter's AWS provider {release.version}, and its use in Shiplap.",
        "A field that is not in the table is refused. `status` is accepted and not read.",
        "[Manifests](manifests.md) describes the rules and the differences.",
        "",
        "* **read**: the field decides what Shiplap does, as in Karpenter.",
        "* **without effect**: the field is accepted and decides nothing.",
        "* **refused**: Karpenter has the field, and a manifest that sets it is an error.",
        "",
        "This page is written by `make docs`.",
    ]
    if release.annotations:
        unknown = "without effect: this release of Shiplap does not know it"
        uses = (f"| `{name}` | {ANNOTATIONS.get(name, unknown)} |" for name in release.annotations)
        lines += ["", "## Annotations", "", "| annotation | use |", "|---|---|", *uses]
    for kind in sorted(release.schemas):
        lines += ["", f"## {kind}", "", *_section(kind, release.schemas[kind])]
    return "\n".join(lines) + "\n"


def _section(kind: str, schema: Schema) -> Iterator[str]:
    if kind in NOT_READ:
        yield NOT_READ[kind]
        yield ""
    known = fields_of_ours(kind)
    yield "| field | type and bounds | default | use |"
    yield "|---|---|---|---|"
    for path, inner in _places(schema):
        bounds = _bounds(inner)
        if path != "spec" and (bounds or not path.endswith((ITEM, ENTRY))):
            default = f"`{json.dumps(inner['default'])}`" if "default" in inner else ""
            shown = f"{_type(inner)}; {bounds}" if bounds else _type(inner)
            yield f"| `{path.removeprefix('spec.')}` | {shown} | {default} | {_use(kind, path, known)} |"


def fields_of_ours(kind: str) -> set[str]:
    """The paths of a kind that Shiplap's structs have."""
    if kind not in SPECS:
        return set()
    found = set()
    for path, _ in fields_here(inspect.type_info(SPECS[kind])):
        whole = f"spec.{path}".replace(f".{ITEM}", ITEM).replace(f".{ENTRY}", ENTRY)
        found.add(whole)
        if path.rpartition(".")[2] in BY_RULE:
            found |= {f"{whole}{ITEM}{step}" for step in ("", *(f".{name}" for name in Taint.__struct_encode_fields__))}
    return found


def _use(kind: str, path: str, known: set[str]) -> str:
    if kind in NOT_READ:
        return "without effect"
    if path in WITHOUT_EFFECT:
        return f"without effect: {WITHOUT_EFFECT[path]}"
    return "read" if path in known else "refused"


def _type(schema: Schema) -> str:
    if schema.get("type") == "object":
        return "object" if "properties" in schema else "map"
    named: str = schema.get("type", "")
    return {"array": "list", "": "integer or string"}.get(named, named)


def _bounds(schema: Schema) -> str:
    """The bounds of a value in one cell; patterns and rules are too long for it."""
    found = []
    for item in own_constraints(schema, ()):
        if item.keyword == "enum":
            found.append("one of " + ", ".join(f"`{value}`" for value in schema["enum"]))
        elif item.keyword in ("pattern", "set"):
            found.append({"pattern": "has a pattern", "set": "no duplicates"}[item.keyword])
        elif item.keyword not in ("type", "rule", "required", "format"):
            found.append(f"{item.keyword} {item.detail}")
    rules = len(schema.get("x-kubernetes-validations", ()))
    return ", ".join([*found, *([f"{rules} CEL rule{'s' if rules > 1 else ''}"] if rules else [])])


def main(arguments: list[str]) -> None:
    """Write the page; for another release than the pinned one, print the differences and the pin."""
    pinned, _ = download_release()
    asked, found = download_release(*arguments)
    PAGE.write_text(text(asked), encoding="utf-8")
    if asked.version == pinned.version:
        return
    lines = [f"{pinned.version} → {asked.version}", *changes(pinned, asked)]
    lines.append(f"To adopt it, set KARPENTER in tests/go_modules.py to {asked.version} with the sum {found}.")
    sys.stdout.writelines(f"{line}\n" for line in lines)


if __name__ == "__main__":
    main(sys.argv[1:])
