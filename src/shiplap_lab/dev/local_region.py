"""The stage of `shiplap lab dev`: this machine as an AWS Region with clusters, in real time.

The project's own stack is deployed on the emulated AWS and its functions run there; EC2 is played in this process, and
so are the clusters, whose API servers the functions reach over HTTP.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from threading import Event, Thread
from types import TracebackType
from typing import Any, TypeVar, cast

import msgspec

from shiplap.aws import tags
from shiplap.aws.dynamodb.capacity_table import DynamoCapacity
from shiplap.aws.dynamodb.state_table import DynamoState
from shiplap.errors import ShiplapError
from shiplap.kubernetes.objects import DaemonSet, Node, Pod
from shiplap.kubernetes.objects import Event as KubernetesEvent
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.ports import Instance
from shiplap_lab.api_server.server import ApiServer
from shiplap_lab.catalogue import embedded
from shiplap_lab.checks.observation import ClusterObservation, PodDeletion, RegionObservation, SeenClaims
from shiplap_lab.cluster_simulator.http_server import KubeHttpServer
from shiplap_lab.cluster_simulator.machines import CatalogHardware, Machine
from shiplap_lab.cluster_simulator.simulated_cluster import PolledCluster, Runner
from shiplap_lab.dev.dev_session import announce_session
from shiplap_lab.dev.region_page import region_markup
from shiplap_lab.dev.starting_clusters import node_roles, starting_objects, warning_of_role, write_install
from shiplap_lab.emulated_aws.emulator import ACCOUNT, AwsEmulator, DeployedStack
from shiplap_lab.emulated_ec2 import seed
from shiplap_lab.emulated_ec2.control import EmulatedImage, EmulatedInstance
from shiplap_lab.emulated_ec2.ec2_server import Ec2Emulator
from shiplap_lab.emulated_ec2.regional_prices import Prices
from shiplap_lab.scenarios.scenario import InterruptionKind, NodeMemoryRule, Outage, Play, ScenarioCluster, node_memory
from shiplap_lab.scenarios.workload import create_object, remove_pod

REGION = "us-east-1"
ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")
_MOMENT_S = 0.3
_POLL_S = 0.2

_KNOWN = [msgspec.json.Decoder(kind) for kind in (Pod, Node, DaemonSet, KubernetesEvent)]
"""Types that several threads convert to: msgspec crashes when two of them learn about a type at the same time."""

Tell = Callable[[str], None]
T = TypeVar("T")


class RealClock:
    """The machine's clock."""

    def now(self) -> float:
        return time.time()


class QueueDepth(msgspec.Struct, frozen=True):
    """Messages of a queue that wait, and those that an invocation holds or a death has left invisible."""

    queue: str
    waiting: int
    in_flight: int


