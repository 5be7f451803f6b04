"""The memory that nodes of a scenario really have."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from shiplap.instances.capacity.described_capacity import careful_capacity, nominal_memory
from shiplap.instances.catalog.ec2_catalog import Ec2InstanceType
from shiplap.kubernetes.quantity import EPHEMERAL_STORAGE, MEMORY, parse_amount
from shiplap_lab.scenarios.scenario import NodeMemoryRule

_MIB = 2**20


def node_memory(rules: Sequence[NodeMemoryRule], kind: Ec2InstanceType, ami: str, seed: int = 0) -> int:
    """Bytes that a kernel sees on a type that boots an AMI, by the last rule that covers both.

    Four per cent of what EC2 states is missing where no rule applies, as on most types in the field.
    """
    rule = [rule for rule in (NodeMemoryRule(), *rules) if rule.applies(kind.instance_type, ami)][-1]
    nominal = nominal_memory(kind)
    if rule.memory:
        return parse_amount("memory", rule.memory)
    if rule.between is not None:
        least = careful_capacity(kind, {MEMORY: nominal, EPHEMERAL_STORAGE: 0})[MEMORY]
        chance = Random(f"{seed}:memory:{ami}:{kind.instance_type}")  # noqa: S311 - repeatable chance
        return int(least + (nominal - least) * chance.uniform(*rule.between))
    return int(nominal * (1 - rule.overhead_percent / 100)) // _MIB * _MIB
