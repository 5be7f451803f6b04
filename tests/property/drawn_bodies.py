"""Bodies of manifests that Hypothesis draws."""

from __future__ import annotations

from typing import Any

from shiplap.kubernetes import labels
from tests.conformance.catalogues import Z2

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def bodies(kind: int) -> dict[str, Any]:
    """Return the parts that set a pod apart: none, a zone, spreading, keeping away, a port, protection."""
    labelled: dict[str, Any] = {"metadata": {"labels": {"app": "a"}}}
    selector = {"labelSelector": {"matchLabels": {"app": "a"}}}
    spread = {"topologyKey": labels.ZONE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **selector}
    away = {REQUIRED: [{"topologyKey": labels.HOSTNAME, **selector}]}
    return (
        {},
        {"selector": {labels.ZONE: Z2}},
        {**labelled, "spec": {"topologySpreadConstraints": [spread]}},
        {**labelled, "spec": {"affinity": {"podAntiAffinity": away}}},
        labelled,
        {"metadata": {"annotations": {labels.DO_NOT_DISRUPT: "true"}}},
        {"ports": [8080]},
    )[kind]