class LocalRegion:
    """A scenario's world; a context manager that sets everything up on entry and takes it down on exit.

    `tell` receives a line for each phase of the set-up. With `live` the functions read the manifests from the API
    servers, so that what kubectl applies counts.
    """

    pace = 1.0

    def __init__(self, play: Play, tell: Tell, *, live: bool = False) -> None:
        self._play, self._scenario, self._live = play, play.scenario, live
        elsewhere = f"it needs virtual time: `shiplap lab simulate {play.name}`"
        self._scenario.refuse(
            "`shiplap lab dev`",
            waves=elsewhere,
            rhythms=elsewhere,
            faults=elsewhere,
            chaos=elsewhere,
            installs=elsewhere,
            sleep=elsewhere,
            gangs=elsewhere,
            provisioning_requests=elsewhere,
            reserved_instances=elsewhere,
            savings_plans=elsewhere,
        )
        self._tell = tell
        self._clock = RealClock()
        self._running = ExitStack()
        self._aws: AwsEmulator | None = None
        self._memory: tuple[NodeMemoryRule, ...] = self._scenario.memory
        self._instances: tuple[EmulatedInstance, ...] = ()
        self._servers: dict[str, ApiServer] = {}
        self._claims = {cluster.name: SeenClaims(cluster.name) for cluster in self._scenario.clusters}
        self._deletions: dict[str, list[PodDeletion]] = {cluster.name: [] for cluster in self._scenario.clusters}
        self._objects = {cluster.name: _Objects() for cluster in self._scenario.clusters}

    def __enter__(self) -> LocalRegion:
        try:
            self._set_up()
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._aws is not None:
            self._aws.end()  # first, so that no function asks those that are stopped after it
        self._running.__exit__(kind, error, trace)

    def keep_logs(self) -> Path | None:
        """Leave the logs behind when the stage is taken down; returns where."""
        if self._aws is None:
            return None
        self._aws.keep_logs = True
        return self._aws.state

    @property
    def emulator_process(self) -> int:
        """The process that guards the emulated AWS and all functions."""
        return self._emulator.process

    @property
    def emulator_log(self) -> Path:
        """Return the log file of the emulated AWS and the functions."""
        return self._emulator.log

    @property
    def functions(self) -> dict[str, str]:
        """The functions' names in Lambda."""
        return self._deployed.functions

    def queue_depths(self) -> tuple[QueueDepth, ...]:
        """Return how many messages each queue has."""
        return tuple(self._depth(url) for url in self._deployed.queue_urls)

    def _depth(self, url: str) -> QueueDepth:
        names = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible")
        counts = self._sqs.get_queue_attributes(QueueUrl=url, AttributeNames=list(names))["Attributes"]
        return QueueDepth(url.rpartition("/")[2], *(int(counts[name]) for name in names))

    @property
    def _emulator(self) -> AwsEmulator:
        if self._aws is None:
            raise ShiplapError("the Region is not set up")
        return self._aws

    def now(self) -> float:
        return self._clock.now()

    def let_time_pass(self) -> None:
        time.sleep(_MOMENT_S)
        self._emulator.check()
        if self._runner.failure is not None:
            raise self._runner.failure

    def outage(self, outage: Outage) -> None:
        self._ec2.control.capacity(
            outage.instance_type, outage.zone, outage.capacity_type, available=None if outage.over else 0
        )

    def interrupt(self, instance_id: str, kind: InterruptionKind) -> None:
        """Send what the rules for EC2's events would deliver: the emulator takes no events in the name of AWS."""
        body = {
            "version": "0",
            "source": "aws.ec2",
            "detail-type": _INTERRUPTIONS[kind],
            "time": rfc3339(self.now()),
            "detail": {"instance-id": instance_id},
        }
        self._sqs.send_message(
            QueueUrl=self._deployed.interruption_queue_url, MessageBody=msgspec.json.encode(body).decode()
        )

    def set_memory(self, rules: Sequence[NodeMemoryRule]) -> None:
        self._memory = tuple(rules)

    def apply(self, cluster: str, *items: dict[str, Any]) -> None:
        """Create objects, all at one moment: no decision is about a part of them."""
        with self._servers[cluster].at_once():
            for item in items:
                create_object(self._servers[cluster], item, self.now())

    def remove(self, cluster: str, pod: Pod) -> None:
        remove_pod(self._servers[cluster], pod)

    def disrupt(self, cluster: str) -> None:
        """Let a minute's functions look at a cluster now: what one begins, the sweep carries on."""
        invoke(self._functions, self._deployed.functions["disrupt"], {"cluster": cluster}, wait=False)
        sweep = {"kind": "sweep", "cluster": cluster}
        self._sqs.send_message(
            QueueUrl=self._deployed.provisioning_queue_url, MessageBody=msgspec.json.encode(sweep).decode()
        )

    def watch(self, cluster: str) -> None:
        """Begin a watch, as the schedule does every few minutes on AWS. One that dies is repeated twice."""
        invoke(self._functions, self._deployed.functions["watch"], {"cluster": cluster}, wait=False)

    def read_catalog(self) -> None:
        """Let types, prices and offerings be read again, as the schedule does every hour on AWS."""
        invoke(self._functions, self._deployed.functions["catalog"], {}, wait=False)

    def widget(self) -> str:
        """The dashboard's widget as the clusters are now. Raises ShiplapError."""
        instances = self._instances
        return region_markup([self._cluster(each, instances) for each in self._scenario.clusters], self.now())

    def version(self) -> str:
        """Of everything that API servers and EC2 tell."""
        machines = hash(tuple((item.id, item.state) for item in self._instances))
        return "-".join((*(server.resource_version for server in self._servers.values()), f"{machines:x}"))

    @property
    def endpoints(self) -> dict[str, str]:
        """The addresses of the clusters' API servers, by name."""
        return dict(self._endpoints)

    @property
    def folder(self) -> Path:
        """The folder of this run, which is removed with it."""
        return self._emulator.state

    def price(self, instance_type: str, zone: str, capacity_type: str) -> float:
        """As the emulated EC2 sells it."""
        return self._prices.price(instance_type, zone, capacity_type)

    def machine_types(self) -> dict[str, dict[str, Any]]:
        """Return the hardware that EC2 states for each type."""
        return embedded.stated_hardware(embedded.load())

    def observe(self) -> RegionObservation:
        """Look at everything, through the front doors: the API servers, the tables, EC2, the queues."""
        self._emulator.check()
        instances = self._ec2.control.instances()
        clusters = tuple(self._cluster(cluster, instances) for cluster in self._scenario.clusters)
        return RegionObservation(clusters, self._capacity.all(), self._dead_letters())

    def _cluster(self, cluster: ScenarioCluster, instances: Sequence[EmulatedInstance]) -> ClusterObservation:
        server, objects = self._servers[cluster.name], self._objects[cluster.name]
        deletions = tuple(self._deletions[cluster.name])
        claims, commands = self._claims[cluster.name].look(self._state), self._state.commands(cluster.name)
        return ClusterObservation(
            name=cluster.name,
            deletions=deletions,
            claims=claims,
            commands=commands,
            pods=objects.all(server, "pods", Pod),
            nodes=objects.all(server, "nodes", Node),
            events=objects.all(server, "events", KubernetesEvent),
            instances=tuple(
                described_instance(item) for item in instances if item.tags.get(tags.CLUSTER) == cluster.name
            ),
            stored={plural: server.list(plural).items for plural in ("nodes", "pods")},
        )

    def _dead_letters(self) -> int:
        total = 0
        for url in self._deployed.dead_letters_urls:
            answer = self._sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["ApproximateNumberOfMessages"])
            total += int(answer["Attributes"]["ApproximateNumberOfMessages"])
        return total

    def _set_up(self) -> None:
        self._tell("starting the emulated AWS")
        self._ec2 = self._running.enter_context(Ec2Emulator(region=REGION))
        aws = self._aws = self._running.enter_context(AwsEmulator(REGION))
        self._seed_region()
        catalog = embedded.load()
        self._prices = Prices.of(catalog)
        for cluster in self._scenario.clusters:
            self._servers[cluster.name] = ApiServer(self._clock)
            self.apply(cluster.name, *starting_objects(self._play, cluster, live=self._live))
        endpoints = self._endpoints = {name: self._serve(name, server) for name, server in self._servers.items()}
        self._tell("deploying the stack with cdk deploy")
        settings = write_install(self._play, aws.state / "install", REGION, endpoints, live=self._live)
        services = dict.fromkeys(("EC2", "SSM", "PRICING"), self._ec2.url)
        self._deployed: DeployedStack = aws.deploy(settings, services)
        self._state = DynamoState(aws.client("dynamodb"), self._deployed.state_table)
        self._capacity = DynamoCapacity(aws.client("dynamodb"), self._deployed.capacity_table)
        self._sqs = aws.client("sqs")
        elsewhere = {f"AWS_ENDPOINT_URL_{service}": url for service, url in services.items()}
        announce_session(aws.state, aws.environment() | elsewhere, self._deployed.bucket, endpoints)
        self._tell("reading what EC2 sells")
        self._functions = functions = aws.client("lambda")
        invoke(functions, self._deployed.functions["catalog"], {})
        self._start_clusters(CatalogHardware(catalog, lambda kind, ami: node_memory(self._memory, kind, ami)))
        for cluster in self._scenario.clusters:
            self.watch(cluster.name)

    def _serve(self, cluster: str, server: ApiServer) -> str:
        """Only functions come by HTTP: a pod that is deleted there is deleted by them."""
        deletions = self._deletions[cluster]

        def deleted(pod: dict[str, Any], forced: bool) -> None:  # noqa: FBT001 - called by the server
            deletions.append(PodDeletion(msgspec.convert(pod, Pod), forced))

        roles = node_roles(self._play.written[cluster])
        http = KubeHttpServer(server, on_pod_deleted=deleted, warns=partial(warning_of_role, roles=roles)).start()
        self._running.callback(http.stop)
        return http.endpoint

    def _seed_region(self) -> None:
        import boto3  # noqa: PLC0415 - a second that `--help` does not wait for

        control = self._ec2.control
        client = boto3.client(
            "ec2",
            endpoint_url=self._ec2.url,
            region_name=REGION,
            aws_access_key_id=ACCOUNT,
            aws_secret_access_key="local",  # noqa: S106 - the emulator checks none
        )
        seed.create_network(client, "shared", ZONES)  # one VPC: the manifests of every cluster may select it
        for version in sorted({cluster.kubernetes_version for cluster in self._scenario.clusters}):
            seed.register_images(control, seed.release_images("al2023@latest", version))
            seed.register_images(control, seed.release_images("bottlerocket@latest", version))
        seed.register_images(
            control,
            [
                seed.PublishedImage(
                    EmulatedImage(image.id, image.name, image.architecture, image.created), image.ssm_parameters
                )
                for image in self._scenario.images
            ],
        )

    def _start_clusters(self, hardware: CatalogHardware) -> None:
        simulated = [
            PolledCluster(
                self._servers[cluster.name],
                hardware,
                self._machines_of(cluster.name),
                version=f"v{cluster.kubernetes_version}.0",
            )
            for cluster in self._scenario.clusters
        ]
        self._poll_instances()
        self._runner = Runner(simulated, self._clock).start()
        self._running.callback(self._runner.stop)

    def _machines_of(self, cluster: str) -> Callable[[], Sequence[Machine]]:
        return lambda: [_machine(item) for item in self._instances if item.tags.get(tags.CLUSTER) == cluster]

    def _poll_instances(self) -> None:
        """Keep what kubelets see of EC2 fresh, by one request for all clusters."""
        stopping = Event()

        def poll() -> None:
            while not stopping.wait(_POLL_S):
                self._instances = self._ec2.control.instances()

        thread = Thread(target=poll, name="instances", daemon=True)
        thread.start()
        self._running.callback(thread.join)
        self._running.callback(stopping.set)


