"""Metrics of an install: nodes of each pool, queues, functions, failures, learned capacity.

They come from table `state`, SQS, Lambda and CloudWatch, read with the caller's permissions. A source that may not be
read is named, and the rest is shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from shiplap.errors import AwsError, InvalidInput, StoreError
from shiplap.instances.capacity.described_capacity import estimated_memory, nominal_memory
from shiplap.instances.catalog.ec2_catalog import Catalog
from shiplap.instances.catalog.type_catalog import LearnedCapacity
from shiplap.instances.readiness.joins import scope_text
from shiplap.kubernetes.quantity import CPU, MEMORY, format_amount, format_part, parse_amount
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.manifests.nodeclaim import GOING_FOR_GOOD, IN_FLIGHT, ClaimState, NodeClaim
from shiplap.ports import DecisionState
from shiplap_cli.installs.find_install import DeployedInstall, aws_client
from shiplap_cli.judged_reports import judged
from shiplap_cli.output import Printed

QUEUES = ("Provisioning", "Lifecycle", "Interruption")
"""The queues, as the stack's outputs begin with."""
WINDOW_S = 3600
"""The age of the oldest failures that are shown, seconds."""
_OVERHEAD = 0.075
_NODES = "nodes"
_GIB = 1 << 30


def queues_of(install: DeployedInstall) -> tuple[str, ...]:
    """The queues of every install, then those of network groups with a name, by what their outputs begin with."""
    named = {key.removesuffix("QueueUrl") for key in install.outputs if key.endswith("QueueUrl")}
    return (*QUEUES, *sorted(named - set(QUEUES)))


class PoolUsage(Printed, frozen=True):
    """A pool's nodes, and of each limited resource what is used of it, as quantities.

    `limits` is None where nobody has looked at the NodePool yet: claims are written at once, statuses every minute.
    """

    cluster: str
    pool: str
    nodes: int
    starting: int
    leaving: int
    hourly: float
    used: dict[str, str]
    limits: dict[str, str] | None

    @property
    def limits_in_words(self) -> tuple[str, ...]:
        """How much of each limit is used, in one unit."""
        if self.limits is None:
            return ("not looked at yet",)
        return tuple(
            f"{name} {format_part(name, parse_amount(name, self.used.get(name, '0')), parse_amount(name, limit))}"
            for name, limit in sorted(self.limits.items())
        )


class FailedClaim(Printed, frozen=True):
    """A claim that failed within the last hour."""

    cluster: str
    claim: str
    at: str
    why: str


class RefusedOffering(Printed, frozen=True):
    """An offering that EC2 refused lately and is left alone for now."""

    instance_type: str
    zone: str
    capacity_type: str
    until: str
    code: str


class LearnedCapacityValue(Printed, frozen=True):
    """The value of learned capacity on the nodes that run.

    `won_back_gib` is memory that the usual estimate would have left unused, at `hourly` dollars; `not_there_gib` memory
    that it would have promised in vain. `entries` are (AMI, type, kubelet settings), `nodes` those that reported.
    """

    entries: int
    nodes: int
    won_back_gib: float
    hourly: float
    not_there_gib: float


class QueueMetrics(Printed, frozen=True):
    """Messages of a queue and of its dead letters, `reasons` with how often each was met among those looked at."""

    name: str
    waiting: int
    in_flight: int
    dead_letters: int
    reasons: dict[str, int]


class FunctionMetrics(Printed, frozen=True):
    """A function in service; counts of the last hour, None where CloudWatch did not say."""

    name: str
    version: str
    invocations: int | None
    errors: int | None
    throttles: int | None


class InstallMetrics(Printed, frozen=True, omit_defaults=True):
    """`unseen` says what could not be read and why. `frozen_at` is when all launches were frozen, empty if not."""

    pool_use: tuple[PoolUsage, ...] = ()
    failures: tuple[FailedClaim, ...] = ()
    resting: tuple[RefusedOffering, ...] = ()
    learned: LearnedCapacityValue | None = None
    queues: tuple[QueueMetrics, ...] = ()
    functions: tuple[FunctionMetrics, ...] = ()
    frozen_at: str = ""
    unseen: tuple[str, ...] = ()


