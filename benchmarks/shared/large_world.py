"""The world of `large_cluster`: an API server with 5,000 nodes and 100,000 pods, and an emulated AWS, over HTTP.

Run by itself it serves both until its input ends, so that nothing of it counts as the functions' own time or memory.
Objects have the size that real ones have: about 6 kB a pod and 15 kB a node, most of which no decision reads.
"""

from __future__ import annotations

import copy
import json
import random
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import boto3
import msgspec
from moto.core import DEFAULT_ACCOUNT_ID as ACCOUNT
from moto.dynamodb.models.table import Table
from moto.ec2.models import ec2_backends as moto_ec2

from shiplap.aws import tags
from shiplap.aws.bucket import CLUSTERS_PREFIX, MEMORY_PREFIX, BucketCatalog
from shiplap.aws.dynamodb import tables
from shiplap.aws.dynamodb.state_table import item_of_claim
from shiplap.flows.install import SystemClock
from shiplap.manifests.custom_resources import Manifests, RequirementSpec
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim, PodReference
from shiplap.settings import ClusterSettings, Settings
from shiplap_lab.catalogue import embedded
from shiplap_lab.cluster_simulator.http_server import KubeHttpServer
from shiplap_lab.emulated_ec2 import seed
from shiplap_lab.emulated_ec2.behaviour import InstanceBucket
from shiplap_lab.emulated_ec2.ec2_server import Ec2Emulator
from shiplap_lab.fakes.cluster import ApiServer
from tests.builders.claims import node_claim
from tests.integration.contracts.in_process_aws import create_table

CLUSTER, REGION, VERSION = "large", "us-east-1", "1.34"
ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")
BUCKET, BUS = "shiplap-large", "shiplap-large"
DAEMONS, APPS = 5, 15
"""Pods of each node, by what they are; together twenty."""

CHURN = 2_000
"""Changes of bound pods after the snapshot was written: twenty seconds of a hundred a second."""

