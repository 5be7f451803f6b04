"""EC2 in memory: enough of instant fleets, tags and their delays to try the flows against every refusal.

Capacity is counted per offering, so that a fleet can run dry in one zone and succeed in the next. A client token
answers a repeated request as before, and a token reused for a different request is refused, as EC2 does. Describing is
eventually consistent when `describe_lag_s` is set: an instance becomes visible that long after its launch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from itertools import count
from typing import Self

import msgspec

from shiplap.errors import AwsError, NodeClassNotReady
from shiplap.instances.catalog.resolved_nodeclass import (
    ACTIVE,
    Ami,
    CapacityReservation,
    NodeClassProblem,
    PlacementGroup,
    ResolvedNodeClass,
    Subnet,
)
from shiplap.instances.readiness import nodeclass_status
from shiplap.manifests.custom_resources import EC2NodeClass
from shiplap.manifests.nodeclaim import NodeClaim
from shiplap.ports import Clock, FleetOverride, FleetRequest, FleetResult, Instance, InstanceProblem, OfferingFailure
from shiplap_lab.fakes.faults import Faults

Offering = tuple[str, str, str]
"""Instance type, zone, capacity type."""

_GONE = ("terminated",)

_FORGOTTEN_S = 3600.0
"""EC2 describes no instance that ended so many seconds ago, whatever its lag."""


class _Answered(msgspec.Struct, frozen=True):
    """Holds the fingerprint of a client token's request and the answer to it."""

    fingerprint: bytes
    result: FleetResult


