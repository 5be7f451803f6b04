"""The adapters of optional features, found by the name of the feature."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from shiplap.policies.registry import part_of


class PolicyResources(msgspec.Struct, frozen=True):
    """The resources that adapters of a cluster use."""

    client: Callable[..., Any]
    """Makes a client of a service, as `shiplap.aws.session.client`."""
    state_table: str
    """The name of the table of claims, commands and notes."""
    capacity_table: str
    """The name of the table of learned capacity."""
    bucket: str
    """The name of the bucket."""
    region: str
    """The Region of the cluster."""
    install: str
    """The name of the install, which its instances are tagged with."""
    now: Callable[[], float]
    """The clock, epoch seconds."""


MakePorts = Mapping[str, Callable[[], object]]
"""How to make each port of a feature, by the name of its `PolicyPort`."""


def adapters_of(policy: str, resources: PolicyResources) -> MakePorts:
    """Return how to make the ports of a policy; nothing is asked of AWS until one is used."""
    module = part_of(policy, "shiplap.aws", "adapters")
    return {} if module is None else module.adapters(resources)
