"""The item that gangs store."""

from __future__ import annotations

from typing import Any

from shiplap.aws.policies.gangs_adapters import DynamoGangTries
from shiplap.policies.gangs.memory.gang_tries import GangTries


def write(client: Any, now: float) -> None:
    tries = GangTries(
        gang="ml/train",
        created_at="2026-01-01T00:00:00Z",
        number=2,
        at=int(now),
        short="3 of 4 members would have a place",
        supply="digest",
        room={"nvidia.com/gpu": 8},
        lacks=("nvidia.com/gpu",),
    )
    DynamoGangTries(client, "state").save("blue", (tries,), now)
