"""A life of a cluster in which every function does everything it can do at least once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import yaml
from moto.moto_api._internal.models import moto_api_backend

from shiplap.disruption.disruption_snapshot import DisruptionSettings
from shiplap.flows.watch.entry import RESERVE_S
from shiplap.instances.capacity.described_capacity import nominal_memory
from shiplap.manifests.custom_resources import Manifests
from shiplap.manifests.files.loading import load_manifests
from shiplap.manifests.nodeclaim import FINAL
from shiplap.manifests.scheduler_config import PodTopologySpread
from shiplap.ports import MANIFEST_KINDS
from shiplap.settings import ClusterSettings, Settings
from shiplap_cdk.install_document import InstallConfig
from shiplap_lab.api_server.server import ApiServer
from shiplap_lab.catalogue import embedded
from shiplap_lab.cluster_simulator.http_server import KubeHttpServer
from shiplap_lab.cluster_simulator.machines import CatalogHardware, Machine
from shiplap_lab.cluster_simulator.simulated_cluster import PolledCluster
from shiplap_lab.emulated_ec2 import seed
from shiplap_lab.emulated_ec2.control import EmulatedImage, EmulatedInstance
from shiplap_lab.emulated_ec2.ec2_server import Ec2Emulator
from shiplap_lab.emulated_ec2.regional_prices import Prices
from shiplap_lab.fakes.signals import FakeClock
from tests import audit_log
from tests.permissions.authorizations import ACCOUNT
from tests.permissions.recording import Recording, aws_of, now
from tests.permissions.roles import Roles

CLUSTER = "production"
REGION = "eu-west-1"
ZONES = ("eu-west-1a", "eu-west-1b", "eu-west-1c")
VERSION = "1.34"
STEP_S = 10
"""Seconds between two looks at the cluster: twice as many looks ask for nothing else."""
DAY_S = 24 * 3600
PRICES = {"m5.large": 0.107, "m5.xlarge": 0.214, "c5.large": 0.096, "c5.xlarge": 0.192}

MANIFESTS = """\
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default}
spec:
  amiSelectorTerms: [{alias: al2023@latest}]
  role: shiplap-node-production
  subnetSelectorTerms: [{tags: {karpenter.sh/discovery: production}}]
  securityGroupSelectorTerms: [{tags: {karpenter.sh/discovery: production}}]
  capacityReservationSelectorTerms: [{tags: {team: web}}]
  blockDeviceMappings:
    - {deviceName: /dev/xvda, ebs: {volumeSize: 20Gi, encrypted: true, kmsKeyID: 1234abcd-12ab-34cd-56ef-1234567890ab}}
    - {deviceName: /dev/xvdb, ebs: {volumeSize: 20Gi, encrypted: true, kmsKeyID: alias/nodes}}
---
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: golden}
spec:
  amiFamily: AL2023
  amiSelectorTerms: [{ssmParameter: /images/golden}]
  role: shiplap-node-production
  subnetSelectorTerms: [{tags: {karpenter.sh/discovery: production}}]
  securityGroupSelectorTerms: [{tags: {karpenter.sh/discovery: production}}]
  placementGroupSelector: {name: web}
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: general}
spec:
  disruption: {consolidateAfter: 0s, budgets: [{nodes: 100%}]}
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements:
        - {key: karpenter.sh/capacity-type, operator: In, values: [spot, on-demand]}
        - {key: node.kubernetes.io/instance-type, operator: In, values: [m5.large, m5.xlarge, c5.large, c5.xlarge]}
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: grouped}
spec:
  template:
    metadata: {labels: {team: grouped}}
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: golden}
      taints: [{key: team, value: grouped, effect: NoSchedule}]
      requirements:
        - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
        - {key: node.kubernetes.io/instance-type, operator: In, values: [m5.large]}
"""

BUFFERS = """---
apiVersion: autoscaling.x-k8s.io/v1beta1
kind: CapacityBuffer
metadata: {{name: {name}}}
spec:
  replicas: 1
  scalableRef: {{apiGroup: apps, kind: {kind}, name: {name}}}