def gather_metrics(
    install: DeployedInstall,
    clusters: Sequence[str],
    catalogs: Mapping[str, Catalog],
    limits: Mapping[tuple[str, str], Mapping[str, str | int | float]],
    now: float,
) -> InstallMetrics:
    """Everything that may be read.

    Args:
        install: with the outputs of its stack; without them nothing can be found.
        clusters: their names.
        catalogs: by the cluster's name.
        limits: those of each (cluster, pool).
        now: epoch seconds.
    """
    if not install.outputs:
        return InstallMetrics()
    unseen: list[str] = []

    def attempt(what: str, read: Callable[[], Any], otherwise: Any) -> Any:
        try:
            return read()
        except (AwsError, StoreError, InvalidInput) as error:
            unseen.append(f"{what}: {error}")
            return otherwise

    claims = {name: attempt(f"claims of {name}", partial(_claims, install, name), ()) for name in clusters}
    learned = attempt("learned capacity", lambda: install.capacity().all(), ())
    shared = attempt("offerings that rest", lambda: _shared_state(install, clusters, now), DecisionState(0))
    queues = [attempt(f"queue {name}", partial(_queue_metrics, install, name), None) for name in queues_of(install)]
    functions = attempt("functions", lambda: _function_metrics(install, now), ())
    return InstallMetrics(
        pool_use=tuple(use for name in clusters for use in pool_usage(name, claims[name], catalogs.get(name), limits)),
        failures=failed_claims([claim for name in clusters for claim in claims[name]], now),
        resting=tuple(
            RefusedOffering(
                scope_text(item.instance_type), item.zone, item.capacity_type, rfc3339(item.until), item.code
            )
            for item in shared.unavailable
        ),
        learned=value_of_learned(learned, [(claim, catalogs.get(name)) for name in clusters for claim in claims[name]]),
        queues=tuple(queue for queue in queues if queue is not None),
        functions=tuple(functions),
        frozen_at=rfc3339(shared.frozen_at) if shared.frozen_at else "",
        unseen=tuple(unseen),
    )


def pool_usage(
    cluster: str,
    claims: Iterable[NodeClaim],
    catalog: Catalog | None,
    limits: Mapping[tuple[str, str], Mapping[str, str | int | float]],
) -> list[PoolUsage]:
    """Each pool's nodes and claims, and what they use of its limits; pools by name."""
    types = {kind.instance_type: kind for kind in catalog.types} if catalog is not None else {}
    alive: dict[str, list[NodeClaim]] = {pool: [] for known, pool in limits if known == cluster}
    for claim in claims:
        if claim.state not in (ClaimState.FAILED, ClaimState.GONE):
            alive.setdefault(claim.plan.node_pool, []).append(claim)
    uses = []
    for pool in sorted(alive):
        total: Counter[str] = Counter()
        for claim in alive[pool]:
            total.update(claim.plan.allocatable)
            kind = types.get(claim.known_instance.type)
            if kind is not None:  # limits count capacity, not what is left of it for pods
                total[CPU] += kind.v_cpu_info.default_v_cpus * 1000 - claim.plan.allocatable.get(CPU, 0)
                total[MEMORY] += nominal_memory(kind) - claim.plan.allocatable.get(MEMORY, 0)
        total[_NODES] = len(alive[pool])
        known = limits.get((cluster, pool))
        bounds = known or {}
        uses.append(
            PoolUsage(
                cluster=cluster,
                pool=pool,
                nodes=len(alive[pool]),
                starting=sum(claim.state in IN_FLIGHT for claim in alive[pool]),
                leaving=sum(
                    claim.state in GOING_FOR_GOOD or claim.state is ClaimState.DISRUPTING for claim in alive[pool]
                ),
                hourly=sum(claim.hourly for claim in alive[pool]),
                used={name: format_amount(name, total[name]) for name in sorted(bounds)},
                limits=None
                if known is None
                else {name: format_amount(name, parse_amount(name, bounds[name])) for name in sorted(bounds)},
            )
        )
    return uses


def failed_claims(claims: Iterable[NodeClaim], now: float) -> tuple[FailedClaim, ...]:
    """The claims that failed within the last hour, newest first."""
    failed = [c for c in claims if c.state is ClaimState.FAILED and now - c.changed_at <= WINDOW_S]
    failed.sort(key=lambda claim: (-claim.changed_at, claim.name))
    return tuple(FailedClaim(c.cluster, c.name, rfc3339(c.changed_at), c.failure or "no reason given") for c in failed)


