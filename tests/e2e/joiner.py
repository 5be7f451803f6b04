"""Connects EC2 and the control plane: joins instances as Nodes, removes ended instances, provisions volumes.

Plays the boot of each machine, the cloud controller and the EBS CSI driver; kwok does what a kubelet does from there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from threading import Event, Thread
from typing import Any

from shiplap.aws import tags
from shiplap.errors import ClusterError, ClusterUnreachable, ObjectConflict, ObjectNotFound
from shiplap.kubernetes.labels import NORMALIZED, ZONE, ZONE_ID
from shiplap.kubernetes.timestamps import rfc3339
from shiplap_lab.api_server.stored_pods import condition
from shiplap_lab.catalogue import embedded
from shiplap_lab.cluster_simulator.machines import Hardware, Machine, node_object
from shiplap_lab.emulated_ec2.control import Ec2Control, EmulatedInstance
from tests.e2e.api import RealApi

DRIVER = "ebs.csi.aws.com"
ZONE_OF_VOLUME = "topology.ebs.csi.aws.com/zone"
_SELECTED = "volume.kubernetes.io/selected-node"
_VOLUMES_PER_NODE = 25


class Joiner:
    """A thread; a context manager that ends it. Every `poll_s` seconds it makes EC2 and the cluster agree.

    `version` is what kubelets report. A machine joins as soon as it runs, unless its id is in `held`.

    Attributes:
        failure: the error that ended the thread, None while all is well.
        joined_at: epoch seconds by instance id.
    """

    def __init__(
        self, api: RealApi, ec2: Ec2Control, cluster: str, hardware: Hardware, version: str, poll_s: float
    ) -> None:
        self.failure: Exception | None = None
        self.joined_at: dict[str, float] = {}
        self.held: set[str] = set()
        self._api = api
        self._ec2 = ec2
        self._cluster = cluster
        self._hardware = hardware
        self._version = version
        self._poll_s = poll_s
        self._names: dict[str, str] = {}
        self._reboots: dict[str, int] = {}
        self._provisioned: set[str] = set()
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="joiner", daemon=True)

    def __enter__(self) -> Joiner:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(self._poll_s):
            try:
                self._agree()
                self._provision()
            except (ClusterUnreachable, ObjectNotFound):
                continue  # the API server restarts, or a node has just gone; the next poll makes it good
            except Exception as error:  # noqa: BLE001 - kept for the test, which looks: a thread has no caller
                self.failure = error
                return

    def _agree(self) -> None:
        ours = [item for item in self._ec2.instances() if item.tags.get(tags.CLUSTER) == self._cluster]
        # Who leaves goes first: its address, and so its Node's name, may be another's already.
        for item in ours:
            if item.state in ("shutting-down", "terminated") and self._names.get(item.id):
                self._leave(item)
        for item in ours:
            if item.state == "running" and item.id not in self._names and item.id not in self.held:
                self._join(item)
            elif item.reboots > self._reboots.get(item.id, item.reboots) and self._names[item.id]:
                self._reboot(item)

    def _reboot(self, item: EmulatedInstance) -> None:
        """The Node shows another boot and is not Ready, which kwok soon makes it again."""
        moment = rfc3339(time.time())
        said = condition("Ready", "False", moment, "KubeletNotReady", "container runtime is down")
        status = {"status": {"nodeInfo": {"bootID": _boot_of(item)}, "conditions": [said]}}
        self._api.patch("nodes", self._names[item.id], status, strategic=True, subresource="status")
        self._reboots[item.id] = item.reboots

    def _leave(self, item: EmulatedInstance) -> None:
        name = self._names[item.id]
        if self._is_of(name, item):
            self._ignore_absence(self._api.delete, "nodes", name)
            self._ignore_absence(self._api.delete, "csinodes", name)
        self._names[item.id] = ""

    def _is_of(self, name: str, item: EmulatedInstance) -> bool:
        try:
            node = self._api.get("nodes", name)
        except ObjectNotFound:
            return False
        return str(node["spec"].get("providerID", "")).endswith(item.id)

    def _join(self, item: EmulatedInstance) -> None:
        machine = machine_of(item)
        now = time.time()
        node = node_object(machine, self._hardware, self._version, now)
        node["metadata"]["labels"] |= _labels_of_eks(node["metadata"]["labels"])
        node["status"]["nodeInfo"]["bootID"] = _boot_of(item)
        try:
            self._api.create("nodes", node)
        except ObjectConflict:
            if not self._is_of(machine.node_name, item):
                return  # the Node of whoever had the address before: the next poll tries again
        except ClusterError:
            return  # an admission policy refuses it: a kubelet tries again
        driver = {
            "name": DRIVER,
            "nodeID": item.id,
            "topologyKeys": [ZONE_OF_VOLUME],
            "allocatable": {"count": _VOLUMES_PER_NODE},
        }
        name = machine.node_name
        self._ignore_conflict("csinodes", {"metadata": {"name": name}, "spec": {"drivers": [driver]}})
        self._names[item.id] = name
        self._reboots[item.id] = item.reboots
        self.joined_at[item.id] = now

    def _provision(self) -> None:
        """A volume for every claim that the scheduler has chosen a node for, in that node's zone."""
        for claim in self._api.list("persistentvolumeclaims").items:
            metadata = claim["metadata"]
            node_name = (metadata.get("annotations") or {}).get(_SELECTED)
            if not node_name or claim["spec"].get("volumeName") or metadata["uid"] in self._provisioned:
                continue
            zone = self._api.get("nodes", node_name)["metadata"]["labels"][ZONE]
            self._ignore_conflict("persistentvolumes", _volume(claim, zone))
            self._provisioned.add(metadata["uid"])

    def _ignore_conflict(self, plural: str, body: dict[str, Any]) -> None:
        try:
            self._api.create(plural, body)
        except ObjectConflict:
            pass  # there already

    def _ignore_absence(self, delete: Callable[..., object], plural: str, name: str) -> None:
        try:
            delete(plural, name)
        except ObjectNotFound:
            pass  # somebody else was faster


def _boot_of(item: EmulatedInstance) -> str:
    return f"{item.id}-{item.reboots}"


def _labels_of_eks(known: Mapping[str, str]) -> dict[str, str]:
    """The zone id and the older labels that EKS's cloud controller manager and drivers write beside the stable ones."""
    written = {older: known[stable] for older, stable in NORMALIZED.items() if older not in known and stable in known}
    return written | {ZONE_ID: embedded.load().zone_ids[known[ZONE]]}


def machine_of(item: EmulatedInstance) -> Machine:
    """An instance as its kubelet knows it."""
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


def _volume(claim: dict[str, Any], zone: str) -> dict[str, Any]:
    metadata, spec = claim["metadata"], claim["spec"]
    term = {"matchExpressions": [{"key": ZONE_OF_VOLUME, "operator": "In", "values": [zone]}]}
    reference = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": metadata["namespace"],
        "name": metadata["name"],
        "uid": metadata["uid"],
    }
    return {
        "metadata": {"name": f"pvc-{metadata['uid']}", "annotations": {"pv.kubernetes.io/provisioned-by": DRIVER}},
        "spec": {
            "capacity": spec["resources"]["requests"],
            "accessModes": spec["accessModes"],
            "storageClassName": spec["storageClassName"],
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": reference,
            "csi": {"driver": DRIVER, "volumeHandle": f"vol-{metadata['uid']}"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        },
    }
