"""The judge's own accounts: what EC2 charges for each machine, and ceilings in dollars per hour and per month.

Sums are low: a machine counts at its least price so far, reserved for as long as nine of ten of its NodePool lived."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from math import inf

import msgspec

from shiplap_lab.judge.raw_json import ClaimItem, Json, LaunchedMachine

PriceOf = Callable[[str, str, str], float]  # USD per hour of an instance type, in a zone, of a capacity type
CRITICAL = 2_000_000_000  # the least priority of pods that a cluster cannot do without
_EXACT_USD, _HOUR_S, _LEAVING_S = 1e-6, 3600.0, 600.0
_LOST_FOR_S = 1200.0  # a quarter of an hour, and what a decision may take
LEAVING = ("Draining", "Terminating", "Gone", "Failed")
_INTENDED = ("Empty", "Underutilized", "Drifted", "Expired", "ScaledDown", "Asleep")


class Account(msgspec.Struct):
    """The cost of a machine: `usd` until `since`, then `price` per hour; `least` is its lowest price so far.

    `number` is that of its claim, in the order in which claims were written; infinite without one.
    """

    machine: LaunchedMachine
    at_launch: float
    price: float
    least: float
    since: float
    usd: float = 0.0
    usd_before: float = 0.0
    number: float = inf
    leaves_at: float = inf
    failure: str = ""
    ended_at: float = inf

    def charged(self, now: float) -> float:
        """USD until now."""
        return self.usd + self.price * max(min(now, self.ended_at) - self.since, 0.0) / _HOUR_S

    def hours(self, begin: float, end: float) -> float:
        """Of its life, between two moments."""
        return max(min(end, self.ended_at) - max(begin, self.machine.launched_at), 0.0) / _HOUR_S


class DollarJudge:
    """Accounts of all machines, and what ceilings say of launches.

    Attributes:
        ceilings: as they are written, by cluster; those of the account under an empty name.
        overshoots: of months that have ended: the ceiling, USD above it, and USD by which its machines got dearer.
        commitments: USD per hour at list prices that they pay, by family; for any family under an empty name.
    """

    def __init__(self, now: Callable[[], float], price: PriceOf) -> None:
        self.ceilings: Mapping[str, Sequence[Json]] = {}
        self.overshoots: list[tuple[str, float, float]] = []
        self.commitments: Mapping[str, float] = {}
        self._now, self._price, self._former, self._month = now, price, price, _month_start(now())
        self.accounts: dict[str, Account] = {}
        # By cluster and claim: its number, priority of its pods, USD per hour that it may replace, if it may be spot.
        self._planned: dict[tuple[str, str], tuple[int, int, float, bool]] = {}
        self._lives: dict[tuple[str, str], list[float]] = {}
        self._life_s: dict[tuple[str, str], float] = {}

    def started(self, machine: LaunchedMachine) -> None:
        """A machine is there."""
        price = self.cost(machine)
        self.accounts[machine.id] = Account(machine, price, price, price, machine.launched_at)

    def ended(self, machine: LaunchedMachine) -> None:
        """A machine is not charged any more. Twenty lives of a NodePool say how long others are reserved."""
        account, pool = self.accounts[machine.id], (machine.cluster, machine.node_pool)
        account.ended_at = self._now()
        lives = self._lives.setdefault(pool, [])
        lives.append(account.ended_at - machine.launched_at)
        if len(lives) >= 20:
            self._life_s[pool] = min(sorted(lives)[len(lives) * 9 // 10 - 1], self._life_s.get(pool, inf))

    def repriced(self, price: PriceOf) -> None:
        """EC2 charges other prices from now on."""
        now, self._former, self._price = self._now(), self._price, price
        for item in self.accounts.values():
            item.usd, item.since, item.price = item.charged(now), now, self.cost(item.machine)
            item.least = min(item.least, item.price)

    def planned(self, claim: ClaimItem, priority: int, *, replaces: bool, may_be_spot: bool) -> None:
        """A claim is written for the first time, for pods of this priority at most. It may replace what was lost."""
        lost, recent = inf if replaces else 0.0, self._now() - _LOST_FOR_S
        for item in self._of(claim.cluster, ""):
            leaves = min(item.leaves_at, item.ended_at) < inf and item.failure not in _INTENDED
            lost += item.at_launch if leaves and item.ended_at > recent else 0.0
        self._planned.setdefault((claim.cluster, claim.name), (len(self._planned), priority, lost, may_be_spot))

    def claimed(self, claim: ClaimItem) -> None:
        """The claim of a machine is written."""
        account = self.accounts.get(claim.instance_id)
        if account is not None:
            account.number, *_ = self._planned.get((claim.cluster, claim.name), (inf,))
            account.failure = claim.failure
            account.leaves_at = min(account.leaves_at, self._now()) if claim.state in LEAVING else inf

    def counted_twice(self, claims: Iterable[ClaimItem]) -> float:
        """USD per hour that claims count on beyond what commitments pay; those of their own family pay first."""
        left = dict(self.commitments)
        for claim in claims:
            family = claim.instance_types[0].partition(".")[0] if claim.counted_on else ""
            left[family] = left.get(family, 0.0) - claim.counted_on
        return -left.pop("", 0.0) - sum(usd for usd in left.values() if usd < 0)

    def cost(self, machine: LaunchedMachine) -> float:
        """USD per hour now."""
        return self._price(machine.instance_type, machine.zone, machine.capacity_type)

    def may_cost(self, machine: LaunchedMachine, hourly: float) -> bool:
        """True if `hourly` is the machine's price, or was until the last change of prices."""
        before = self._former(machine.instance_type, machine.zone, machine.capacity_type)
        return min(abs(hourly - self.cost(machine)), abs(hourly - before)) <= 1e-9

    def charged(self, machine: LaunchedMachine, hourly: float | None = None) -> float:
        """USD of a machine until now; if a claim has booked a wrong price, with that price."""
        account, now = self.accounts[machine.id], self._now()
        wrong = 0.0 if hourly is None or self.may_cost(machine, hourly) else hourly - account.at_launch
        return account.charged(now) + wrong * account.hours(0.0, now)

    def broken_by(self, claim: ClaimItem, machine: LaunchedMachine) -> Iterator[str]:
        """All that runs costs no more per hour than a ceiling of mode stop. What a month has cost and is reserved is
        below the part of its ceiling that is not kept for recovery; for replacements and critical pods below all of it,
        and only mode stop bounds them. Above mode cheapest nothing is on demand that could be spot."""
        number, priority, lost, may_be_spot = self._planned.get((claim.cluster, claim.name), (inf, 0, inf, False))
        exempt = priority >= CRITICAL or lost >= self.accounts[machine.id].least
        for of, ceiling in self._bounding(claim.cluster, claim.node_pool):
            mode, whole = ceiling.get("mode"), exempt or "hourly" in ceiling
            kept = 0 if whole else ceiling.get("recoveryPercent", 10)
            used, most = self._used(of, ceiling, claim.created_at, number), _amount(ceiling) * (1 - kept / 100)
            bounds = mode == "stop" or (mode == "priority" and not whole and priority <= ceiling["abovePriority"])
            bounds = bounds or (mode == "cheapest" and not whole and may_be_spot and self._is_dear(machine))
            if bounds and used > most + _EXACT_USD:
                yield f"{claim.name} makes {_name(of, ceiling)} cost {used:.4f} of {most:.4f}"

    def _is_dear(self, machine: LaunchedMachine) -> bool:
        """True if spot costs less than the machine now, and did until the last change of prices."""
        paid, spot = ((machine.instance_type, machine.zone, kind) for kind in (machine.capacity_type, "spot"))
        return all(0 < price(*spot) < price(*paid) - _EXACT_USD for price in (self._price, self._former))

    def may_wait(self, cluster: str, told: str, priority: int) -> bool:
        """True if `told` lets a pod wait: half a ceiling is in use at least; for critical pods its mode is stop."""
        named = [(of, item) for of, item in self._bounding(cluster, None) if f"reached: {_name(of, item)}, $" in told]
        if priority >= CRITICAL:
            named = [(of, item) for of, item in named if item.get("mode") == "stop"]
        return any(2 * self._used(of, item, self._now(), inf) >= _amount(item) for of, item in named)

    def end_month(self) -> Iterator[str]:
        """Yield the ceilings over which an ended month spent more than for prices and outlived reservations."""
        begin, self._month = self._month, _month_start(self._now())
        if begin == (end := self._month):
            return
        stops = [(of, item) for of, items in self.ceilings.items() for item in items if item.get("mode") == "stop"]
        for of, ceiling in stops:
            over, dearer, late = -ceiling.get("monthly", inf), 0.0, 0.0
            for item in self._of(of, ceiling.get("nodePool", "")):
                spent, steady = item.charged(end) - item.usd_before, item.at_launch * item.hours(begin, end)
                over, dearer = over + spent, dearer + max(spent - steady, 0.0)
                late += item.at_launch * self._unreserved(item, item.hours(begin, end), end)
            if over > 0:
                self.overshoots.append((_name(of, ceiling), over, dearer))
            if over > dearer + late + _EXACT_USD:
                yield f"{_name(of, ceiling)}: {over:.4f} above it, {dearer:.4f} by prices, {late:.4f} not reserved"
        for item in self.accounts.values():
            item.usd_before = item.charged(end)

    def _unreserved(self, account: Account, hours: float, end: float) -> float:
        """Hours for which a machine had no claim, ran longer than others of its NodePool, or left for too long."""
        left_h = (min(account.ended_at, end) - account.leaves_at - _LEAVING_S) / _HOUR_S
        return hours if account.number == inf else max(hours - self._reserved_h(account), left_h, 0.0)

    def _reserved_h(self, account: Account) -> float:
        return self._life_s.get((account.machine.cluster, account.machine.node_pool), inf) / _HOUR_S

    def _used(self, of: str, ceiling: Json, at: float, number: float) -> float:
        """Return a ceiling's use: per hour; or spent until a moment by claims up to a number, and reserved then."""
        accounts = self._of(of, ceiling.get("nodePool", ""))
        if "hourly" in ceiling:
            return sum(item.price for item in accounts if item.ended_at == inf)
        begin, used = _month_start(at), 0.0
        left_h = (_month_start(begin + 32 * 24 * _HOUR_S) - at) / _HOUR_S
        for item in (item for item in accounts if item.number <= number and item.number != inf):
            stays = item.leaves_at == item.ended_at == inf
            used += item.least * (item.hours(begin, at) + stays * min(left_h, self._reserved_h(item)))
        return used

    def _bounding(self, cluster: str, pool: str | None) -> Iterator[tuple[str, Json]]:
        """Ceilings of nodes of a NodePool, None for any, and whose they are: a cluster's, or the account's."""
        for of in ("", cluster):
            for item in self.ceilings.get(of, ()):
                if "namespace" not in item and (pool is None or item.get("nodePool") in (None, pool)):
                    yield of, item

    def _of(self, cluster: str, pool: str) -> list[Account]:
        known = (item for item in self.accounts.values() if cluster in ("", item.machine.cluster))
        return [item for item in known if pool in ("", item.machine.node_pool)]


def _name(cluster: str, ceiling: Json) -> str:
    pool = ceiling.get("nodePool")
    return f"NodePool {pool}" if pool else f"cluster {cluster}" if cluster else "account"


def _amount(ceiling: Json) -> float:
    return float(ceiling.get("hourly") or ceiling["monthly"])


def _month_start(at: float) -> float:
    moment = datetime.fromtimestamp(at, UTC)
    return moment.replace(day=1, hour=0, minute=0, second=0, microsecond=0).timestamp()
