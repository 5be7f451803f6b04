"""The CDK app: one stack, one construct per concern.

For a CDK app of your own: `from infra import Artifacts, Shiplap, read`. The names are looked up when they are used,
since importing the CDK starts Node.js, which settings and layers do without.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from infra.functions import Artifacts
    from infra.settings import InstallConfig, read
    from infra.stack import Shiplap, ShiplapStack

__all__ = ["Artifacts", "InstallConfig", "Shiplap", "ShiplapStack", "read"]

_WHERE = {
    "Artifacts": "infra.functions",
    "InstallConfig": "infra.settings",
    "Shiplap": "infra.stack",
    "ShiplapStack": "infra.stack",
    "read": "infra.settings",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_WHERE[name]), name)
