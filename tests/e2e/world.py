"""The whole system with a real cluster: the stack on the emulated AWS, EC2 whose instances join, a control plane."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import boto3
import msgspec
import yaml
from botocore.config import Config

from shiplap.aws import tags
from shiplap.aws.dynamodb.capacity_table import DynamoCapacity
from shiplap.aws.dynamodb.state_table import DynamoState
from shiplap.instances.capacity.described_capacity import nominal_memory
from shiplap.instances.catalog.ec2_catalog import Ec2InstanceType
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.manifests.nodeclaim import NodeClaim
from shiplap_lab.api_server.server import ListOptions
from shiplap_lab.catalogue import embedded
from shiplap_lab.cluster_simulator.machines import CatalogHardware
from shiplap_lab.emulated_aws.emulator import ACCOUNT, AwsEmulator
from shiplap_lab.emulated_ec2 import seed
from shiplap_lab.emulated_ec2.control import EmulatedImage, EmulatedInstance
from shiplap_lab.emulated_ec2.ec2_server import Ec2Emulator
from tests.e2e import programs
from tests.e2e.api import RealApi
from tests.e2e.control_plane import ControlPlane, wait_until
from tests.e2e.dry_runs import DryRuns
from tests.e2e.joiner import Joiner
from tests.e2e.judging import JudgedCluster, pools_in
from tests.event_source import EventSourcePoller, take_over_mapping
from tests.integration.contracts.cluster_objects import RBAC

REGION = "us-east-1"
ZONES = (f"{REGION}a", f"{REGION}b", f"{REGION}c")
CLUSTER = "real"
_MIB = 2**20
_AT_ONCE = 2
"""Invocations of a function at once: a machine with two processors gains nothing by more, and each starts cold."""
_LONGEST_S = 900


class World:
    """A context manager. `manifests` are the NodePools and EC2NodeClasses; `settings` are added to the cluster's. Every
    `poll_s` seconds it is looked whether instances have started or ended. With `manifests: cluster` among the settings
    the manifests are objects of the API server, which has upstream's CRDs. A world that is `judged` fails at its end if
    the judge has found that a promise was broken.

    Attributes:
        overhead: the share of its memory that an instance type really lacks, where it is not 4 %.
        restarted_at: when the API server was restarted last, epoch seconds.
        sources: what delivers the messages of each queue to its function, by function.
        judge: what looks at all of it from outside.
        kubernetes_minor: the version of the control plane, such as 1.36.
    """

    def __init__(
        self,
        folder: Path,
        manifests: str,
        settings: Mapping[str, Any] | None = None,
        *,
        poll_s: float = 0.1,
        judged: bool = False,
    ) -> None:
        self.overhead: dict[str, float] = {}
        self.restarted_at = 0.0
        self._folder = folder
        self._manifests = manifests
        self._settings = dict(settings or {})
        self._poll_s, self._judged = poll_s, judged
        self._running = ExitStack()

    def __enter__(self) -> World:
        try:
            self._start()
        except BaseException as error:
            self._running.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def __exit__(self, *error: Any) -> None:
        self._running.__exit__(*error)
        if self._judged and not any(error):
            assert self.judge.failure is None
            assert self.judge.violations == ()

    def _start(self) -> None:
        enter = self._running.enter_context
        self.ec2 = enter(Ec2Emulator(region=REGION))
        self.aws = enter(AwsEmulator(REGION, folder=self._folder / "aws"))
        self.plane = enter(ControlPlane(self._folder / "plane"))
        self.api = RealApi(self.plane)
        self._running.callback(self.api.close)
        self.kubernetes_minor = ".".join(programs.version().removeprefix("v").split(".")[:2])
        self._seed()
        token = self._enter()
        if self._settings.get("manifests") == "cluster":
            enter(DryRuns(self.plane))  # installs the CRDs
            self.apply(self._manifests)
        self.deployed = self.aws.deploy(self._written(token), dict.fromkeys(("EC2", "SSM", "PRICING"), self.ec2.url))
        self.state = DynamoState(self.aws.client("dynamodb"), self.deployed.state_table)
        self.capacity = DynamoCapacity(self.aws.client("dynamodb"), self.deployed.capacity_table)
        self._sqs = self._client("sqs")
        self._lambda = self._client("lambda")
        self._deliver()
        self.invoke("catalog", {})
        hardware = CatalogHardware(embedded.load(), self._memory)
        self.joiner = enter(Joiner(self.api, self.ec2.control, CLUSTER, hardware, programs.version(), self._poll_s))
        self.judge = enter(JudgedCluster(CLUSTER, self.api, self.state, self.ec2.control, pools_in(self._manifests)))
        self.invoke("watch", {"cluster": CLUSTER}, wait=False)

    def _client(self, service: str) -> Any:
        """A client that waits as long as a function may run, and never asks twice."""
        return boto3.client(  # type: ignore[call-overload]
            service,
            endpoint_url=self.aws.url,
            region_name=REGION,
            aws_access_key_id=ACCOUNT,
            aws_secret_access_key="local",
            config=Config(read_timeout=_LONGEST_S, retries={"total_max_attempts": 1}, max_pool_connections=20),
        )

    def _deliver(self) -> None:
        """From the queues to the functions as Lambda does it: the emulator knows neither windows nor large batches."""
        queues = {
            "schedule": self.deployed.provisioning_queue_url,
            "lifecycle": self.deployed.lifecycle_queue_url,
            "interrupt": self.deployed.interruption_queue_url,
        }
        self.sources = {}
        for function, url in queues.items():
            mapped = take_over_mapping(self._lambda, url, f"{self.deployed.functions[function]}:live")
            mapped = msgspec.structs.replace(mapped, most_at_once=_AT_ONCE)
            self.sources[function] = EventSourcePoller(self._sqs, self._lambda, mapped)
            self._running.enter_context(self.sources[function])
        self._running.callback(lambda: [source.stop() for source in self.sources.values()])  # together

    def _enter(self) -> str:
        """The functions' service account, with the shipped role and nothing else; its token."""
        for document in (item for path in RBAC for item in yaml.safe_load_all(path.read_text())):
            self.api.apply(document)
        self.api.create("serviceaccounts", {"metadata": {"name": "shiplap"}}, "shiplap")
        subject = {"kind": "ServiceAccount", "namespace": "shiplap", "name": "shiplap"}
        for name in ("shiplap", "shiplap-manifests"):
            role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
            binding = {"metadata": {"name": f"{name}-functions"}, "roleRef": role, "subjects": [subject]}
            self.api.create("clusterrolebindings", binding)
        self.api.create("storageclasses", {"metadata": {"name": "fast"}, **_STORAGE_CLASS})
        return self.api.token_of("shiplap", "shiplap")

    def _seed(self) -> None:
        seed.register_images(self.ec2.control, seed.release_images("al2023@latest", self.kubernetes_minor))
        self.release_image("2026-01-01T00:00:00Z")
        client = boto3.client(
            "ec2",
            endpoint_url=self.ec2.url,
            region_name=REGION,
            aws_access_key_id="local",
            aws_secret_access_key="local",
        )
        seed.create_network(client, "shared", ZONES)
        client.close()

    def _written(self, token: str) -> Path:
        install = self._folder / "install"
        install.mkdir()
        (install / "nodes.yaml").write_text(self._manifests)
        cluster = {
            "name": CLUSTER,
            "manifests": "nodes.yaml",
            "endpoint": self.plane.endpoint,
            "certificateAuthority": self.plane.certificate_authority,
            "token": token,
            "kubernetesVersion": self.kubernetes_minor,
            "serviceCIDR": "172.20.0.0/16",
            "watch": False,
            **self._settings,
        }
        path = install / "shiplap.yaml"
        path.write_bytes(msgspec.json.encode({"region": REGION, "clusters": [cluster]}))
        return path

    def _memory(self, kind: Ec2InstanceType, ami: str) -> int:
        missing = self.overhead.get(kind.instance_type, 4.0)
        return int(nominal_memory(kind) * (1 - missing / 100)) // _MIB * _MIB

    # What a test does

    def invoke(self, function: str, payload: Mapping[str, Any], *, wait: bool = True) -> Any:
        """Call a function as its schedule would: the version in service, whose workers know what they have asked."""
        answer = self._lambda.invoke(
            FunctionName=f"{self.deployed.functions[function]}:live",
            InvocationType="RequestResponse" if wait else "Event",
            Payload=json.dumps(dict(payload)),
        )
        said = answer["Payload"].read()
        assert "FunctionError" not in answer, f"{function}: {said.decode()}"
        return json.loads(said) if said else None

    def apply(self, documents: str) -> None:
        """Real manifests, several to a text."""
        for document in yaml.safe_load_all(documents):
            self.api.apply(document)

    def sweep(self) -> None:
        """Send EventBridge Scheduler's message of every minute. Raises the error that ended the delivery of a queue."""
        for source in self.sources.values():
            if source.failure is not None:
                raise source.failure
        body = json.dumps({"kind": "sweep", "cluster": CLUSTER})
        self._sqs.send_message(QueueUrl=self.deployed.provisioning_queue_url, MessageBody=body)

    def release_image(self, created: str) -> str:
        """An AMI that the EC2NodeClass `drifting` selects, made at an RFC 3339 time; returns its id."""
        image = EmulatedImage(f"ami-{created[:10].replace('-', '0')}", f"own-{created[:10]}", "x86_64", created)
        self.ec2.control.image(msgspec.structs.replace(image, tags={"image": "own"}))
        return image.image_id

    def interrupt(self, instance_id: str, kind: str = "EC2 Spot Instance Interruption Warning") -> None:
        """Send the event that the rule for EC2's events delivers: the emulator takes no events in the name of AWS."""
        detail = {"instance-id": instance_id, "instance-action": "terminate"}
        body = {"source": "aws.ec2", "detail-type": kind, "time": rfc3339(time.time()), "detail": detail}
        self.judge.warned(body)
        self.send_event(body)

    def send_event(self, event: Mapping[str, Any]) -> None:
        """Send an event of EC2's to the queue of the rule that it matches."""
        self._sqs.send_message(QueueUrl=self.deployed.interruption_queue_url, MessageBody=json.dumps(event))

    def disrupt_until(self, done: Callable[[], object], what: str, timeout_s: float = 300.0) -> None:
        """Let minutes pass, one after the other and faster than real ones, until it is done."""

        def after_a_minute() -> bool:
            if done():
                return True
            self.invoke("disrupt", {"cluster": CLUSTER})
            self.sweep()
            return False

        wait_until(after_a_minute, what, timeout_s=timeout_s, poll_s=1.0, told=self.told)

    # What a test sees

    def pods(self, app: str = "") -> list[dict[str, Any]]:
        """Pods of the namespace `default` that are not ending, of one `app` or all."""
        chosen = ListOptions("default", label_selector=f"app={app}" if app else "")
        found = self.api.list("pods", chosen).items
        return [pod for pod in found if not pod["metadata"].get("deletionTimestamp")]

    def running(self, app: str) -> list[dict[str, Any]]:
        return [pod for pod in self.pods(app) if pod["status"]["phase"] == "Running"]

    def nodes(self) -> dict[str, dict[str, Any]]:
        return {node["metadata"]["name"]: node for node in self.api.list("nodes").items}

    def launched(self) -> list[EmulatedInstance]:
        """All instances that the cluster ever had, oldest first."""
        return [item for item in self.ec2.control.instances() if item.tags.get(tags.CLUSTER) == CLUSTER]

    def instances(self) -> list[EmulatedInstance]:
        """Return the cluster's instances that have not ended."""
        return [item for item in self.launched() if item.state in ("pending", "running")]

    def claims(self) -> Sequence[NodeClaim]:
        return self.state.claims(CLUSTER)

    def await_running(self, app: str, number: int, timeout_s: float = 240.0) -> None:
        """Until exactly so many pods of an app run."""
        wait_until(
            lambda: [pod["status"]["phase"] for pod in self.pods(app)] == ["Running"] * number,
            f"{number} pods of {app} run",
            timeout_s=timeout_s,
            told=self.told,
        )

    def told(self) -> str:
        """The state of everything, for the message of a failure."""
        failures = {name: source.failure for name, source in self.sources.items() if source.failure}
        lines = [f"joiner: {self.joiner.failure!r}, queues: {failures}"]
        lines += [
            f"pod {p['metadata']['name']} {p['status']['phase']} on {p['spec'].get('nodeName')} "
            f"{[c.get('message') for c in p['status'].get('conditions', []) if c['type'] == 'PodScheduled']}"
            for p in self.pods()[:20]
        ]
        lines += [f"node {name} {n['spec'].get('taints')}" for name, n in list(self.nodes().items())[:20]]
        lines += [
            f"claim {c.name} {c.state} {c.known_instance.type} {c.instance_id} {c.node_name}" for c in self.claims()
        ][:20]
        lines += [
            f"event {e['reason']} {e['involvedObject']['name']}: {e.get('message')}"
            for e in self.api.list("events").items
            if (e.get("reportingComponent") or (e.get("source") or {}).get("component")) == "shiplap"
        ][-20:]
        lines += [f"judge: {violation}" for violation in self.judge.violations[:20]]
        lines += [(self.aws.state / "ministack.log").read_text(errors="replace")[-3000:]]
        return "\n".join(lines)


_STORAGE_CLASS = {"provisioner": "ebs.csi.aws.com", "volumeBindingMode": "WaitForFirstConsumer"}
