"""Files with gangs: a NodePool with GPUs and templates for it, and a folder that `shiplap plan` is given."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.commands import listed
from tests.unit.cli.planned_files import CATALOG, POOL
from tests.unit.manifests.manifest_samples import NODE_POOL, changed

GPU = "nvidia.com/gpu"
MINIMUM = "shiplap.dev/gang-minimum"


def gpu_pool(name: str = "train", gpus: str = "", *families: str, **template: Any) -> dict[str, Any]:
    rule = {"key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": list(families or ("g6",))}
    made = changed(NODE_POOL, "metadata.name", name)
    made = changed(made, "spec.template.spec.requirements", [rule])
    made = changed(made, "spec.template.spec.taints", template.pop("taints", []))
    made = changed(made, "spec.template.metadata", {"labels": template.pop("labels", {})})
    return changed(made, "spec.limits", {GPU: gpus} if gpus else {})


def template(minimum: int | None = 4, gpus: str = "8", **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "resources": {"requests": {GPU: gpus}, "limits": {GPU: gpus}}}
    said = {} if minimum is None else {"annotations": {MINIMUM: str(minimum)}}
    return {"metadata": said, "spec": {"containers": [container], **spec}}


def arguments(folder: Path, nodes: int, *objects: dict[str, Any]) -> list[str]:
    pool = json.loads(json.dumps(POOL))
    pool["spec"]["limits"] = {"nodes": str(nodes)}
    (folder / "pool.json").write_text(listed(pool))
    (folder / "state.json").write_text(listed(*objects))
    (folder / "catalog.json").write_text(json.dumps(CATALOG))
    given = ("-f", str(folder / "state.json"), "--manifests", str(folder / "pool.json"))
    return ["plan", *given, "--catalog", str(folder / "catalog.json")]
