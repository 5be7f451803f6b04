"""Cases of nodes whose NodePool sleeps."""

from __future__ import annotations

from typing import Any

from shiplap.kubernetes.objects import Pod
from shiplap.policies.sleep.sleep_state import SleepingScope, SleepState
from tests.builders.pods import pod_on
from tests.conformance.disruptions import NOW

WAKES = int(NOW) + 8 * 3600


LATER = int(NOW) + 9 * 3600


def scope(name: str = "default", kind: str = "NodePool", **fields: Any) -> SleepingScope:
    return SleepingScope(kind, name, int(NOW) - 600, LATER, fields.pop("wakes_at", WAKES), **fields)


def state(*scopes: SleepingScope, armed: tuple[str, ...] = ("default",), left: int = 100) -> SleepState:
    return SleepState(armed, scopes or (scope(),), left)


def owned(name: str, node: str = "", **fields: Any) -> Pod:
    metadata = {"ownerReferences": [{"kind": "ReplicaSet", "name": "r", "uid": "r", "controller": True}]}
    metadata |= fields.pop("metadata", {})
    return pod_on(name, node, metadata=metadata, **fields)