"""

LISTS_OF_POD_GROUPS = (
    ("list", "scheduling.k8s.io", "podgroups"),
    ("list", "scheduling.run.ai", "podgroups"),
    ("list", "scheduling.volcano.sh", "podgroups"),
    ("list", "scheduling.x-k8s.io", "podgroups"),
)
"""Requests that only an install with gangs makes."""

OF_PROVISIONING_REQUESTS = (
    ("list", "autoscaling.x-k8s.io", "provisioningrequests"),
    ("list", "", "podtemplates"),
    ("patch", "autoscaling.x-k8s.io", "provisioningrequests/status"),
)
"""Requests that only an install whose gangs serve ProvisioningRequests makes; disruption answers none."""

OF_A_CLUSTER = """\
apiVersion: karpenter.sh/v1alpha1
kind: NodeOverlay
metadata: {name: discount}
spec:
  requirements: [{key: node.kubernetes.io/instance-type, operator: In, values: [m5.xlarge]}]
  priceAdjustment: "-1%"
---
apiVersion: autoscaling.x-k8s.io/v1beta1
kind: CapacityBuffer
metadata: {name: template, namespace: default}
spec:
  replicas: 1
  podTemplateRef: {name: template}
"""
"""What only an install that reads its manifests of the cluster has."""


class Story:
    """The cluster, its EC2 and its functions, with a clock that the story moves."""

    def __init__(self, recording: Recording, server: ApiServer, ec2: Ec2Emulator, cluster: PolledCluster) -> None:
        self.recording = recording
        self.server = server
        self.ec2 = ec2
        self.cluster = cluster
        self.clock = recording.clock
        self.live_manifests = recording.live_manifests

    def tell(self) -> None:
        self._setting()
        self._first_nodes()
        if self.live_manifests:
            self._a_deletion()
            return
        self._failures()
        self._an_end()
        self._a_drift()
        self._a_lost_node()
        self._a_warning()
        self._a_ghost()
        self._days_later()

    def tell_of_options(self) -> None:
        """With sleep from midnight UTC, ceilings, commitments, spot risk and gangs: two nights. It begins at noon."""
        self._setting()
        self._name_pod_groups()
        self._ask_for_capacity()
        self.recording.invoke("catalog", {})  # which asks for commitments
        self.pod("steady-1", owners=[_OWNER], nodeSelector={"karpenter.sh/capacity-type": "on-demand"})
        self.pod("spot-1", owners=[_OWNER], nodeSelector={"karpenter.sh/capacity-type": "spot"})
        self.live(STEP_S, functions=False)
        self.schedule()
        self.live(60, scheduler=False)
        self._a_night(looks=1)  # the window is rehearsed
        self._take_spot_back()
        self._a_night(looks=2)
        self.live(20)

    def _name_pod_groups(self) -> None:
        """Pods name PodGroups of each API, which need one of them."""
        said: dict[str, dict[str, Any]] = {
            "scheduling.k8s.io": {"spec": {"schedulingGroup": {"podGroupName": "group"}}},
            "scheduling.run.ai": {"metadata": {"annotations": {"pod-group-name": "group"}}},
            "scheduling.volcano.sh": {"metadata": {"annotations": {"scheduling.k8s.io/group-name": "group"}}},
            "scheduling.x-k8s.io": {"metadata": {"labels": {"scheduling.x-k8s.io/pod-group": "group"}}},
        }
        for _, api, plural in LISTS_OF_POD_GROUPS:
            one = {"minMember": 1, "schedulingPolicy": {"basic": {}}}
            self.server.create(f"{plural}.{api}", {"metadata": {"name": "group"}, "spec": one}, "default")
            container = {"name": "c", "resources": {"requests": {"cpu": "100m", "memory": "100Mi"}}}
            metadata = {"name": f"member-{api}", **said[api].get("metadata", {})}
            spec = {"containers": [container], **said[api].get("spec", {})}
            self.server.create("pods", {"metadata": metadata, "spec": spec}, "default")

    def _ask_for_capacity(self) -> None:
        """A ProvisioningRequest for one small pod."""
        container = {"name": "c", "resources": {"requests": {"cpu": "100m", "memory": "100Mi"}}}
        template = {"metadata": {"name": "worker"}, "template": {"spec": {"containers": [container]}}}
        self.server.create("podtemplates", template, "default")
        spec = {
            "provisioningClassName": "best-effort-atomic-scale-up.autoscaling.x-k8s.io",
            "podSets": [{"podTemplateRef": {"name": "worker"}, "count": 1}],
        }
        self.server.create("provisioningrequests", {"metadata": {"name": "train"}, "spec": spec}, "default")

    def _a_night(self, looks: int) -> None:
        """The first minutes of the next day of UTC, in which the hours of the day before are counted too."""
        self.clock.advance(DAY_S - self.clock.now() % DAY_S)
        self.cluster.step(self.clock.now())
        for _ in range(looks):
            self.clock.advance(40)
            self.disrupt()
            self.schedule()

    def _take_spot_back(self) -> None:
        """EC2 recommends to leave spot instances, takes them back, and has no others."""
        for name in PRICES:
            self.ec2.control.capacity(name, "*", "spot", available=0)
        spot = [
            item.id for item in self.ec2.control.instances() if item.state == "running" and item.capacity_type == "spot"
        ]
        time = datetime.fromtimestamp(self.clock.now(), UTC).isoformat()
        for kind in ("EC2 Instance Rebalance Recommendation", "EC2 Spot Instance Interruption Warning"):
            event = {"source": "aws.ec2", "detail-type": kind, "time": time}
            self.recording.invoke("interrupt", records(*(event | {"detail": {"instance-id": name}} for name in spot)))
        self.schedule()
        self.live(120, step_s=30)

    def disrupt(self) -> None:
        self.recording.invoke("disrupt", {"cluster": CLUSTER})

    def schedule(self, *bodies: dict[str, Any] | str) -> Any:
        sweep = {"kind": "sweep", "cluster": CLUSTER}
        return self.recording.invoke("schedule", records(*(bodies or (sweep,))), seconds=250)

    def lifecycle(self) -> None:
        """Everything that timers and watches would have `lifecycle` look at."""
        messages: list[dict[str, Any]] = [
            {"cluster": CLUSTER, "claim": claim, "step": "look"} for claim in self.claims()
        ]
        for node in self.server.list("nodes").items:
            detail = {"cluster": CLUSTER, "node": node["metadata"]["name"], "providerID": node["spec"]["providerID"]}
            messages.append({"source": "shiplap.watch", "detail-type": "NodeReady", "detail": detail})
        self.recording.invoke("lifecycle", records(*messages))

    def claims(self) -> list[str]:
        """Return the names of the claims that are not over."""
        scanned = self.recording.client("dynamodb").scan(TableName=self.recording.state_table)["Items"]
        kinds = [item["item"]["S"].partition("#") for item in scanned if item.get("state", {}).get("S") not in FINAL]
        return sorted({name for kind, _, name in kinds if kind == "CLAIM"})

    def live(self, seconds: int, *, functions: bool = True, scheduler: bool = True, step_s: int = STEP_S) -> None:
        """Let the cluster live, and its functions look at it, step by step."""
        for _ in range(seconds // step_s):
            self.clock.advance(step_s)
            if functions:
                self.lifecycle()
            # Without the scheduler `lifecycle` is the one that binds pods.
            self.cluster.step(self.clock.now(), controllers=scheduler)

    def pod(self, name: str, *, owners: Sequence[dict[str, Any]] = (), **spec: Any) -> None:
        body = {
            "metadata": {"name": name, "labels": {"app": name.partition("-")[0]}, "ownerReferences": [*owners]},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]} | spec,
        }
        self.server.create("pods", body, "default")

    def _setting(self) -> None:
        ec2 = self.recording.client("ec2")
        seed.register_images(self.ec2.control, seed.release_images("al2023@latest", VERSION))
        (image, *_) = seed.release_images("al2023@latest", VERSION)
        self.ec2.control.parameters({"/images/golden": image.image.image_id})
        seed.create_network(ec2, CLUSTER, ZONES)
        self.server.create("namespaces", {"metadata": {"name": "default", "labels": {"kind": "apps"}}})
        self.cluster.step(self.clock.now())

    def _first_nodes(self) -> None:
        self.pod("web-1")
        self.pod("web-2", affinity=_AFFINITY)
        self.pod("plain-1")
        self.pod("plain-2")
        self.pod("group-1", tolerations=[{"operator": "Exists"}], nodeSelector={"team": "grouped"})
        self.server.create("persistentvolumeclaims", {"metadata": {"name": "data"}, "spec": {}}, "default")
        volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
        self.pod("data-1", volumes=[volume])
        self.pod("huge-1", containers=[{"name": "c", "resources": {"requests": {"cpu": "500"}}}])
        self.live(STEP_S, functions=False)
        self._watch()
        line = audit_log.text(audit_log.record())
        self.recording.invoke("audit", audit_log.delivery(line, cluster=CLUSTER))
        assert "It cannot be read" not in self.recording.invoke("widget", {"cluster": CLUSTER})
        for function in ("schedule", "lifecycle", "interrupt"):
            self.recording.invoke(function, records("not a message"))
        tight = [{"name": "c", "resources": {"requests": {"cpu": "1", "memory": "6800Mi"}}}]
        self.pod("tight-1", containers=tight)
        self.live(STEP_S, functions=False)
        self.schedule()  # which asks EC2 what it sells: nothing has been refreshed yet
        self.live(60, scheduler=False)
        self.live(30)
        self.schedule()
        self.recording.invoke("catalog", {})
        self.live(30)

    def _watch(self) -> None:
        """The watch function measures real time: it gets more of it until each of its threads has done its work."""
        kinds = {"pods", "nodes", *(MANIFEST_KINDS if self.recording.live_manifests else ())}
        for lasts_s in (1.5, 5.0, 15.0, 45.0):
            self.recording.invoke("watch", {"cluster": CLUSTER}, seconds=RESERVE_S + lasts_s)
            actions = {request.action for request in self.recording.aws["watch"]}
            watched = {kind for verb, _, kind in self.recording.kubernetes["watch"] if verb == "watch"}
            if kinds <= watched and {"s3:PutObject", "events:PutEvents"} <= actions:
                return

    def _failures(self) -> None:
        for name in PRICES:
            self.ec2.control.capacity(name, "*", "spot", available=0)
        self.pod("late-1")
        for name in ("apart-1", "apart-2"):
            self.pod(name, affinity=_apart("apart"))
        self.live(STEP_S, functions=False)
        self.schedule()
        self.live(60, functions=False)
        self.disrupt()  # which learns from nodes that have joined and of which `lifecycle` has not heard
        self.live(90)

    def _an_end(self) -> None:
        for name in ("late-1", "data-1", "web-1"):
            self.server.delete("pods", name, "default", grace_s=0)
        self._forget_catalog()
        for _ in range(4):
            self.clock.advance(61)
            self.disrupt()
            self.schedule()
            self.live(30)

    def _forget_catalog(self) -> None:
        s3 = self.recording.client("s3")
        (bucket,) = [item["Name"] for item in s3.list_buckets()["Buckets"]]
        for item in s3.list_objects_v2(Bucket=bucket, Prefix="catalog/")["Contents"]:
            s3.delete_object(Bucket=bucket, Key=item["Key"])

    def _a_drift(self) -> None:
        image = EmulatedImage("ami-0fedcba9876543210", "golden-2", "x86_64", "2026-02-01T00:00:00Z")
        seed.register_images(self.ec2.control, [seed.PublishedImage(image, ("/images/golden",))])
        self.clock.advance(600)
        for _ in range(4):
            self.clock.advance(61)
            self.disrupt()
            self.live(10)
        self.schedule()
        self.live(90)

    def _a_lost_node(self) -> None:
        self.server.delete("nodes", self.server.list("nodes").items[0]["metadata"]["name"])
        self.lifecycle()
        self.live(30)

    def _a_deletion(self) -> None:
        """Somebody deletes a NodeClaim."""
        self.server.delete("nodeclaims", self.server.list("nodeclaims").items[0]["metadata"]["name"])
        for _ in range(3):
            self.schedule()
            self.live(60)

    def _a_ghost(self) -> None:
        """A Node that is still there when its instance is gone and its claim is over."""
        ended = [item.id for item in self.ec2.control.instances() if item.state == "terminated"]
        for number, name in enumerate(ended):
            node = {"metadata": {"name": f"ghost-{number}"}, "spec": {"providerID": f"aws:///{ZONES[0]}/{name}"}}
            self.server.create("nodes", node)
        assert ended
        self.lifecycle()

    def _a_warning(self) -> None:
        budget = {"metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": {"app": "web"}}}}
        budget["spec"]["minAvailable"] = 1  # type: ignore[index]
        self.server.create("poddisruptionbudgets", budget, "default")
        warning = {"source": "aws.ec2", "detail-type": "EC2 Spot Instance Interruption Warning"}
        time = datetime.fromtimestamp(self.clock.now(), UTC).isoformat()
        alive = [item.id for item in self.ec2.control.instances() if item.state == "running"]
        bodies = [warning | {"time": time, "detail": {"instance-id": name}} for name in alive]
        self.recording.invoke("interrupt", records(*bodies))
        self.schedule()
        self.live(240)

    def _days_later(self) -> None:
        self.recording.leave_identity(CLUSTER, "left-behind")
        for _ in range(3):  # it is noted, its profile ends, its role ends
            self.recording.invoke("catalog", {})
            self.clock.advance(DAY_S)
        self.schedule()
        self.live(10)


_OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "web", "controller": True}

_AFFINITY = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {
                "topologyKey": "kubernetes.io/hostname",
                "labelSelector": {"matchLabels": {"app": "web"}},
                "namespaceSelector": {"matchLabels": {"kind": "apps"}},
            }
        ]
    }
}


def _apart(app: str) -> dict[str, Any]:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": app}}}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def records(*bodies: dict[str, Any] | str) -> dict[str, Any]:
    """Messages as Lambda's event source mapping hands them over."""
    return {
        "Records": [
            {"messageId": f"m{number}", "body": body if isinstance(body, str) else json.dumps(body)}
            for number, body in enumerate(bodies)
        ]
    }