class _Objects:
    """Typed objects of one API server; one that has not changed is decoded once."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Any] = {}

    def all(self, server: ApiServer, plural: str, typed: type[T]) -> tuple[T, ...]:
        return tuple(self._typed(item, typed) for item in server.list(plural).items)

    def _typed(self, item: dict[str, Any], typed: type[T]) -> T:
        key = (item["metadata"]["uid"], item["metadata"]["resourceVersion"])
        if key not in self._known:
            self._known[key] = msgspec.convert(item, typed)
        return cast("T", self._known[key])


_INTERRUPTIONS: dict[InterruptionKind, str] = {
    "spot": "EC2 Spot Instance Interruption Warning",
    "rebalance": "EC2 Instance Rebalance Recommendation",
}


def invoke(client: Any, function: str, payload: dict[str, str], *, wait: bool = True) -> bytes:
    """Call a function as its schedule would; its answer. Raises ShiplapError if it fails, or does not answer."""
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - as boto3 above

    try:
        answer = client.invoke(
            FunctionName=function,
            InvocationType="RequestResponse" if wait else "Event",
            Payload=msgspec.json.encode(payload),
        )
    except (BotoCoreError, ClientError) as error:
        raise ShiplapError(f"function {function} did not answer: {error}") from error
    if answer.get("FunctionError"):
        raise ShiplapError(f"function {function} failed: {answer['Payload'].read().decode()}")
    return bytes(answer["Payload"].read())


def _machine(instance: EmulatedInstance) -> Machine:
    return Machine(
        id=instance.id,
        instance_type=instance.instance_type,
        zone=instance.zone,
        ami=instance.ami,
        launched_at=instance.launched_at,
        running=instance.state == "running",
        private_dns=instance.private_dns,
        user_data=instance.user_data,
        reboots=instance.reboots,
    )


def described_instance(instance: EmulatedInstance) -> Instance:
    """An emulated instance as the adapter of EC2 would describe it."""
    return Instance(
        id=instance.id,
        instance_type=instance.instance_type,
        zone=instance.zone,
        capacity_type=instance.capacity_type,
        ami=instance.ami,
        state=instance.state,
        launched_at=instance.launched_at,
        cluster=instance.tags.get(tags.CLUSTER, ""),
        claim=instance.tags.get(tags.NODE_CLAIM, ""),
        node_pool=instance.tags.get(tags.NODE_POOL, ""),
        launch=instance.tags.get(tags.LAUNCH, ""),
        install=instance.tags.get(tags.INSTALL, ""),
        private_dns=instance.private_dns,
    )
