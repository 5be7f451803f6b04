"""The CDK construct `Shiplap` and the stack `ShiplapStack`: all of Shiplap for an account and a Region.

For a CDK app of your own: `from shiplap_cdk import Shiplap, ShiplapStack, read`. The names are looked up when they are
used, since importing the CDK starts Node.js, which settings and layers do without.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shiplap_cdk.artifacts.layers import Artifacts
    from shiplap_cdk.install_document import InstallConfig, read
    from shiplap_cdk.stack import Shiplap, ShiplapStack

__all__ = ["Artifacts", "InstallConfig", "Shiplap", "ShiplapStack", "read"]

_WHERE = {
    "Artifacts": "shiplap_cdk.artifacts.layers",
    "InstallConfig": "shiplap_cdk.install_document",
    "Shiplap": "shiplap_cdk.stack",
    "ShiplapStack": "shiplap_cdk.stack",
    "read": "shiplap_cdk.install_document",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_WHERE[name]), name)
