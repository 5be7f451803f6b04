"""The whole system with a real cluster: the stack on the emulated AWS, EC2 whose instances join, a control plane."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

import boto3
import msgspec
import yaml

from shiplap.api.nodeclaim import NodeClaim
from shiplap.aws import tags
from shiplap.aws.dynamodb_capacity import DynamoCapacity
from shiplap.aws.dynamodb_state import DynamoState
from shiplap.instances import embedded
from shiplap.instances.capacity import nominal_memory
from shiplap.instances.catalog import Ec2InstanceType
from shiplap.local.ec2 import seed
from shiplap.local.ec2.control import EmulatedInstance
from shiplap.local.ec2.server import Ec2Emulator
from shiplap.local.emulator import AwsEmulator
from shiplap.local.kube.machines import CatalogHardware
from tests.e2e import programs
from tests.e2e.api import RealApi
from tests.e2e.control_plane import ControlPlane, wait_until
from tests.e2e.joiner import Joiner

REGION = "us-east-1"
ZONES = (f"{REGION}a", f"{REGION}b", f"{REGION}c")
CLUSTER = "real"
RBAC = Path(__file__).parents[2] / "docs" / "rbac.yaml"
FIGURES = Path(__file__).parents[2] / "build" / "e2e.json"
_MIB = 2**20


class World:
    """A context manager. `manifests` are the NodePools and EC2NodeClasses; `settings` are added to the cluster's.

    Attributes:
        overhead: the share of its memory that an instance type really lacks, where it is not 4 %.
        restarted_at: when the API server was restarted last, epoch seconds.
    """

    def __init__(self, folder: Path, manifests: str, settings: Mapping[str, Any] | None = None) -> None:
        self.overhead: dict[str, float] = {}
        self.restarted_at = 0.0
        self._folder = folder
        self._manifests = manifests
        self._settings = dict(settings or {})
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

    def _start(self) -> None:
        enter = self._running.enter_context
        self.ec2 = enter(Ec2Emulator(region=REGION))
        self.aws = enter(AwsEmulator(REGION, folder=self._folder / "aws"))
        self.plane = enter(ControlPlane(self._folder / "plane"))
        self.api = RealApi(self.plane)
        self._running.callback(self.api.close)
        self._minor = ".".join(programs.version().removeprefix("v").split(".")[:2])
        self._seed()
        token = self._enter()
        self.deployed = self.aws.deploy(self._written(token), dict.fromkeys(("EC2", "SSM", "PRICING"), self.ec2.url))
        self.state = DynamoState(self.aws.client("dynamodb"), self.deployed.state_table)
        self.capacity = DynamoCapacity(self.aws.client("dynamodb"), self.deployed.capacity_table)
        self._sqs = self.aws.client("sqs")
        self._lambda = self.aws.client("lambda")
        self.invoke("catalog", {})
        hardware = CatalogHardware(embedded.load(), self._memory)
        self.joiner = enter(Joiner(self.api, self.ec2.control, CLUSTER, hardware, programs.version()))
        self.invoke("watch", {"cluster": CLUSTER}, wait=False)

    def _enter(self) -> str:
        """The functions' service account, with the shipped role and nothing else; its token."""
        for document in yaml.safe_load_all(RBAC.read_text()):
            self.api.apply(document)
        self.api.create("serviceaccounts", {"metadata": {"name": "shiplap"}}, "shiplap")
        subject = {"kind": "ServiceAccount", "namespace": "shiplap", "name": "shiplap"}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "shiplap"}
        binding = {"metadata": {"name": "shiplap-functions"}, "roleRef": role, "subjects": [subject]}
        self.api.create("clusterrolebindings", binding)
        self.api.create("storageclasses", {"metadata": {"name": "fast"}, **_STORAGE_CLASS})
        return self.api.token_of("shiplap", "shiplap")

    def _seed(self) -> None:
        seed.images(self.ec2.control, seed.released("al2023@latest", self._minor))
        client = boto3.client(
            "ec2",
            endpoint_url=self.ec2.url,
            region_name=REGION,
            aws_access_key_id="local",
            aws_secret_access_key="local",
        )
        seed.network(client, "shared", ZONES)
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
            "kubernetesVersion": self._minor,
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
        """Call a function as its schedule would."""
        answer = self._lambda.invoke(
            FunctionName=f"shiplap-{function}",
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
        """What EventBridge Scheduler sends every minute."""
        body = json.dumps({"kind": "sweep", "cluster": CLUSTER})
        self._sqs.send_message(QueueUrl=self.deployed.provisioning_queue_url, MessageBody=body)

    def release_images(self) -> frozenset[str]:
        """Newer AMIs than those that nodes run; returns their ids."""
        made = [
            seed.Image(
                msgspec.structs.replace(
                    item.image, image_id=f"ami-f{item.image.image_id[5:]}", creation_date="2026-06-01T00:00:00Z"
                ),
                item.parameters,
            )
            for item in seed.released("al2023@latest", self._minor)
        ]
        seed.images(self.ec2.control, made)
        return frozenset(item.image.image_id for item in made)

    def interrupt(self, instance_id: str, kind: str = "EC2 Spot Instance Interruption Warning") -> None:
        """What the rule for EC2's events delivers: the emulator takes no events in the name of AWS."""
        detail = {"instance-id": instance_id, "instance-action": "terminate"}
        body = {"source": "aws.ec2", "detail-type": kind, "detail": detail}
        self._sqs.send_message(QueueUrl=self.deployed.interruption_queue_url, MessageBody=json.dumps(body))

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
        found = [pod for pod in self.api.list("pods").items if pod["metadata"]["namespace"] == "default"]
        return [
            pod
            for pod in found
            if not pod["metadata"].get("deletionTimestamp")
            and (not app or (pod["metadata"].get("labels") or {}).get("app") == app)
        ]

    def running(self, app: str) -> list[dict[str, Any]]:
        return [pod for pod in self.pods(app) if pod["status"]["phase"] == "Running"]

    def nodes(self) -> dict[str, dict[str, Any]]:
        return {node["metadata"]["name"]: node for node in self.api.list("nodes").items}

    def instances(self) -> list[EmulatedInstance]:
        """Those of the cluster that have not ended."""
        return [
            item
            for item in self.ec2.control.instances()
            if item.tags.get(tags.CLUSTER) == CLUSTER and item.state in ("pending", "running")
        ]

    def claims(self) -> Sequence[NodeClaim]:
        return self.state.claims(CLUSTER)

    def await_running(self, app: str, number: int, timeout_s: float = 240.0) -> None:
        """Until exactly so many pods of an app run."""
        wait_until(
            lambda: len(self.running(app)) == number == len(self.pods(app)),
            f"{number} pods of {app} run",
            timeout_s=timeout_s,
            told=self.told,
        )

    def told(self) -> str:
        """The state of everything, for the message of a failure."""
        lines = [f"joiner: {self.joiner.failure!r}"]
        lines += [
            f"pod {p['metadata']['name']} {p['status']['phase']} on {p['spec'].get('nodeName')} "
            f"{[c.get('message') for c in p['status'].get('conditions', []) if c['type'] == 'PodScheduled']}"
            for p in self.pods()[:20]
        ]
        lines += [f"node {name} {n['spec'].get('taints')}" for name, n in list(self.nodes().items())[:20]]
        lines += [f"claim {c.name} {c.state} {c.instance_type} {c.instance_id} {c.node_name}" for c in self.claims()][
            :20
        ]
        lines += [
            f"event {e['reason']} {e['involvedObject']['name']}: {e.get('message')}"
            for e in self.api.list("events").items
            if (e.get("reportingComponent") or (e.get("source") or {}).get("component")) == "shiplap"
        ][-20:]
        lines += [(self.aws.state / "ministack.log").read_text(errors="replace")[-3000:]]
        return "\n".join(lines)

    def figure(self, name: str, values: Sequence[float]) -> None:
        """Keep what was measured: number, median and 99th percentile, in `build/e2e.json`."""
        ordered = sorted(values)
        percentiles = {f"p{share}": ordered[min(len(ordered) - 1, len(ordered) * share // 100)] for share in (50, 99)}
        known = msgspec.json.decode(FIGURES.read_bytes()) if FIGURES.exists() else {}
        FIGURES.parent.mkdir(exist_ok=True)
        FIGURES.write_bytes(msgspec.json.encode({**known, name: {"n": len(ordered), **percentiles}}))

    def created_at(self) -> dict[str, float]:
        """When the API server was asked for each pod, epoch seconds by uid, from the audit log."""
        found = {}
        for event in audit_events(self.plane.audit_log):
            reference = event.get("objectRef") or {}
            if event["verb"] == "create" and reference.get("resource") == "pods" and not reference.get("subresource"):
                uid = ((event.get("responseObject") or {}).get("metadata") or {}).get("uid")
                if uid:
                    found[uid] = seconds(event["requestReceivedTimestamp"])
        return found


def audit_events(path: Path) -> list[dict[str, Any]]:
    """The events of an audit log, one per line; a line that is being written is left out."""
    lines = path.read_bytes().splitlines(keepends=True)
    return [msgspec.json.decode(line) for line in lines if line.endswith(b"\n")]


def seconds(text: str) -> float:
    """A time of an audit log as epoch seconds."""
    return datetime.fromisoformat(text).timestamp()


_STORAGE_CLASS = {"provisioner": "ebs.csi.aws.com", "volumeBindingMode": "WaitForFirstConsumer"}