def value_of_learned(
    learned: Sequence[LearnedCapacity], running: Iterable[tuple[NodeClaim, Catalog | None]]
) -> LearnedCapacityValue:
    """Memory and dollars of nodes in service by which learned capacity differs from the formula with 7.5 %."""
    known = {(e.ami, e.instance_type, e.kubelet_hash): judged(e, 0.0).capacity.get(MEMORY, 0) for e in learned}
    won = short = 0
    hourly = 0.0
    kinds: dict[int, dict[str, Any]] = {}
    for claim, catalog in running:
        memory = known.get((claim.known_instance.ami, claim.known_instance.type, claim.known_instance.kubelet_hash), 0)
        if not memory or catalog is None or claim.state in (ClaimState.FAILED, ClaimState.GONE):
            continue
        types = kinds.setdefault(id(catalog), {kind.instance_type: kind for kind in catalog.types})
        kind = types.get(claim.known_instance.type)
        if kind is None:
            continue
        difference = memory - estimated_memory(kind, _OVERHEAD)
        if difference > 0:
            won += difference
            hourly += claim.hourly * difference / nominal_memory(kind)
        else:
            short -= difference
    nodes = sum(entry.count for entry in learned)
    return LearnedCapacityValue(len(learned), nodes, round(won / _GIB, 3), round(hourly, 6), round(short / _GIB, 3))


def _claims(install: DeployedInstall, cluster: str) -> Sequence[NodeClaim]:
    return install.state().claims(cluster)


def _shared_state(install: DeployedInstall, clusters: Sequence[str], now: float) -> DecisionState:
    """Refused offerings and a freeze are the install's, so any cluster's state shows them."""
    return install.state().read(clusters[0], now) if clusters else DecisionState(0)


def _queue_metrics(install: DeployedInstall, name: str) -> QueueMetrics:
    from shiplap_cli.installs import dead_letter_queues  # noqa: PLC0415 - so that --help does not wait for botocore

    queue, dead = install.output(f"{name}QueueUrl"), install.output(f"{name}DeadLettersUrl")
    waiting, in_flight = dead_letter_queues.depth(queue)
    left, held = dead_letter_queues.depth(dead)
    reasons = Counter(dead_letter.reason for dead_letter in dead_letter_queues.peek(dead)) if left else Counter()
    return QueueMetrics(name.lower(), waiting, in_flight, left + held, dict(sorted(reasons.items())))


def _function_metrics(install: DeployedInstall, now: float) -> Sequence[FunctionMetrics]:
    """Raises AwsError."""
    named = {key.removesuffix("Function"): name for key, name in install.outputs.items() if key.endswith("Function")}
    counts = _lambda_counts(sorted(named.values()), now)
    return [
        FunctionMetrics(
            key.lower(),
            _version(named[key]),
            *(counts.get((named[key], metric)) for metric in ("Invocations", "Errors", "Throttles")),
        )
        for key in sorted(named)
    ]


def _version(function: str) -> str:
    from shiplap.aws.ec2_errors import aws_errors  # noqa: PLC0415 - as above

    with aws_errors(f"look up the version of {function} in service"):
        return str(aws_client("lambda").get_alias(FunctionName=function, Name="live")["FunctionVersion"])


def _lambda_counts(functions: Sequence[str], now: float) -> dict[tuple[str, str], int]:
    """Sums of the last hour by (function, metric); a metric without values counts as zero."""
    from shiplap.aws.ec2_errors import aws_errors  # noqa: PLC0415 - as above

    asked = [(name, metric) for name in functions for metric in ("Invocations", "Errors", "Throttles")]
    queries = [
        {
            "Id": f"m{number}",
            "MetricStat": {
                "Metric": {
                    "Namespace": "AWS/Lambda",
                    "MetricName": metric,
                    "Dimensions": [{"Name": "FunctionName", "Value": name}],
                },
                "Period": WINDOW_S,
                "Stat": "Sum",
            },
        }
        for number, (name, metric) in enumerate(asked)
    ]
    if not queries:
        return {}
    with aws_errors("read the functions' metrics"):
        answer = aws_client("cloudwatch").get_metric_data(
            MetricDataQueries=queries, StartTime=now - WINDOW_S, EndTime=now
        )
    found = {item["Id"]: item.get("Values", ()) for item in answer.get("MetricDataResults", ())}
    return {key: int(sum(found.get(f"m{number}", ()))) for number, key in enumerate(asked)}
