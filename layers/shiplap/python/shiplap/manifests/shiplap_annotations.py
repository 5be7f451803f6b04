"""Shiplap's annotations of manifests, for settings that Karpenter's fields do not have. Unknown ones are refused.

`price_rules` reads those of a NodePool that are about money: ceilings, discounts, and the share of on-demand nodes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from shiplap.kubernetes.labels import MANAGED_COST, MANAGED_COST_WORDS, ROLLOUT, ROLLOUT_WITHIN, ROLLOUT_WORDS
from shiplap.manifests.custom_resources import NodePool
from shiplap.manifests.decoding import Path, Problem
from shiplap.manifests.times import go_seconds, seconds_or_never

PREFIX = "shiplap.dev/"
VM_MEMORY_OVERHEAD_PERCENT = PREFIX + "vm-memory-overhead-percent"
"""On an EC2NodeClass, a fraction such as 0.075; with `.<family>` or `.<instance type>` appended, for those only."""
PREFIX_DELEGATION = PREFIX + "prefix-delegation"
"""On an EC2NodeClass, `on` or `off`, whatever the VPC CNI's DaemonSet says."""


REBALANCE = PREFIX + "rebalance-recommendation"
"""On a NodePool: what a rebalance recommendation does to a node; one of REBALANCE_POLICIES."""
ALLOCATION_STRATEGY = PREFIX + "allocation-strategy"
"""On a NodePool: which of the offerings of a launch EC2 is to take; one of ALLOCATION_STRATEGIES."""
ALLOCATION_STRATEGIES = ("price-capacity-optimized", "capacity-optimized", "lowest-price", "prioritized")
MAX_HOURLY_PRICE = PREFIX + "max-hourly-price"
"""On a NodePool: what all its nodes together may cost, USD per hour."""
MAX_NODE_PRICE = PREFIX + "max-node-price"
"""On a NodePool: what one node may cost, USD per hour."""
MAX_VCPU_PRICE = PREFIX + "max-vcpu-price"
"""On a NodePool: what one vCPU of a node may cost, USD per hour."""
ON_DEMAND_DISCOUNT = PREFIX + "on-demand-discount"
"""On a NodePool: the part of on-demand prices that is not paid, such as 0.28 under a savings plan."""
SPOT_DISCOUNT = PREFIX + "spot-discount"
"""On a NodePool: the part of spot prices that is not paid."""
MIN_ON_DEMAND = PREFIX + "min-on-demand"
"""On a NodePool: the share of its nodes that must not be spot, such as 30%."""
PROBE_UNMEASURED_TYPES = PREFIX + "probe-unmeasured-types"
"""On a NodePool: `on` allows one node of an unmeasured type for pods that fit only by the memory EC2 states."""
DISRUPTION_TIME_ZONE = PREFIX + "disruption-time-zone"
"""On a NodePool: the IANA time zone that the schedules of its budgets are written in; UTC without."""
MOVE_COST = PREFIX + "move-cost"
"""On a NodePool: what moving one pod of its nodes costs, USD; `disruption.moveCost` of the cluster without."""
MIN_ON_DEMAND_VCPUS = PREFIX + "min-on-demand-vcpus"
"""On a NodePool: the share of its nodes' vCPUs that must not be spot, such as 30%."""
SLEEP = PREFIX + "sleep"
"""On a NodePool that may sleep: `never`, or the windows in which it may, between semicolons; it only narrows those of
shiplap.yaml. What cannot be read keeps the NodePool awake and usable, so that nothing is refused here."""
TERMINATE_FIRST = PREFIX + "terminate-first"
"""On a NodePool: how long pods may have no place while a node goes before its replacement is launched, such as 10m, or
`Never`; `disruption.terminateFirstSeconds` of the cluster without."""
ZONE_BALANCE = PREFIX + "zone-balance"
"""On a NodePool: how many pods may move at a time so that pods spread over zones are in balance again; none without."""
ZONE_BALANCE_MAX_HOURLY = PREFIX + "zone-balance-max-hourly"
"""On a NodePool: how much dearer its nodes may become by one such move, USD per hour; 0 without."""
IGNORE, CORDON, REPLACE = REBALANCE_POLICIES = ("ignore", "cordon", "replace")

_NUMBER = re.compile(r"[1-9][0-9]{0,2}", re.ASCII)
_DECIMAL = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?", re.ASCII)


def _fraction(value: str) -> str | None:
    try:
        valid = 0 <= float(value) < 1
    except ValueError:
        valid = False
    return None if valid else f"{value!r} is not a fraction from 0 to 1, such as 0.075"


