"""Puts the real adapters behind the ports, once per process, each when it is first used.

A function that finds nothing to launch never makes a client of SQS or EventBridge, and one that only reads the cluster
never loads the model of EC2.
"""

from __future__ import annotations

import logging
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any, cast

import msgspec
from aws_lambda_powertools import Logger
from aws_lambda_powertools.metrics import EphemeralMetrics

from shiplap import settings as settings_module
from shiplap.aws.policy_adapters import PolicyResources, adapters_of
from shiplap.aws.session import client, client_without_retries, credentials, hurried_client
from shiplap.errors import StoreError
from shiplap.flows.context import FlowContext
from shiplap.flows.function_install import WarmMemory, counted_errors
from shiplap.flows.optional.optional_calls import DEAD_LETTERS, METRICS, OptionalCalls, Port
from shiplap.flows.turns import ThreadPerProbe
from shiplap.ports import (
    INSTALL_DIMENSION,
    METRICS_NAMESPACE,
    CapacityStore,
    CatalogSource,
    CatalogStore,
    ClusterApi,
    Compute,
    DeadLetters,
    DryRunStore,
    EventBus,
    FlightRecorder,
    HealthSource,
    JoinLog,
    KeptIdentityStore,
    ManifestStore,
    MemoryStore,
    NodeIdentities,
    SnapshotStore,
    StateStore,
    StatusStore,
    Timers,
)
from shiplap.settings import ClusterSettings, OtlpSettings, ResourceNames, Settings

if TYPE_CHECKING:
    from shiplap.flows.otlp_push import OtlpPush

_LOG = logging.getLogger(__name__)

_EACH_MINUTE = ("schedule", "disrupt")
"""The functions that look at every cluster each minute. They alone send metrics to a collector."""


class SystemClock:
    """The Clock of the machine."""

    def now(self) -> float:
        return time.time()


class EmfMeter:
    """A Meter that writes metrics into the log in CloudWatch's embedded metric format; without calls, nothing.

    It may be used by several threads. Figures of a cluster, NodePool or tier add up to one metric of the install, and
    their lines say what they are of, for queries of the log. Only a `detailed` meter makes a metric of each as well:
    those are paid for one by one. `push` gets all values, too.
    """

    def __init__(self, install: str, *, detailed: bool = False, push: OtlpPush | None = None) -> None:
        self._detailed = detailed
        self._push = push
        self._lock = Lock()
        self._own = {INSTALL_DIMENSION: install} if install else {}
        self._sets: dict[tuple[tuple[str, str], ...], EphemeralMetrics] = {}

    def count(
        self, name: str, value: float = 1.0, unit: str = "Count", *, dimensions: Mapping[str, str] | None = None
    ) -> None:
        key = tuple(sorted((dimensions or {}).items()))
        if self._push is not None:
            self._push.add(name, value, dimensions or {})
        with self._lock:
            if key not in self._sets:  # all metrics of one document have the same dimensions
                self._sets[key] = self._document(dict(key))
            self._sets[key].add_metric(name=name, unit=unit, value=value)

    def _document(self, of: Mapping[str, str]) -> EphemeralMetrics:
        document = EphemeralMetrics(namespace=METRICS_NAMESPACE, default_dimensions=dict(self._own))
        for name, value in of.items():
            document.add_metadata(name, value)
        if of and self._detailed:
            document.add_dimensions(**self._own, **of)
        return document

    def flush(self) -> None:
        """Write what was counted since the last time."""
        with self._lock:
            for metrics in self._sets.values():
                if metrics.metric_set:  # it is empty when a hundredth value has just been written
                    metrics.flush_metrics()
            self._sets.clear()


class Lazy:
    """Stands in for an object that is made when the first of its attributes is asked for."""

    def __init__(self, make: Callable[[], object]) -> None:
        self._make = make
        self._made: Any = None
        self._lock = Lock()

    def __getattr__(self, name: str) -> Any:
        with self._lock:  # the watch function reads from several threads
            if self._made is None:
                self._made = self._make()
        return getattr(self._made, name)