class FakeCompute:
    """The port Compute in memory.

    Attributes:
        capacity: instances each offering still has; offerings not named here never run dry.
        quotas: instances the account may still start of a capacity type; without an entry, any number.
        refusals: an error per NodeClass that `launch` raises, until removed.
        not_ready: an error per NodeClass that `resolve` raises, until removed.
        describe_lag_s: seconds until describing sees a launch or a termination.
        on_launch: called with each new instance, its request and the override that was taken.
        on_reboot: called with each instance that is rebooted.
        launches: every instance ever started, in order.
        requests: every request for a fleet that was not a repetition, in order.
        templates: when the launch template of each (cluster, NodePool) was made.
        answers: what the next launches are answered with, each used once; then capacity decides again.
        subnets: what selectors of subnets match.
        reservations: what selectors of capacity reservations match; one that is not active refuses launches.
        placement_group: what a selector of one matches.
        security_groups: what selectors of security groups match.
        install: the install that uses the account; see `beside`.
        numbers: what instances are named by; of one account, no two have the same.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        faults: Faults | None = None,
        zones: tuple[str, ...] = ("eu-west-1a", "eu-west-1b", "eu-west-1c"),
        amis: Mapping[str, tuple[Ami, ...]] | None = None,
        install: str = "shiplap",
        numbers: Iterator[int] | None = None,
    ) -> None:
        self.install = install
        self.numbers = count(1) if numbers is None else numbers
        self.capacity: dict[Offering, int] = {}
        self.quotas: dict[str, int] = {}
        self.refusals: dict[str, AwsError] = {}
        self.not_ready: dict[str, NodeClassNotReady] = {}
        self.forbidden: dict[str, NodeClassProblem | AwsError] = {}
        self.rehearsed: list[FleetRequest] = []
        self.describe_lag_s = 0.0
        self.on_launch: list[Callable[[Instance, FleetRequest, FleetOverride], None]] = []
        self.on_reboot: list[Callable[[Instance], object]] = []
        self.launches: list[Instance] = []
        self.requests: list[FleetRequest] = []
        self.templates: dict[tuple[str, str], float] = {}
        self._sweep_at = 0.0
        self.answers: list[Callable[[FleetRequest], FleetResult]] = []
        self.reservations: tuple[CapacityReservation, ...] = ()
        self.placement_group: PlacementGroup | None = None
        self.security_groups: tuple[str, ...] = ("sg-twin",)
        self.cluster_ca = ""
        self.amis = dict(amis or {})
        self.remembered: dict[str, tuple[Ami, ...]] = {}
        self.subnets = tuple(Subnet(f"subnet-{zone}", zone, free_ips=4000) for zone in zones)
        self._clock = clock
        self._faults = faults or Faults()
        self._instances: dict[str, Instance] = {}
        self._visible_at: dict[str, float] = {}
        self._ended_at: dict[str, float] = {}
        # All but those that ended long ago, of which a long run has thousands.
        self._recent: dict[str, None] = {}
        self._answers: dict[str, _Answered] = {}
        self._reasons: dict[str, tuple[str, str]] = {}

    def resolve(self, node_class: EC2NodeClass, *, fresh: bool = False) -> ResolvedNodeClass:
        """One subnet per zone, and the AMIs given for this class or one AMI for every architecture."""
        with self._faults.effect("compute.resolve"):
            refusal = self.not_ready.get(node_class.metadata.name)
            if refusal is not None:
                raise refusal
            resolved = self._resolved(node_class)
            amis = resolved.amis if fresh else self.remembered.get(resolved.name, resolved.amis)
            return msgspec.structs.replace(resolved, amis=amis)

    def inspect(self, node_class: EC2NodeClass) -> ResolvedNodeClass:
        """As `resolve`; the error of a class that is not ready is told as the problem of its AMIs."""
        with self._faults.effect("compute.inspect"):
            refusal = self.not_ready.get(node_class.metadata.name)
            problems = () if refusal is None else (NodeClassProblem(nodeclass_status.AMIS, refusal.code, str(refusal)),)
            return msgspec.structs.replace(self._resolved(node_class), problems=problems)

    def _resolved(self, node_class: EC2NodeClass) -> ResolvedNodeClass:
        name = node_class.metadata.name
        return ResolvedNodeClass(
            name=name,
            family=node_class.spec.ami_family or "AL2023",
            amis=self.amis.get(name, (Ami("ami-twin", "twin", "2026-01-01T00:00:00Z"),)),
            subnets=self.subnets,
            capacity_reservations=tuple(held for held in self.reservations if held.state == ACTIVE),
            upcoming_reservations=tuple(held for held in self.reservations if held.state != ACTIVE),
            placement_group=self.placement_group,
            security_groups=self.security_groups,
            instance_profile="twin",
            cluster_ca=self.cluster_ca,
            security_group_names=("twin",),
            service_cidr="10.100.0.0/16",
        )

    def dry_run(self, request: FleetRequest) -> NodeClassProblem | None:
        """Return what `forbidden` holds by the name of the EC2NodeClass; raise it if it is an AwsError."""
        with self._faults.effect("compute.dry_run"):
            self.rehearsed.append(request)
            answer = self.forbidden.get(request.node_class.metadata.name)
            if isinstance(answer, AwsError):
                raise answer
            return answer

    def launch(self, request: FleetRequest) -> FleetResult:
        """The cheapest overrides with capacity; each one that ran dry is reported, whether or not others helped."""
        with self._faults.effect("compute.launch"):
            fingerprint = _fingerprint(request)
            answered = self._answers.get(request.token)
            if answered is not None:
                if answered.fingerprint != fingerprint:
                    raise AwsError(
                        f"client token {request.token} was used for another request", code="IdempotentParameterMismatch"
                    )
                return answered.result
            refusal = self.refusals.get(request.node_class.metadata.name)
            if refusal is not None:
                raise refusal
            self.requests.append(request)
            self.templates.setdefault((request.claim.cluster, request.claim.plan.node_pool), self._clock.now())
            result = self.answers.pop(0)(request) if self.answers else self._fulfil(request)
            self._answers[request.token] = _Answered(fingerprint, result)
            return result

    def instances(self, cluster: str) -> tuple[Instance, ...]:
        """Instances of the cluster that describing shows, oldest first."""
        with self._faults.effect("compute.instances"):
            return tuple(found for found in self._described() if found.cluster == cluster)

    def other_installs(self, cluster: str) -> dict[str, int]:
        """Other installs that have instances in the cluster, and how many."""
        others = Counter(found.install for found in self.alive() if found.cluster == cluster)
        return {name: others[name] for name in sorted(others) if name not in ("", self.install)}

    def beside(self, install: str) -> Self:
        """The same account as another install sees it: what one launches or ends, the other finds launched or ended."""
        other = copy(self)
        other.install = install
        return other

    def launched(self, cluster: str, token: str) -> tuple[Instance, ...]:
        """Return the instances of a launch that describing shows."""
        with self._faults.effect("compute.launched"):
            return tuple(found for found in self._described() if (found.cluster, found.launch) == (cluster, token))

    def instance(self, cluster: str, instance_id: str) -> Instance | None:
        """An instance of the cluster, if describing shows it."""
        with self._faults.effect("compute.instance"):
            return next((i for i in self._described() if (i.cluster, i.id) == (cluster, instance_id)), None)

    def ended(self, cluster: str, instance_id: str) -> OfferingFailure | None:
        """Return the failure given to `lose`, once describing shows it; by default a person ended the instance."""
        with self._faults.effect("compute.ended"):
            found = self._instances.get(instance_id)
            lags = self._clock.now() < self._ended_at.get(instance_id, float("-inf")) + self.describe_lag_s
            if found is None or found.cluster != cluster or found.state not in _GONE or lags:
                return None
            code, kind = self._reasons.get(instance_id, ("Client.UserInitiatedShutdown", "transient"))
            return OfferingFailure(
                found.instance_type, found.zone, found.capacity_type, code, kind, f"{code}: told by the twin"
            )

    def images(self, instance_ids: Sequence[str]) -> dict[str, str]:
        """The AMIs of instances that were ever there."""
        with self._faults.effect("compute.images"):
            return {name: self._instances[name].ami for name in instance_ids if name in self._instances}

    def sweep_templates(self, cluster: str) -> int:
        """A template stands for the launches of one NodePool here."""
        with self._faults.effect("compute.sweep_templates"):
            now = self._clock.now()
            if now < self._sweep_at:
                return 0
            self._sweep_at = now + 3600
            used = {(found.cluster, found.node_pool) for found in self.alive()}
            doomed = [
                key
                for key, made_at in self.templates.items()
                if key[0] == cluster and key not in used and made_at + 24 * 3600 < now
            ]
            for key in doomed:
                del self.templates[key]
            return len(doomed)

    def name(self, claim: NodeClaim, *, keeps_name: bool = False) -> None:  # noqa: ARG002 - names are not modelled
        """Tag a claim's instance as its own."""
        with self._faults.effect("compute.name"):
            found = self._instances.get(claim.instance_id)
            if found is not None:
                self._instances[claim.instance_id] = msgspec.structs.replace(found, claim=claim.name)

    def terminate(self, cluster: str, *instance_ids: str) -> None:
        """End the instances at once; an instance of another cluster, or an unknown one, is left alone."""
        with self._faults.effect("compute.terminate"):
            for instance_id in instance_ids:
                found = self._instances.get(instance_id)
                if found is None or found.cluster != cluster or found.state in _GONE or self._is_foreign(found):
                    continue
                self._instances[instance_id] = msgspec.structs.replace(found, state="terminated")
                self._ended_at[instance_id] = self._clock.now()

    def reboot(self, cluster: str, instance_id: str) -> None:
        """Tell `on_reboot`; an instance that has ended, or is somebody else's, is refused as a missing one."""
        with self._faults.effect("compute.reboot"):
            found = self._instances.get(instance_id)
            if found is None or found.cluster != cluster or found.state in _GONE or self._is_foreign(found):
                raise AwsError(f"could not reboot {instance_id}: it is gone", code="InvalidInstanceID.NotFound")
            for listener in self.on_reboot:
                listener(found)

    def alive(self) -> tuple[Instance, ...]:
        """Every instance that has not ended, whether or not describing shows it yet."""
        return tuple(found for found in map(self._instances.__getitem__, self._recent) if found.state not in _GONE)

    def add(self, instance: Instance) -> None:
        """Put an instance there that no launch of this fake made."""
        self._instances[instance.id] = instance
        self._recent[instance.id] = None

    def lose(self, instance_id: str, code: str = "", kind: str = "") -> None:
        """End an instance from outside, as EC2 or a person would; EC2 for a reason of some kind."""
        if code:
            self._reasons[instance_id] = (code, kind)
        self._instances[instance_id] = msgspec.structs.replace(self._instances[instance_id], state="terminated")

    def sold_as(self, instance_id: str, capacity_type: str, reservation: str = "") -> None:
        """Change what an instance is paid as, as the end of its reservation or a person's change of it does."""
        found = self._instances[instance_id]
        changed = msgspec.structs.replace(found, capacity_type=capacity_type, reservation=reservation)
        self._instances[instance_id] = changed

    def hide(self, instance_id: str, seconds: float) -> None:
        """Keep an instance from being described for a while, as eventual consistency may do to any of a launch."""
        self._visible_at[instance_id] = self._clock.now() + seconds

    def _is_foreign(self, instance: Instance) -> bool:
        return instance.install not in ("", self.install)

    def _described(self) -> list[Instance]:
        now = self._clock.now()
        shown = []
        for found in [self._instances[name] for name in self._recent]:
            if found.state in _GONE and self._ended_at.get(found.id, float("-inf")) + _FORGOTTEN_S < now:
                del self._recent[found.id]
                continue
            if self._is_foreign(found):
                continue
            if now < self._visible_at.get(found.id, 0.0):
                continue
            lags = now < self._ended_at.get(found.id, float("-inf")) + self.describe_lag_s
            if found.state not in _GONE:
                shown.append(found)
            elif lags:
                shown.append(msgspec.structs.replace(found, state="running"))
        return shown

    def _fulfil(self, request: FleetRequest) -> FleetResult:
        if not request.at_least:
            return self._started(request, sorted(request.overrides))
        zones = dict.fromkeys(override.zone for override in sorted(request.overrides))
        by_zone = [[item for item in sorted(request.overrides) if item.zone == zone] for zone in zones]
        able = (overrides for overrides in by_zone if self._room(request, overrides) >= request.at_least)
        chosen = next(able, None)
        if chosen is not None:
            return self._started(request, chosen)
        short = (
            OfferingFailure(item.instance_type, item.zone, request.capacity_type, code="InsufficientInstanceCapacity")
            for item in sorted(request.overrides)
        )
        return FleetResult((), tuple(short))

    def _room(self, request: FleetRequest, overrides: Sequence[FleetOverride]) -> int:
        """How many instances these offerings would give."""
        kind, wanted = request.capacity_type, request.wanted
        there = sum(self.capacity.get((item.instance_type, item.zone, kind), wanted) for item in overrides)
        return min(there, self.quotas.get(kind, there))

    def _started(self, request: FleetRequest, overrides: Sequence[FleetOverride]) -> FleetResult:
        failures = []
        started: list[Instance] = []
        for override in overrides:
            offering = (override.instance_type, override.zone, request.capacity_type)
            missing = request.wanted - len(started)
            allowed = self.quotas.get(request.capacity_type, missing)
            if any(held.id == override.reservation and held.state != ACTIVE for held in self.reservations):
                failures.append(OfferingFailure(*offering, code="ReservationCapacityExceeded"))
                continue
            if not allowed:
                failures.append(OfferingFailure(*offering, code="VcpuLimitExceeded", kind="quota"))
                continue
            given = min(missing, allowed, self.capacity.get(offering, missing))
            started += (self._start(request, override) for _ in range(given))
            if offering in self.capacity:
                self.capacity[offering] -= given
            if request.capacity_type in self.quotas:
                self.quotas[request.capacity_type] -= given
            if len(started) == request.wanted:
                break
            about = {"group": request.group, "reservation": override.reservation}
            failures.append(OfferingFailure(*offering, code="InsufficientInstanceCapacity", **about))
        return FleetResult(tuple(started), tuple(failures))

    def _private_dns(self, number: int) -> str:
        """The host name of the instance that is launched as this number."""
        return f"ip-10-0-{number // 256}-{number % 256}.internal"

    def _start(self, request: FleetRequest, override: FleetOverride) -> Instance:
        number = next(self.numbers)
        instance = Instance(
            id=f"i-{number:017x}",
            instance_type=override.instance_type,
            zone=override.zone,
            capacity_type=request.capacity_type,
            ami=override.ami,
            state="running",
            launched_at=self._clock.now(),
            cluster=request.claim.cluster,
            claim=request.claim.name if request.wanted == 1 else "",
            node_pool=request.claim.plan.node_pool,
            private_dns=self._private_dns(number),
            launch=request.token,
            install=self.install,
            subnet=next((net.id for net in request.resolved.subnets if net.zone == override.zone), ""),
            security_groups=tuple(sorted(request.resolved.security_groups)),
            reservation=override.reservation,
        )
        self._instances[instance.id] = instance
        self._recent[instance.id] = None
        self._visible_at[instance.id] = instance.launched_at + self.describe_lag_s
        self.launches.append(instance)
        for listener in self.on_launch:
            listener(instance, request, override)
        return instance


def _fingerprint(request: FleetRequest) -> bytes:
    """Return what EC2 compares when a caller repeats a token: the request, without the claims' bookkeeping."""
    return msgspec.json.encode((request.wanted, request.capacity_type, sorted(request.overrides), request.at_least))


class FakeHealth:
    """The port HealthSource.

    Attributes:
        ailments: what `ailing` tells.
        shifted: ids of zones that traffic is shifted away from.
    """

    def __init__(self, faults: Faults | None = None) -> None:
        self.ailments: set[InstanceProblem] = set()
        self.shifted: set[str] = set()
        self._faults = faults or Faults()

    def ailing(self) -> tuple[InstanceProblem, ...]:
        """All ailments, sorted."""
        with self._faults.effect("health.ailing"):
            return tuple(sorted(self.ailments))

    def shifted_zones(self) -> frozenset[str]:
        """The shifted zones."""
        with self._faults.effect("health.shifted_zones"):
            return frozenset(self.shifted)