TYPES = {"m6i.2xlarge": 0.384, "c6i.2xlarge": 0.34, "r6i.2xlarge": 0.504}
QUIET_TYPES = {"c6a.2xlarge": 0.306}
"""The cheapest type of eight processors that the pods of a node fit on: there is nothing to save."""
_FILLER = "f:metadata f:labels f:spec f:containers " * 64
_IMAGES = [
    {"names": [f"registry.example/team/service-{n}@sha256:{'0' * 64}"], "sizeBytes": 123456789 + n} for n in range(50)
]
_IMAGES_OF_RELEASE = seed.release_images("al2023@latest", VERSION)
_POOL: dict[str, Any] = {
    "metadata": {"name": "default"},
    "spec": {
        "template": {
            "spec": {
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                "expireAfter": "Never",
                "requirements": [
                    {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
                    {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
                    {"key": "karpenter.k8s.aws/instance-category", "operator": "In", "values": ["c", "m", "r"]},
                    {"key": "karpenter.k8s.aws/instance-generation", "operator": "Gt", "values": ["4"]},
                ],
            }
        },
        "disruption": {"consolidateAfter": "0s"},
    },
}
_CLASS = {
    "metadata": {"name": "default"},
    "spec": {
        "amiFamily": "AL2023",
        "amiSelectorTerms": [{"alias": "al2023@latest"}],
        "subnetSelectorTerms": [{"tags": {"karpenter.sh/discovery": CLUSTER}}],
        "securityGroupSelectorTerms": [{"tags": {"karpenter.sh/discovery": CLUSTER}}],
        "instanceProfile": "nodes",
    },
}


_EIGHT_PROCESSORS = {"key": "karpenter.k8s.aws/instance-cpu", "operator": "In", "values": ["8"]}


def settings(endpoint: str, *, quiet: bool = False) -> Settings:
    """Return the settings with which the functions are deployed."""
    manifests = msgspec.convert({"node_pools": [_POOL], "node_classes": [_CLASS]}, Manifests)
    if quiet:
        pool = copy.deepcopy(_POOL)
        pool["spec"]["template"]["spec"]["requirements"].append(_EIGHT_PROCESSORS)
        manifests = msgspec.convert({"node_pools": [pool], "node_classes": [_CLASS]}, Manifests)
    cluster = ClusterSettings(
        name=CLUSTER,
        region=REGION,
        endpoint=endpoint,
        token="t",  # noqa: S106 - nobody's
        certificate_authority="Q0E=",
        kubernetes_version=VERSION,
        service_cidr="10.100.0.0/16",
        manifests=manifests,
    )
    return Settings((cluster,))


class Cluster:
    """The API server's objects."""

    def __init__(self, nodes: int, pending: int, quiet: Sequence[QuietInstance] = ()) -> None:
        """`quiet` are the instances of a cluster with nothing to do, one for each node."""
        self._random = random.Random(1)
        self.server = ApiServer(SystemClock(), log_limit=50_000)
        self.nodes = nodes
        self._pending = pending
        self._quiet = quiet
        self._replaced = 0
        for number in range(DAEMONS):
            self.server.create("daemonsets", _daemon_set(number), "kube-system")
        self.claims = [self._node(number) for number in range(nodes)]

    def churn(self) -> None:
        """Play what happens between the snapshot and the decision: pods change, and the pending pods appear."""
        bound = [f"app-{self._random.randrange(self.nodes * APPS):06d}" for _ in range(CHURN)]
        for number, name in enumerate(bound):
            patch = {"status": {"phase": "Running", "podIP": f"10.1.{number // 250}.{number % 250}"}}
            self.server.patch("pods", name, patch, _namespace(int(name[4:])), subresource="status")
        for number in range(self._pending):
            self.server.create("pods", waiting_pod(number), "shop")

    def replace_pods(self, nodes: int) -> None:
        """On so many further nodes, let another pod of the same service take the place of the first one."""
        for node in range(self._replaced, self._replaced + nodes):
            place = node * APPS
            name, namespace = f"app-{place:06d}", _namespace(place)
            on = self.server.get("pods", name, namespace)["spec"]["nodeName"]
            self.server.delete("pods", name, namespace, grace_s=0)
            self._stand(_app(place, f"{name}-b"), on, namespace)
        self._replaced += nodes

    def _node(self, number: int) -> NodeClaim:
        name = f"ip-10-{number // 65536}-{number // 256 % 256}-{number % 256}.ec2.internal"
        types = QUIET_TYPES if self._quiet else TYPES
        type_ = sorted(types)[number % len(types)]
        zone, instance = ZONES[number // 3 % 3], f"i-{number:017x}"
        launched: dict[str, Any] = {"ami": "ami-1"}
        if self._quiet:
            known = self._quiet[number]
            zone, instance = known.zone, known.id
            launched = {"subnet": known.subnet, "security_groups": known.security_groups, "ami": known.image}
        memory = {"c": "15", "m": "31", "r": "63"}[type_[0]]
        amounts = {"cpu": "8", "memory": f"{memory}Gi", "pods": "58", "ephemeral-storage": "20Gi"}
        labels = {
            "kubernetes.io/hostname": name,
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/os": "linux",
            "topology.kubernetes.io/zone": zone,
            "topology.kubernetes.io/region": REGION,
            "node.kubernetes.io/instance-type": type_,
            "karpenter.sh/nodepool": "default",
            "karpenter.sh/capacity-type": "on-demand",
            "karpenter.sh/registered": "true",
            "karpenter.sh/initialized": "true",
            "karpenter.k8s.aws/instance-category": type_[0],
            "karpenter.k8s.aws/instance-generation": type_[1],
            "karpenter.k8s.aws/instance-cpu": "8",
        }
        self.server.create(
            "nodes",
            {
                "metadata": {"name": name, "labels": labels, "managedFields": [{"fieldsV1": _FILLER}]},
                "spec": {"providerID": f"aws:///{zone}/{instance}"},
                "status": {
                    "capacity": amounts,
                    "allocatable": {**amounts, "cpu": "7910m"},
                    "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
                    "nodeInfo": {"kubeletVersion": f"v{VERSION}.0", "osImage": "Amazon Linux 2023"},
                    "images": _IMAGES,
                },
            },
        )
        references = list(self._pods_of(number, name))
        return node_claim(
            cluster=CLUSTER,
            name=f"default-{number:010x}",
            node_pool="default",
            node_class="default",
            state=ClaimState.INITIALIZED,
            created_at=1.7e9,
            changed_at=1.7e9,
            requirements=tuple(RequirementSpec(key, "In", (value,)) for key, value in labels.items()),
            labels=labels,
            instance_types=tuple(f"m{n}i.{size}xlarge" for n in range(3, 8) for size in (2, 4, 8, 12, 16, 24)),
            requests={"cpu": 7750, "memory": 12 << 30, "pods": 20},
            allocatable={"cpu": 7910, "memory": 15 << 30, "pods": 58},
            pods=tuple(references),
            reasons=("pods that wait",),
            token=f"{number:032x}",
            together=1,
            instance_id=instance,
            instance_type=type_,
            zone=zone,
            capacity_type="on-demand",
            kubelet_hash="k" * 16,
            hourly=types[type_],
            node_name=name,
            version=5,
            **launched,
        )

    def _pods_of(self, node: int, name: str) -> Iterator[PodReference]:
        for number in range(DAEMONS):
            pod = _pod(f"daemon-{number}-{node:05d}", f"daemon-{number}", "DaemonSet", "50m", "64Mi")
            self._stand(pod, name, "kube-system")
        for number in range(node * APPS, (node + 1) * APPS):
            yield self._stand(_app(number, f"app-{number:06d}"), name, _namespace(number))

    def _stand(self, pod: dict[str, Any], node: str, namespace: str) -> PodReference:
        pod["metadata"]["uid"] = str(uuid.UUID(int=self._random.getrandbits(128)))
        pod["spec"]["nodeName"] = node
        pod["status"] |= {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}
        pod["status"]["conditions"] = [
            {"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
            for kind in ("Ready", "Initialized", "PodScheduled", "ContainersReady")
        ]
        self.server.create("pods", pod, namespace)
        return PodReference(namespace, pod["metadata"]["name"], pod["metadata"]["uid"])


def waiting_pod(number: int) -> dict[str, Any]:
    """One of the pods that wait, of four kinds in turn."""
    kind, cpu, memory = (("a", "1", "2Gi"), ("b", "2", "4Gi"), ("c", "500m", "1Gi"), ("d", "4", "16Gi"))[number % 4]
    pod = _pod(f"new-{kind}-{number:04d}", f"new-{kind}", "ReplicaSet", cpu, memory)
    if kind == "b":
        pod["spec"]["topologySpreadConstraints"] = [_spread("new-b")]
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    pod["status"] |= {"phase": "Pending", "conditions": [condition]}
    return pod


def _app(number: int, name: str) -> dict[str, Any]:
    service = number % 1500
    pod = _pod(name, f"service-{service}", "ReplicaSet", "500m", f"{512 + service % 4 * 64}Mi")
    if service % 5 == 0:
        pod["spec"]["topologySpreadConstraints"] = [_spread(f"service-{service}")]
    return pod


def _namespace(number: int) -> str:
    return f"team-{number % 1500 % 60}"


def _spread(app: str) -> dict[str, Any]:
    return {
        "maxSkew": 1,
        "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": app}},
    }


def _daemon_set(number: int) -> dict[str, Any]:
    template = _pod("", f"daemon-{number}", "", "50m", "64Mi")
    return {"metadata": {"name": f"daemon-{number}"}, "spec": {"template": template}}


def _pod(name: str, app: str, owner: str, cpu: str, memory: str) -> dict[str, Any]:
    """A pod as an API server writes it, filled up with what nobody reads."""
    owners = [{"kind": owner, "name": app, "uid": str(uuid.uuid5(uuid.NAMESPACE_DNS, app)), "controller": True}]
    every = {"operator": "Exists", "effect": "NoExecute"}
    return {
        "metadata": {
            "name": name,
            "labels": {"app": app, "pod-template-hash": f"{abs(hash(app)) % 10**9:09d}" if owner else "t"},
            "annotations": {"checksum/config": "c" * 64},
            "ownerReferences": owners if owner else [],
            "managedFields": [{"fieldsV1": _FILLER}],
        },
        "spec": {
            "schedulerName": "default-scheduler",
            "terminationGracePeriodSeconds": 30,
            "tolerations": [
                {"key": "node.kubernetes.io/not-ready", **every},
                {"key": "node.kubernetes.io/unreachable", **every},
            ],
            "volumes": [{"name": f"kube-api-access-{name[-5:]}", "projected": {"sources": [_FILLER[:400]]}}],
            "containers": [
                {
                    "name": "main",
                    "image": f"registry.example/{app}@sha256:{'0' * 64}",
                    "env": [{"name": f"SETTING_{n}", "value": "v" * 24} for n in range(12)],
                    "resources": {"requests": {"cpu": cpu, "memory": memory}, "limits": {"memory": memory}},
                    "ports": [{"containerPort": 8080}],
                    "livenessProbe": {"httpGet": {"path": "/healthz", "port": 8080}},
                }
            ],
        },
        "status": {
            "podIP": "10.0.0.1",
            "containerStatuses": [
                {
                    "name": "main",
                    "ready": True,
                    "imageID": "0" * 64,
                    "allocatedResources": {"cpu": cpu, "memory": memory},
                    "resources": {"requests": {"cpu": cpu, "memory": memory}},
                    "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
                }
            ],
        },
    }


class QuietInstance(NamedTuple):
    """An instance that runs, where it is, and the ids of its image, subnet and security groups."""

    id: str
    image: str
    zone: str
    subnet: str
    security_groups: tuple[str, ...]


class Aws:
    """The account: tables with a claim for each node, the bucket with the catalogue, a network, images."""

    def __init__(self, url: str, control: Any) -> None:
        self._url = url
        self._claims: list[NodeClaim] = []
        self._kept: set[tuple[str, str]] = set()
        self._quiet: list[QuietInstance] = []
        self.dynamodb = self.client("dynamodb")
        create_table(self.dynamodb, "state", tables.STATE)
        create_table(self.dynamodb, "capacity", tables.CAPACITY)
        s3 = self.client("s3")
        s3.create_bucket(Bucket=BUCKET)
        BucketCatalog(s3, BUCKET, REGION).save(embedded.load(REGION))
        self.client("events").create_event_bus(Name=BUS)
        self.queue = self.client("sqs").create_queue(QueueName="lifecycle")["QueueUrl"]
        seed.register_images(control, _IMAGES_OF_RELEASE)
        self._network = seed.create_network(self.client("ec2"), CLUSTER, ZONES)

    def put(self, claims: list[NodeClaim]) -> None:
        """Store the claims of the cluster's nodes."""
        self._claims = claims
        if self._quiet:
            for claim in claims:  # by a request for each it would take minutes
                moto_ec2[ACCOUNT][REGION].create_tags([claim.instance_id], {tags.NODE_CLAIM: claim.name})
        self._put([item_of_claim(claim, claim.changed_at) for claim in claims])
        self._kept = {(item["cluster"]["S"], item["item"]["S"]) for item in self._items()}

    def run_instances(self, number: int) -> list[QuietInstance]:
        """Start so many instances, zone by zone, tagged as the cluster's."""
        ec2 = self.client("ec2")
        own = tags.written(tags.of_pool(CLUSTER, "default", "default", {}, ""))
        image = next(item.image.image_id for item in _IMAGES_OF_RELEASE if "x86_64-standard" in item.image.name)
        for place, zone in enumerate(ZONES):
            subnet, group = self._network.subnets[zone], self._network.security_group
            many = len(range(place, number, len(ZONES)))
            started = ec2.run_instances(
                MinCount=many,
                MaxCount=many,
                ImageId=image,
                InstanceType=next(iter(QUIET_TYPES)),
                SubnetId=subnet,
                SecurityGroupIds=[group],
                TagSpecifications=[{"ResourceType": "instance", "Tags": own}],
            )
            ids = [item["InstanceId"] for item in started["Instances"]]
            self._quiet += [QuietInstance(id_, image, zone, subnet, (group,)) for id_ in ids]
        return self._quiet

    def client(self, service: str) -> Any:
        return boto3.client(service, endpoint_url=self._url, region_name=REGION)

    def forget(self, key: str) -> None:
        """Delete an object of the bucket."""
        self.client("s3").delete_object(Bucket=BUCKET, Key=key)

    def reset(self) -> None:
        """Forget what decisions have written: claims, the epoch, what launches took; and end what they launched."""
        self.forget(f"{MEMORY_PREFIX}{CLUSTER}")
        for item in self._items():
            key = {"cluster": item["cluster"], "item": item["item"]}
            if (key["cluster"]["S"], key["item"]["S"]) not in self._kept:
                self.dynamodb.delete_item(TableName="state", Key=key)
        self._put([item_of_claim(claim, claim.changed_at) for claim in self._claims])
        ec2 = self.client("ec2")
        quiet = {instance.id for instance in self._quiet}
        running = [
            instance["InstanceId"]
            for page in ec2.get_paginator("describe_instances").paginate()
            for reservation in page["Reservations"]
            for instance in reservation["Instances"]
            if instance["InstanceId"] not in quiet
        ]
        if running:
            ec2.terminate_instances(InstanceIds=running)

    def _items(self) -> Iterator[dict[str, Any]]:
        for page in self.dynamodb.get_paginator("scan").paginate(TableName="state"):
            yield from page["Items"]

    def _put(self, items: list[Any]) -> None:
        for start in range(0, len(items), 25):
            some = [{"PutRequest": {"Item": item}} for item in items[start : start + 25]]
            self.dynamodb.batch_write_item(RequestItems={"state": some})


def main() -> None:
    nodes, pending, quiet = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:] == ["quiet"]
    # moto copies the whole table for every item of a transaction, to be able to take it back; here nothing is.
    Table.__deepcopy__ = lambda self, _memo: self  # type: ignore[method-assign]
    with Ec2Emulator(region=REGION) as emulator, ExitStack() as stack:
        aws = Aws(emulator.url, emulator.control)
        if quiet:
            emulator.behaviour.launchable = InstanceBucket(nodes, 1)
        cluster = Cluster(nodes, pending, aws.run_instances(nodes) if quiet else ())
        aws.put(cluster.claims)
        kube = stack.enter_context(KubeHttpServer(cluster.server))
        told = {"aws": emulator.url, "kube": kube.endpoint, "queue": aws.queue}
        deployed = msgspec.json.encode(settings(kube.endpoint, quiet=quiet)).decode()
        print(json.dumps(told | {"settings": deployed}), flush=True)
        for line in sys.stdin:
            match line.split():
                case ["churn"]:
                    cluster.churn()
                case ["replace", number]:
                    cluster.replace_pods(int(number))
                case ["lose", "snapshot"]:
                    aws.forget(f"{CLUSTERS_PREFIX}{CLUSTER}")
                case ["reset"]:
                    aws.reset()
                    kube.seen.clear()
            asked = {f"{verb} {resource}": number for (verb, _, resource), number in sorted(kube.seen.items())}
            print(json.dumps(asked), flush=True)


if __name__ == "__main__":
    main()