def _switch(value: str) -> str | None:
    return None if value in ("on", "off") else f"{value!r} is neither on nor off"


def _rebalance_policy(value: str) -> str | None:
    return None if value in REBALANCE_POLICIES else f"{value!r} is none of {', '.join(REBALANCE_POLICIES)}"


def _strategy(value: str) -> str | None:
    return None if value in ALLOCATION_STRATEGIES else f"{value!r} is none of {', '.join(ALLOCATION_STRATEGIES)}"


def _price(value: str) -> str | None:
    return None if _DECIMAL.fullmatch(value) else f"{value!r} is not a price in USD per hour, such as 1.25"


def _cost(value: str) -> str | None:
    return None if _DECIMAL.fullmatch(value) else f"{value!r} is not an amount of USD, such as 0.05"


def _time_zone(value: str) -> str | None:
    try:
        zone_named(value)
    except ValueError as error:
        return str(error)
    return None


def _duration_or_never(value: str) -> str | None:
    try:
        seconds_or_never(value)
    except ValueError as error:
        return str(error)
    return None


def _one_of(words: Sequence[str]) -> Callable[[str], str | None]:
    return lambda value: None if value in words else f"{value!r} is none of {', '.join(words)}"


def _duration(value: str) -> str | None:
    try:
        lasts_s = go_seconds(value)
    except ValueError as error:
        return str(error)
    return None if lasts_s >= 0 else f"{value!r} must not be negative"


def _pods(value: str) -> str | None:
    return None if _NUMBER.fullmatch(value) else f"{value!r} is not a number of pods from 1 to 999, such as 10"


def _percentage(value: str) -> str | None:
    valid = value.endswith("%") and _DECIMAL.fullmatch(value[:-1]) and float(value[:-1]) <= 100
    return None if valid else f"{value!r} is not a percentage from 0% to 100%, such as 30%"


_OF_NODE_POOL: dict[str, Callable[[str], str | None]] = {
    REBALANCE: _rebalance_policy,
    ALLOCATION_STRATEGY: _strategy,
    MAX_HOURLY_PRICE: _price,
    MAX_NODE_PRICE: _price,
    MAX_VCPU_PRICE: _price,
    ON_DEMAND_DISCOUNT: _fraction,
    SPOT_DISCOUNT: _fraction,
    MIN_ON_DEMAND: _percentage,
    MIN_ON_DEMAND_VCPUS: _percentage,
    DISRUPTION_TIME_ZONE: _time_zone,
    PROBE_UNMEASURED_TYPES: _switch,
    MOVE_COST: _cost,
    SLEEP: lambda _: None,
    TERMINATE_FIRST: _duration_or_never,
    ROLLOUT: _one_of(ROLLOUT_WORDS),
    ROLLOUT_WITHIN: _duration,
    MANAGED_COST: _one_of(MANAGED_COST_WORDS),
    ZONE_BALANCE: _pods,
    ZONE_BALANCE_MAX_HOURLY: _price,
}

_OF_NODE_CLASS: dict[str, Callable[[str], str | None]] = {
    VM_MEMORY_OVERHEAD_PERCENT: _fraction,
    PREFIX_DELEGATION: _switch,
}


def node_class_problems(annotations: Mapping[str, str], path: Path) -> Iterator[Problem]:
    """Yield the problems of an EC2NodeClass's annotations that belong to Shiplap."""
    for key, value in annotations.items():
        if key.startswith(PREFIX):
            special = key.startswith(VM_MEMORY_OVERHEAD_PERCENT + ".")
            check = _OF_NODE_CLASS.get(VM_MEMORY_OVERHEAD_PERCENT if special else key)
            if check is None:
                yield (*path, key), f"unknown annotation; known are {', '.join(_OF_NODE_CLASS)}"
            elif wrong := check(value):
                yield (*path, key), wrong


def node_pool_problems(annotations: Mapping[str, str], path: Path) -> Iterator[Problem]:
    """Yield the problems of a NodePool's annotations that belong to Shiplap."""
    for key, value in annotations.items():
        if key.startswith(PREFIX):
            if key not in _OF_NODE_POOL:
                yield (*path, key), f"unknown annotation; known are {', '.join(_OF_NODE_POOL)}"
            elif wrong := node_pool_problem(key, value):
                yield (*path, key), wrong


def node_pool_problem(key: str, value: str) -> str | None:
    """Return what is wrong with the value of an annotation that a NodePool may have; None if nothing is."""
    return _OF_NODE_POOL[key](value)


