"""Tests the names of changes in the CRDs of another Karpenter release; the page of fields is of the pinned one."""

from __future__ import annotations

import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec import inspect

from shiplap.kubernetes import labels
from shiplap.manifests import template_hash
from tests.crds.manifest_fields import SPECS, names_of
from tests.go_modules import KARPENTER, KARPENTER_CORE, folder_of
from tests.product_attributes import attributes_read
from tools.karpenter_fields import (
    ANNOTATIONS,
    CRDS,
    PAGE,
    WITHOUT_EFFECT,
    Release,
    annotations_in,
    changes,
    fields_of_ours,
    release_in,
    text,
)

RULE = "has(self.small) || has(self.large)"
CRD: dict[str, Any] = {
    "spec": {
        "group": "karpenter.sh",
        "names": {"kind": "NodePool"},
        "versions": [
            {
                "name": "v1",
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "properties": {
                            "spec": {
                                "type": "object",
                                "required": ["sizes"],
                                "x-kubernetes-validations": [{"rule": RULE}, {"rule": "self.weight != 7"}],
                                "properties": {
                                    "weight": {"type": "integer", "minimum": 1, "maximum": 100},
                                    "policy": {"type": "string", "enum": ["Never", "Always"], "default": "Never"},
                                    "sizes": {"type": "array", "maxItems": 5, "items": {"type": "string"}},
                                },
                            }
                        }
                    }
                },
            }
        ],
    }
}


def releases(tmp_path: Path, changed: dict[str, Any]) -> tuple[Release, Release]:
    found = []
    for name, crd in (("v1.0.0", CRD), ("v1.1.0", changed)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "karpenter.sh_nodepools.yaml").write_text(yaml.safe_dump(crd))
        found.append(release_in(folder, name))
    return found[0], found[1]


def spec_of(crd: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return spec


def test_a_new_field_a_changed_bound_and_a_removed_rule_are_named(tmp_path: Path) -> None:
    changed = deepcopy(CRD)
    spec_of(changed)["properties"]["pause"] = {"type": "boolean", "default": False}
    spec_of(changed)["properties"]["weight"]["maximum"] = 10000
    del spec_of(changed)["x-kubernetes-validations"][0]
    assert list(changes(*releases(tmp_path, changed))) == [
        f"NodePool spec: rule removed: {RULE}",
        "NodePool spec.pause: field added (type boolean, default false)",
        "NodePool spec.weight: maximum 100 → 10000",
    ]


def test_other_changes_are_named_as_well(tmp_path: Path) -> None:
    changed = deepcopy(CRD)
    spec = spec_of(changed)
    spec["required"] = []
    spec["properties"]["policy"] = {"type": "string", "enum": ["Never", "Sometimes"], "default": "Sometimes"}
    spec["properties"]["sizes"] = {"type": "array", "items": {"type": "integer"}}
    del spec["properties"]["weight"]
    assert list(changes(*releases(tmp_path, changed))) == [
        "NodePool spec: required field removed: sizes",
        'NodePool spec.policy: default "Never" → "Sometimes"',
        "NodePool spec.policy: value removed: Always",
        "NodePool spec.policy: value added: Sometimes",
        "NodePool spec.sizes: maxItems 5 → none",
        "NodePool spec.sizes[]: type string → integer",
        "NodePool spec.weight: field removed",
    ]


def test_a_kind_that_comes_or_goes_is_named(tmp_path: Path) -> None:
    changed = deepcopy(CRD)
    changed["spec"]["names"]["kind"] = "NodeGroup"
    assert list(changes(*releases(tmp_path, changed))) == ["NodeGroup: kind added", "NodePool: kind removed"]


def test_a_field_that_shiplap_does_not_know_is_refused_in_the_table(tmp_path: Path) -> None:
    _, release = releases(tmp_path, CRD)
    page = text(release)
    assert '| `policy` | string; one of `Never`, `Always` | `"Never"` | refused |' in page
    assert "| `weight` | integer; minimum 1, maximum 100 |  | read |" in page


def test_the_page_is_that_of_the_pinned_release() -> None:
    provider = folder_of(KARPENTER)
    annotations = annotations_in(provider, folder_of(KARPENTER_CORE))
    release = release_in(provider / CRDS, KARPENTER[0].partition("@")[2], annotations)
    assert PAGE.read_text() == text(release), "`make docs` writes it anew"
    assert list(changes(release, release)) == []
    assert set(annotations) == ANNOTATIONS.keys(), "each has its use, and no use is of an annotation that is gone"


def test_a_new_annotation_is_named_and_said_to_be_unknown(tmp_path: Path) -> None:
    old, new = releases(tmp_path, CRD)
    known = "karpenter.sh/do-not-repair"
    old, new = old._replace(annotations=(known,)), new._replace(annotations=(known, "karpenter.sh/new"))
    assert list(changes(old, new)) == ["annotation karpenter.sh/new: added"]
    assert "| `karpenter.sh/new` | without effect: this release of Shiplap does not know it |" in text(new)
    assert f"| `{known}` | read on Nodes and NodeClaims" in text(new)


@pytest.mark.parametrize("name", sorted(name for name, use in ANNOTATIONS.items() if use.startswith("read")))
def test_annotations_that_are_read_stand_in_the_product(name: str) -> None:
    known = {value for value in (*vars(labels).values(), *vars(template_hash).values()) if isinstance(value, str)}
    assert name in known


def test_fields_without_effect_are_upstreams_and_not_ours() -> None:
    rows = re.findall(r"^\| `(\S+)` .* \| without effect: .* \|$", PAGE.read_text(), re.MULTILINE)
    assert {f"spec.{name}" for name in rows} == WITHOUT_EFFECT.keys()
    for kind in SPECS:
        assert fields_of_ours(kind).isdisjoint(WITHOUT_EFFECT)


@pytest.mark.parametrize("kind", SPECS)
def test_product_code_reads_every_field_that_is_called_read(kind: str) -> None:
    assert names_of(inspect.type_info(SPECS[kind])) - attributes_read() == set()