def manifest_bodies() -> list[dict[str, Any]]:
    """The manifests of the story, as objects for the API server."""
    return [*yaml.safe_load_all(manifests()), *yaml.safe_load_all(OF_A_CLUSTER)]


@contextmanager
def told(
    install: InstallConfig,
    roles: Roles,
    functions: tuple[str, ...],
    folder: Path,
    *,
    tell: Callable[[Story], None] = Story.tell,
    begin: float = 0.0,
) -> Iterator[Recording]:
    """A story, told to its end; the recording is open to ask more. The install may read the cluster's manifests.

    `begin` is the epoch second at which the story begins, now unless it is given.
    """
    moto_api_backend.reset()  # moto keeps tables, buckets and roles for the life of the process
    clock = FakeClock(begin or now())
    server = ApiServer(clock)
    # Less than anybody expects, so that there are misses.
    hardware = CatalogHardware(embedded.load(REGION), lambda kind, _: nominal_memory(kind) * 85 // 100)
    with (
        KubeHttpServer(server) as http,
        Ec2Emulator(region=REGION, prices=Prices(PRICES), clock=clock.now) as ec2,
        aws_of(ec2.url, REGION, _answers(http.endpoint)),
    ):
        recording = Recording(
            Settings((_settings(install, folder),)),
            {name: roles.environment(name) for name in functions},
            REGION,
            roles.role_of_profile(),
            roles.parameters(),
            ec2=ec2,
            kubernetes=http,
            clock=clock,
        )
        recording.make_resources()
        if recording.live_manifests:
            for name in ("nodepools.karpenter.sh", "nodeclaims.karpenter.sh", "ec2nodeclasses.karpenter.k8s.aws"):
                server.create("customresourcedefinitions", {"metadata": {"name": name}})
            for body in manifest_bodies():
                server.create(f"{body['kind'].lower()}{'es' if body['kind'].endswith('s') else 's'}", body)
        cluster = PolledCluster(
            server, hardware, lambda: [_machine(item) for item in ec2.control.instances()], version=f"v{VERSION}.0"
        )
        tell(Story(recording, server, ec2, cluster))
        yield recording


def _settings(install: InstallConfig, folder: Path) -> ClusterSettings:
    path = folder / "manifests.yaml"
    path.write_text(manifests())
    written = install.settings().cluster(CLUSTER)
    return msgspec.structs.replace(
        written,
        manifests=Manifests() if written.live_manifests else load_manifests([path]),
        placement="bind",
        zonal_shift=True,
        disruption=DisruptionSettings(settle_s=0.0),
        pod_topology_spread=msgspec.convert(
            {
                "defaultingType": "List",
                "defaultConstraints": [
                    {"maxSkew": 5, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway"}
                ],
            },
            PodTopologySpread,
        ),
    )


def manifests() -> str:
    """The manifests of the story, as files hold them."""
    buffers = [BUFFERS.format(name=kind.lower(), kind=kind) for kind in ("Deployment", "ReplicaSet", "StatefulSet")]
    return MANIFESTS + "".join(buffers)


def _answers(endpoint: str) -> dict[tuple[str, str], Any]:
    """Return answers that moto lacks: a control plane to reach, ARC, placement groups, reservations, Savings Plans."""
    cluster = {
        "name": CLUSTER,
        "arn": f"arn:aws:eks:{REGION}:{ACCOUNT}:cluster/{CLUSTER}",
        "endpoint": endpoint,
        "version": VERSION,
        "certificateAuthority": {"data": "Q0E="},
        "kubernetesNetworkConfig": {"serviceIpv4Cidr": "10.100.0.0/16", "ipFamily": "ipv4"},
        "status": "ACTIVE",
    }
    shift = {"arn": cluster["arn"], "zonalShifts": [], "autoshifts": [], "appliedWeights": {}}
    group = {"GroupName": "web", "GroupId": "pg-0123456789abcdef0", "State": "available", "Strategy": "spread"}
    plan = {
        "savingsPlanId": "00000000-0000-0000-0000-000000000000",
        "savingsPlanType": "Compute",
        "commitment": "1.0",
        "end": "2999-01-01T00:00:00Z",
        "currency": "USD",
    }
    of_type = [{"name": "instanceType", "value": "m5.large"}]
    rate = {"rate": "0.07", "usageType": "EU-BoxUsage:m5.large", "properties": of_type}
    return {
        ("eks", "DescribeCluster"): {"cluster": cluster},
        ("eks", "DeleteAccessEntry"): {},
        ("arc-zonal-shift", "GetManagedResource"): shift,
        ("ec2", "DescribePlacementGroups"): {"PlacementGroups": [group]},
        ("ec2", "DescribeCapacityReservations"): {"CapacityReservations": []},
        ("ec2", "DescribeReservedInstances"): {"ReservedInstances": []},
        ("savingsplans", "DescribeSavingsPlans"): {"savingsPlans": [plan]},
        ("savingsplans", "DescribeSavingsPlanRates"): {"searchResults": [rate]},
    }


def _machine(item: EmulatedInstance) -> Machine:
    return Machine(
        id=item.id,
        instance_type=item.instance_type,
        zone=item.zone,
        ami=item.ami,
        launched_at=item.launched_at,
        running=item.state == "running",
        private_dns=item.private_dns,
        user_data=item.user_data,
    )