def unsupported(annotations: Mapping[str, str], path: Path) -> Iterator[Problem]:
    """Every annotation of Shiplap's, for objects on which none is supported yet."""
    for key in annotations:
        if key.startswith(PREFIX):
            yield (*path, key), "this annotation is not supported yet"


def terminate_first_s(pool: NodePool, usual_s: float) -> float:
    """Return how long pods may have no place while a node of a NodePool goes first, in seconds; 0 for never.

    `usual_s` holds for NodePools without the annotation. Raises ValueError: it cannot be read.
    """
    written = pool.metadata.annotations.get(TERMINATE_FIRST)
    return usual_s if written is None else float(seconds_or_never(written) or 0)


class ZoneBalance(msgspec.Struct, frozen=True):
    """The price that a NodePool pays for balance: pods that may move at a time, and USD per hour more."""

    most_pods: int
    most_hourly: float = 0.0


def zone_balance(pool: NodePool) -> ZoneBalance | None:
    """Return what balance may cost in a NodePool; None where it is off, or its annotations cannot be read."""
    written = pool.metadata.annotations
    pods, hourly = written.get(ZONE_BALANCE, ""), written.get(ZONE_BALANCE_MAX_HOURLY, "0")
    return None if _pods(pods) or _price(hourly) else ZoneBalance(int(pods), float(hourly))


_OF_THE_MACHINE = frozenset({"localtime", "posixrules", "Factory"})
"""Names that some machines have a file for, each with another meaning."""


def zone_named(name: str) -> ZoneInfo:
    """The time zone of this name, such as `Europe/Berlin`. Raises ValueError, with the reason, when there is none."""
    try:
        if name not in _OF_THE_MACHINE:
            return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        pass
    raise ValueError(f"{name!r} is not a time zone, such as Europe/Berlin")


MICROS = 1_000_000
"""Millionths of a dollar in a dollar: sums of money are whole numbers of these, so that they are exact."""


class PriceRules(msgspec.Struct, frozen=True):
    """Prices in USD per hour, None for no ceiling; discounts are fractions.

    `max_hourly_micros` bounds the sum over the pool's nodes, in millionths of a dollar. `min_on_demand` is the share of
    nodes that must not be spot, `min_on_demand_vcpus` that of their vCPUs, both in hundredths of a per cent; None
    without a rule.
    """

    max_hourly_micros: int | None = None
    max_node_price: float | None = None
    max_vcpu_price: float | None = None
    on_demand_discount: float = 0.0
    spot_discount: float = 0.0
    min_on_demand: int | None = None
    min_on_demand_vcpus: int | None = None

    @property
    def changes_types(self) -> bool:
        """True if the pool sees other prices, or fewer offerings, than its EC2NodeClass has."""
        ceilings = (self.max_node_price, self.max_vcpu_price)
        return bool(self.on_demand_discount or self.spot_discount) or any(price is not None for price in ceilings)


NO_RULES = PriceRules()


def price_rules(pool: NodePool) -> PriceRules:
    """The rules of a pool. Raises ValueError if an annotation is not as validation wants it."""
    written = pool.metadata.annotations
    if not any(key in written for key in _KEYS):
        return NO_RULES
    for key in _KEYS:
        if key in written and (wrong := node_pool_problem(key, written[key])):
            raise ValueError(f"NodePool {pool.metadata.name}: {key}: {wrong}")
    total = written.get(MAX_HOURLY_PRICE)
    return PriceRules(
        max_hourly_micros=None if total is None else int(Decimal(total) * MICROS),
        max_node_price=_number(written.get(MAX_NODE_PRICE)),
        max_vcpu_price=_number(written.get(MAX_VCPU_PRICE)),
        on_demand_discount=float(written.get(ON_DEMAND_DISCOUNT, 0)),
        spot_discount=float(written.get(SPOT_DISCOUNT, 0)),
        min_on_demand=_share(written.get(MIN_ON_DEMAND)),
        min_on_demand_vcpus=_share(written.get(MIN_ON_DEMAND_VCPUS)),
    )


_KEYS = (
    MAX_HOURLY_PRICE,
    MAX_NODE_PRICE,
    MAX_VCPU_PRICE,
    ON_DEMAND_DISCOUNT,
    SPOT_DISCOUNT,
    MIN_ON_DEMAND,
    MIN_ON_DEMAND_VCPUS,
)


def _number(text: str | None) -> float | None:
    return None if text is None else float(text)


def _share(text: str | None) -> int | None:
    """Hundredths of a per cent."""
    return None if text is None else int(Decimal(text.removesuffix("%")) * 100)