def lazily(make: Callable[[], Port]) -> Port:
    """Return a port that is made when it is first used."""
    return cast("Port", Lazy(make))


class Install:
    """A FunctionInstall in Lambda: its settings, its log, its meter, and a FlowContext per cluster.

    Args:
        service: the function's name in logs and metrics.
        settings: the clusters of this install.
        names: the stack's resources.
    """

    def __init__(self, service: str, settings: Settings, names: ResourceNames) -> None:
        self.settings = settings
        self.clock = SystemClock()
        self._push = self._otlp_push(settings.otlp, names.install) if service in _EACH_MINUTE else None
        self.meter = EmfMeter(names.install, detailed=settings.cluster_metrics, push=self._push)
        self.warm = WarmMemory()
        self.executor = ThreadPerProbe()
        self.optional = OptionalCalls()
        # A service is the name of its logger. Named like the package, it gets all that the package's modules log.
        self.logger = Logger(service="shiplap")
        self.logger.append_keys(function=service)
        self._names = names
        self._contexts: dict[str, FlowContext] = {}

    @classmethod
    def of_environment(cls, service: str) -> Install:
        """From the settings layer and the function's environment variables. Raises InvalidInput."""
        return cls(service, settings_module.load(), ResourceNames.of(os.environ))

    @contextmanager
    def reporting(self, request_id: str) -> Iterator[None]:
        """Log lines of the body carry the invocation's id; its metrics are written at the end, whatever happens.

        An error that ends the invocation is logged and counted by its name, and goes on to Lambda. Chance begins anew:
        copies of a function restored from one snapshot would all draw the same pauses, botocore's retries as well.
        """
        random.seed()
        self.optional.begin()
        self.logger.append_keys(request_id=request_id)
        started = self.clock.now()
        try:
            with counted_errors(self.meter):
                yield
        finally:
            self._push_metrics(started)
            self.meter.flush()

    def _push_metrics(self, started: float) -> None:
        """Send what the invocation has measured to the collector, if there is one; `started` is epoch seconds."""
        if self._push is None:
            return
        try:
            taken = self.optional.within(METRICS, self._push, self.clock).push(started, self.clock.now())
        except StoreError as error:
            _LOG.warning("metrics were not sent: %s", error)
            self._push.forget()
            taken = False
        if not taken:
            self.meter.count("MetricsNotPushed")

    def _otlp_push(self, otlp: OtlpSettings | None, install: str) -> OtlpPush | None:
        if otlp is None:
            return None
        from shiplap.aws.secrets import text_of  # noqa: PLC0415 - see the module's docstring
        from shiplap.flows.otlp_push import OtlpPush  # noqa: PLC0415

        return OtlpPush(otlp, install, lambda secret: text_of(secret, lambda: hurried_client("secretsmanager")))

    @property
    def memory_mib(self) -> int:
        """The function's memory as Lambda tells it; much where nothing does."""
        return int(os.environ.get("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "4096"))

    def pause(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)

    @cached_property
    def state(self) -> StateStore:
        """The state of all clusters, for what does not name its cluster."""
        return lazily(self._state)

    @cached_property
    def dead_letters(self) -> DeadLetters:
        return self.optional.within(DEAD_LETTERS, lazily(self._dead_letters), self.clock)

    @cached_property
    def memory(self) -> MemoryStore:
        """The store of what the disrupt function remembers."""
        from shiplap.aws.bucket import BucketMemory  # noqa: PLC0415 - see the module's docstring

        return BucketMemory(client("s3"), self._names.bucket)

    def context(self, cluster: ClusterSettings) -> FlowContext:
        """The ports of a cluster; kept, so that its connections and caches are."""
        known = self._contexts.get(cluster.name)
        if known is None:
            known = self._contexts[cluster.name] = self._context(cluster)
        return known

    @cached_property
    def served(self) -> Settings:
        """The clusters of this function's network group: it reaches the API servers of no others."""
        return msgspec.structs.replace(self.settings, clusters=self.settings.of_network(self._names.network))

    def catalog_store(self, region: str) -> CatalogStore:
        """The catalogue of a region."""
        from shiplap.aws.bucket import BucketCatalog  # noqa: PLC0415 - see the module's docstring

        return BucketCatalog(client("s3"), self._names.bucket, region)

    @cached_property
    def status(self) -> StatusStore:
        """The store of what is known of the clusters' EC2NodeClasses."""
        return lazily(self._status)

    def catalog_source(self, region: str) -> CatalogSource:
        """Return the source of a region's catalogue."""
        from shiplap.aws.pricing.catalog_source import Ec2CatalogSource  # noqa: PLC0415

        return Ec2CatalogSource(
            region,
            ec2=client("ec2", region),
            price_list=lambda endpoint: client("pricing", endpoint),
            clock=self.clock.now,
        )

    def node_identities(self, region: str) -> NodeIdentities:
        """Instance profiles and node roles of the install in a region."""
        from shiplap.aws.iam_identities import AwsNodeIdentities  # noqa: PLC0415 - only `catalog` looks at them

        return AwsNodeIdentities(
            self._names.install,
            region,
            iam=client("iam", region),
            ec2=client("ec2", region),
            ssm=lambda: client("ssm", region),
            eks=lambda: client("eks", region),
        )

    def kept_identities(self, region: str) -> KeptIdentityStore:
        """Return the store of identities that are kept for nodes that still run."""
        from shiplap.aws.bucket import BucketKeptIdentities  # noqa: PLC0415 - see the module's docstring

        return BucketKeptIdentities(client("s3"), self._names.bucket, region)

    def _context(self, cluster: ClusterSettings) -> FlowContext:
        return FlowContext(
            clock=self.clock,
            cluster=lazily(lambda: self._cluster(cluster)),
            compute=lazily(lambda: self._compute(cluster)),
            state=lazily(self._state),
            capacity=lazily(self._capacity),
            catalog=lazily(lambda: self.catalog_store(cluster.region)),
            bus=lazily(self._bus),
            timers=lazily(lambda: self._timers(cluster)),
            recorder=lazily(self._recorder),
            meter=self.meter,
            source=lazily(lambda: self.catalog_source(cluster.region)),
            health=lazily(lambda: self._health(cluster)),
            joins=lazily(self._joins),
            status=lazily(self._status),
            dry_runs=lazily(self._dry_runs),
            snapshots=lazily(self._snapshots),
            manifests=lazily(self._manifests),
            memory=lazily(lambda: self.memory),
            optional=self.optional,
            policies=cluster.policies_on,
            policy_ports=self._policy_ports(cluster),
        )

    def _policy_ports(self, cluster: ClusterSettings) -> Mapping[str, object]:
        """Return the ports of the optional features that are on."""
        names = self._names
        resources = PolicyResources(
            client,
            names.state_table,
            names.capacity_table,
            names.bucket,
            cluster.region,
            install=names.install,
            now=self.clock.now,
        )
        made = (adapters_of(policy, resources) for policy in cluster.policies_on)
        return {port: lazily(make) for ports in made for port, make in ports.items()}

    def _cluster(self, cluster: ClusterSettings) -> ClusterApi:
        from shiplap.cluster.list_pages import page_bytes_of  # noqa: PLC0415 - see the module's docstring

        page_bytes = page_bytes_of(self.memory_mib)
        if cluster.kubeconfig_secret:
            from shiplap.aws.secrets import text_of  # noqa: PLC0415
            from shiplap.cluster.enter import secret_client  # noqa: PLC0415

            def kubeconfig() -> str:
                return text_of(cluster.kubeconfig_secret, lambda: client("secretsmanager", cluster.region))

            source = f"secret {cluster.kubeconfig_secret}"
            return secret_client(kubeconfig, source, sleep=time.sleep, page_bytes=page_bytes)
        from shiplap.cluster.connect import ApiEndpoint, connect  # noqa: PLC0415

        def described(_: str) -> ApiEndpoint:
            from shiplap.aws.eks import api_server  # noqa: PLC0415

            return ApiEndpoint(*api_server(cluster, lambda: client("eks", cluster.region)))

        return connect(
            cluster,
            describe_cluster=described,
            credentials=credentials,
            clock=self.clock,
            sleep=time.sleep,
            page_bytes=page_bytes,
        )

    def _compute(self, cluster: ClusterSettings) -> Compute:
        from shiplap.aws.ec2.ec2_compute import Ec2Compute  # noqa: PLC0415
        from shiplap.aws.ec2.request_pace import RequestPace, paced  # noqa: PLC0415

        pace = RequestPace(client("dynamodb"), self._names.state_table, cluster.region, clock=self.clock.now)
        return Ec2Compute(
            cluster,
            ec2=paced(client("ec2", cluster.region), pace),
            ssm=lambda: client("ssm", cluster.region),
            eks=lambda: client("eks", cluster.region),
            iam=lambda: client("iam", cluster.region),
            once=lambda: client_without_retries(cluster.region),
            clock=self.clock.now,
        )

    def _health(self, cluster: ClusterSettings) -> HealthSource:
        from shiplap.aws.health import Ec2Health  # noqa: PLC0415

        return Ec2Health(
            cluster.name,
            ec2=client("ec2", cluster.region),
            eks=lambda: client("eks", cluster.region),
            zonal_shift=lambda: client("arc-zonal-shift", cluster.region),
            clock=self.clock.now,
        )

    def _status(self) -> StatusStore:
        from shiplap.aws.bucket import BucketStatus  # noqa: PLC0415

        return BucketStatus(client("s3"), self._names.bucket)

    def _dry_runs(self) -> DryRunStore:
        from shiplap.aws.bucket import BucketDryRuns  # noqa: PLC0415

        return BucketDryRuns(client("s3"), self._names.bucket)

    def _snapshots(self) -> SnapshotStore:
        from shiplap.aws.bucket import BucketSnapshots  # noqa: PLC0415

        return BucketSnapshots(client("s3"), self._names.bucket)

    def _manifests(self) -> ManifestStore:
        from shiplap.aws.bucket import BucketManifests  # noqa: PLC0415

        return BucketManifests(client("s3"), self._names.bucket)

    def _joins(self) -> JoinLog:
        from shiplap.aws.dynamodb.join_log import DynamoJoins  # noqa: PLC0415

        return DynamoJoins(client("dynamodb"), self._names.state_table)

    def _state(self) -> StateStore:
        from shiplap.aws.dynamodb.state_table import DynamoState  # noqa: PLC0415

        return DynamoState(client("dynamodb"), self._names.state_table)

    def _capacity(self) -> CapacityStore:
        from shiplap.aws.dynamodb.capacity_table import DynamoCapacity  # noqa: PLC0415

        return DynamoCapacity(client("dynamodb"), self._names.capacity_table)

    def _bus(self) -> EventBus:
        from shiplap.aws.bus import EventBridgeBus  # noqa: PLC0415

        return EventBridgeBus(client("events"), self._names.bus)

    def _timers(self, cluster: ClusterSettings) -> Timers:
        from shiplap.aws.sqs import SqsTimers  # noqa: PLC0415

        return SqsTimers(client("sqs"), self._names.lifecycle_queue_of(cluster.network))

    def _recorder(self) -> FlightRecorder:
        from shiplap.aws.bucket import BucketRecorder  # noqa: PLC0415

        return BucketRecorder(client("s3"), self._names.bucket)

    def _dead_letters(self) -> DeadLetters:
        from shiplap.aws.sqs import SqsDeadLetters  # noqa: PLC0415

        return SqsDeadLetters(client("sqs"), self._names.dead_letter_queue_url)
