"""Tables that an API server prints of its objects, for `kubectl get`: the columns and cells of each resource."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from shiplap.kubernetes.timestamps import epoch
from shiplap_lab.api_server.changelog import Object

Cell = str | int | bool
_UNKNOWN, _NONE = "<unknown>", "<none>"
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86400


class TableColumn(msgspec.Struct, frozen=True):
    """One column; `cell` makes its text of an object and the time in epoch seconds. A wide one needs `-o wide`."""

    name: str
    cell: Callable[[Object, float], Cell]
    wide: bool = False


def wants_table(accept: str) -> bool:
    """True if the first media type of an Accept header that the server can write is a Table of version v1."""
    for media_type in accept.split(","):
        kind, *parameters = (part.strip() for part in media_type.split(";"))
        if kind not in ("application/json", "*/*"):
            continue
        if "as=Table" not in parameters:
            return False
        if {"v=v1", "g=meta.k8s.io"} <= set(parameters):
            return True
    return False


def table(
    plural: str,
    items: Iterable[Object],
    *,
    now: float,
    metadata: Mapping[str, Any],
    include: str = "",
    headed: bool = True,
) -> dict[str, Any]:
    """The Table of objects; `include` is the request's includeObject, and a watch heads its first row alone."""
    columns = COLUMNS.get(plural, _DEFAULT)
    head = [
        {"name": column.name, "type": "string", "format": "name" if column.name == "Name" else "", "description": ""}
        | {"priority": int(column.wide)}
        for column in columns
    ]
    rows = [{"cells": [column.cell(item, now) for column in columns], "object": _row(item, include)} for item in items]
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": head if headed else None,
        "rows": rows,
    }


def _row(item: Object, include: str) -> Object | None:
    if include == "None":
        return None
    if include == "Object":
        return item
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": item["metadata"]}


def duration(seconds: float) -> str:
    """An age as kubectl writes it: two units while the second still matters, such as 5m20s, then one."""
    whole = max(0, int(seconds))
    if whole < 2 * _MINUTE_S:
        return f"{whole}s"
    for unit_s, name, small_s, small, both_s, one_s in (
        (_MINUTE_S, "m", 1, "s", 10 * _MINUTE_S, 3 * _HOUR_S),
        (_HOUR_S, "h", _MINUTE_S, "m", 8 * _HOUR_S, 2 * _DAY_S),
        (_DAY_S, "d", _HOUR_S, "h", 8 * _DAY_S, 730 * _DAY_S),
    ):
        if whole < one_s:
            rest = whole % unit_s // small_s
            return f"{whole // unit_s}{name}" + (f"{rest}{small}" if rest and whole < both_s else "")
    return f"{whole // (365 * _DAY_S)}y"


def _at(item: Any, path: str, default: Cell = "") -> Any:
    for step in path.split("."):
        item = item.get(step) if isinstance(item, dict) else None
    return default if item in (None, "") else item


def _map(item: Any, path: str) -> dict[str, Any]:
    found = _at(item, path)
    return found if isinstance(found, dict) else {}


def _items(item: Any, path: str) -> list[dict[str, Any]]:
    """The objects of a list that any client may have filled with anything."""
    found = _at(item, path, "")
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _field(path: str, default: Cell = "") -> Callable[[Object, float], Cell]:
    def cell(item: Object, _now: float) -> Cell:
        value = _at(item, path, default)
        return value if isinstance(value, (str, int)) else str(value)

    return cell


def _since(path: str) -> Callable[[Object, float], Cell]:
    def cell(item: Object, now: float) -> Cell:
        try:
            return duration(now - epoch(str(_at(item, path))))
        except ValueError:
            return _UNKNOWN  # there is none, or a client has written something else there

    return cell


def _label(name: str) -> Callable[[Object, float], Cell]:
    return lambda item, _now: str(_map(item, "metadata.labels").get(name, ""))


def _condition(kind: str) -> Callable[[Object, float], Cell]:
    return lambda item, _now: next(
        (str(each.get("status", "")) for each in _items(item, "status.conditions") if each.get("type") == kind), ""
    )


def _joined(path: str, field: str = "") -> Callable[[Object, float], Cell]:
    def cell(item: Object, _now: float) -> Cell:
        found = _at(item, path)
        values = [each.get(field) for each in _items(item, path)] if field else found if isinstance(found, list) else []
        return ",".join(str(value) for value in values if value is not None) or _NONE

    return cell


def _pairs(path: str) -> Callable[[Object, float], Cell]:
    def cell(item: Object, _now: float) -> Cell:
        return ",".join(f"{key}={value}" for key, value in sorted(_map(item, path).items())) or _NONE

    return cell


def _ratio(ready: str, wanted: str) -> Callable[[Object, float], Cell]:
    return lambda item, _now: f"{_at(item, ready, 0)}/{_at(item, wanted, 0)}"


def _pod_ready(item: Object, _now: float) -> Cell:
    containers, statuses = _items(item, "spec.containers"), _items(item, "status.containerStatuses")
    ready = sum(bool(each.get("ready")) for each in statuses)
    if not statuses and _condition("Ready")(item, 0) == "True":
        ready = len(containers)  # a kubelet of the simulation reports pods, not containers
    return f"{ready}/{len(containers)}"


def _pod_status(item: Object, _now: float) -> Cell:
    if item["metadata"].get("deletionTimestamp"):
        return "Terminating"
    phase = _at(item, "status.reason") or _at(item, "status.phase", "Pending")
    if phase == "Pending" and _at(item, "spec.nodeName"):
        return "ContainerCreating"
    return "Completed" if phase == "Succeeded" else "Error" if phase == "Failed" else str(phase)


def _restarts(item: Object, _now: float) -> Cell:
    counts = [each.get("restartCount") for each in _items(item, "status.containerStatuses")]
    return sum(count for count in counts if isinstance(count, int))


def _node_status(item: Object, _now: float) -> Cell:
    status = {"True": "Ready", "": "Unknown"}.get(str(_condition("Ready")(item, 0)), "NotReady")
    return f"{status},SchedulingDisabled" if _at(item, "spec.unschedulable") else status


def _node_roles(item: Object, _now: float) -> Cell:
    prefix = "node-role.kubernetes.io/"
    labels = _map(item, "metadata.labels")
    return ",".join(sorted(name.removeprefix(prefix) for name in labels if name.startswith(prefix))) or _NONE


def _address(kind: str) -> Callable[[Object, float], Cell]:
    return lambda item, _now: next(
        (str(each.get("address")) for each in _items(item, "status.addresses") if each.get("type") == kind), _NONE
    )


def _seen(item: Object, now: float) -> Cell:
    for path in ("series.lastObservedTime", "lastTimestamp", "eventTime", "metadata.creationTimestamp"):
        if _at(item, path):
            return _since(path)(item, now)
    return _UNKNOWN


def _involved(item: Object, _now: float) -> Cell:
    return f"{str(_at(item, 'involvedObject.kind')).lower()}/{_at(item, 'involvedObject.name')}"


def _ports(item: Object, _now: float) -> Cell:
    ports = _items(item, "spec.ports")
    return ",".join(f"{each.get('port')}/{each.get('protocol', 'TCP')}" for each in ports) or _NONE


def _claim(item: Object, _now: float) -> Cell:
    name = _at(item, "spec.claimRef.name")
    return f"{_at(item, 'spec.claimRef.namespace')}/{name}" if name else ""


def _count(path: str) -> Callable[[Object, float], Cell]:
    return lambda item, _now: len(_map(item, path))


def _last_scheduled(item: Object, now: float) -> Cell:
    return _since("status.lastScheduleTime")(item, now) if _at(item, "status.lastScheduleTime") else _NONE


def _hosts(item: Object, _now: float) -> Cell:
    return ",".join(str(each["host"]) for each in _items(item, "spec.rules") if each.get("host")) or "*"


def _scaled(item: Object, _now: float) -> Cell:
    return f"{_at(item, 'spec.scaleTargetRef.kind')}/{_at(item, 'spec.scaleTargetRef.name')}"


def _role(item: Object, _now: float) -> Cell:
    return f"{_at(item, 'roleRef.kind')}/{_at(item, 'roleRef.name')}"


_NAME = TableColumn("Name", _field("metadata.name"))
_AGE = TableColumn("Age", _since("metadata.creationTimestamp"))
_DEFAULT = (_NAME, _AGE)
_CONTAINERS = (
    TableColumn("Containers", _joined("spec.template.spec.containers", "name"), True),
    TableColumn("Images", _joined("spec.template.spec.containers", "image"), True),
)
_SELECTOR = TableColumn("Selector", _pairs("spec.selector.matchLabels"), True)
_READY = TableColumn("Ready", _condition("Ready"))
_REPLICAS = (
    TableColumn("Desired", _field("spec.replicas", 0)),
    TableColumn("Current", _field("status.replicas", 0)),
    TableColumn("Ready", _field("status.readyReplicas", 0)),
)


def _job_duration(item: Object, now: float) -> Cell:
    try:
        began = epoch(str(_at(item, "status.startTime")))
    except ValueError:
        return ""
    ended = _at(item, "status.completionTime")
    return duration((epoch(str(ended)) if ended else now) - began)


def _job_status(item: Object, _now: float) -> Cell:
    for kind in ("Complete", "Failed", "Suspended"):
        if _condition(kind)(item, 0) == "True":
            return kind
    return "Running"


COLUMNS: dict[str, tuple[TableColumn, ...]] = {
    "pods": (
        _NAME,
        TableColumn("Ready", _pod_ready),
        TableColumn("Status", _pod_status),
        TableColumn("Restarts", _restarts),
        _AGE,
        TableColumn("IP", _field("status.podIP", _NONE), True),
        TableColumn("Node", _field("spec.nodeName", _NONE), True),
        TableColumn("Nominated Node", _field("status.nominatedNodeName", _NONE), True),
        TableColumn("Readiness Gates", _joined("spec.readinessGates", "conditionType"), True),
    ),
    "nodes": (
        _NAME,
        TableColumn("Status", _node_status),
        TableColumn("Roles", _node_roles),
        _AGE,
        TableColumn("Version", _field("status.nodeInfo.kubeletVersion")),
        TableColumn("Internal-IP", _address("InternalIP"), True),
        TableColumn("External-IP", _address("ExternalIP"), True),
        TableColumn("OS-Image", _field("status.nodeInfo.osImage", _UNKNOWN), True),
        TableColumn("Kernel-Version", _field("status.nodeInfo.kernelVersion", _UNKNOWN), True),
        TableColumn("Container-Runtime", _field("status.nodeInfo.containerRuntimeVersion", _UNKNOWN), True),
    ),
    "events": (
        TableColumn("Last Seen", _seen),
        TableColumn("Type", _field("type")),
        TableColumn("Reason", _field("reason")),
        TableColumn("Object", _involved),
        TableColumn("Source", _field("source.component"), True),
        TableColumn("Message", _field("message")),
        TableColumn("Count", _field("count", 1), True),
        TableColumn("Name", _field("metadata.name"), True),
    ),
    "deployments": (
        _NAME,
        TableColumn("Ready", _ratio("status.readyReplicas", "spec.replicas")),
        TableColumn("Up-to-date", _field("status.updatedReplicas", 0)),
        TableColumn("Available", _field("status.availableReplicas", 0)),
        _AGE,
        *_CONTAINERS,
        _SELECTOR,
    ),
    "replicasets": (_NAME, *_REPLICAS, _AGE, *_CONTAINERS, _SELECTOR),
    "replicationcontrollers": (_NAME, *_REPLICAS, _AGE, *_CONTAINERS),
    "statefulsets": (_NAME, TableColumn("Ready", _ratio("status.readyReplicas", "spec.replicas")), _AGE, *_CONTAINERS),
    "daemonsets": (
        _NAME,
        TableColumn("Desired", _field("status.desiredNumberScheduled", 0)),
        TableColumn("Current", _field("status.currentNumberScheduled", 0)),
        TableColumn("Ready", _field("status.numberReady", 0)),
        TableColumn("Up-to-date", _field("status.updatedNumberScheduled", 0)),
        TableColumn("Available", _field("status.numberAvailable", 0)),
        TableColumn("Node Selector", _pairs("spec.template.spec.nodeSelector")),
        _AGE,
        *_CONTAINERS,
        _SELECTOR,
    ),
    "jobs": (
        _NAME,
        TableColumn("Status", _job_status),
        TableColumn("Completions", _ratio("status.succeeded", "spec.completions")),
        TableColumn("Duration", _job_duration),
        _AGE,
        *_CONTAINERS,
        _SELECTOR,
    ),
    "cronjobs": (
        _NAME,
        TableColumn("Schedule", _field("spec.schedule")),
        TableColumn("Timezone", _field("spec.timeZone", _NONE)),
        TableColumn("Suspend", lambda item, _now: str(bool(_at(item, "spec.suspend")))),
        TableColumn("Active", lambda item, _now: len(_items(item, "status.active"))),
        TableColumn("Last Schedule", _last_scheduled),
        _AGE,
    ),
    "controllerrevisions": (
        _NAME,
        TableColumn("Controller", _joined("metadata.ownerReferences", "name")),
        TableColumn("Revision", _field("revision", 0)),
        _AGE,
    ),
    "nodepools": (
        _NAME,
        TableColumn("NodeClass", _field("spec.template.spec.nodeClassRef.name")),
        TableColumn("Nodes", _field("status.resources.nodes", "")),
        _READY,
        _AGE,
        TableColumn("Weight", _field("spec.weight"), True),
        TableColumn("CPU", _field("status.resources.cpu"), True),
        TableColumn("Memory", _field("status.resources.memory"), True),
    ),
    "nodeclaims": (
        _NAME,
        TableColumn("Type", _label("node.kubernetes.io/instance-type")),
        TableColumn("Capacity", _label("karpenter.sh/capacity-type")),
        TableColumn("Zone", _label("topology.kubernetes.io/zone")),
        TableColumn("Node", _field("status.nodeName")),
        _READY,
        _AGE,
        TableColumn("ImageID", _field("status.imageID"), True),
        TableColumn("ID", _field("status.providerID"), True),
        TableColumn("NodePool", _label("karpenter.sh/nodepool"), True),
        TableColumn("NodeClass", _field("spec.nodeClassRef.name"), True),
        TableColumn("Drifted", _condition("Drifted"), True),
    ),
    "ec2nodeclasses": (_NAME, _READY, _AGE, TableColumn("Role", _field("spec.role"), True)),
    "nodeoverlays": (_NAME, _READY, _AGE, TableColumn("Weight", _field("spec.weight"), True)),
    "namespaces": (_NAME, TableColumn("Status", _field("status.phase", "Active")), _AGE),
    "configmaps": (_NAME, TableColumn("Data", _count("data")), _AGE),
    "secrets": (_NAME, TableColumn("Type", _field("type", "Opaque")), TableColumn("Data", _count("data")), _AGE),
    "serviceaccounts": (_NAME, TableColumn("Secrets", lambda item, _now: len(_items(item, "secrets"))), _AGE),
    "ingresses": (
        _NAME,
        TableColumn("Class", _field("spec.ingressClassName", _NONE)),
        TableColumn("Hosts", _hosts),
        TableColumn("Address", lambda _item, _now: ""),
        TableColumn("Ports", lambda item, _now: "80, 443" if _items(item, "spec.tls") else "80"),
        _AGE,
    ),
    "networkpolicies": (_NAME, TableColumn("Pod-Selector", _pairs("spec.podSelector.matchLabels")), _AGE),
    "horizontalpodautoscalers": (
        _NAME,
        TableColumn("Reference", _scaled),
        TableColumn("Targets", lambda _item, _now: _UNKNOWN),
        TableColumn("MinPods", _field("spec.minReplicas", 1)),
        TableColumn("MaxPods", _field("spec.maxReplicas", 0)),
        TableColumn("Replicas", _field("status.currentReplicas", 0)),
        _AGE,
    ),
    **dict.fromkeys(("rolebindings", "clusterrolebindings"), (_NAME, TableColumn("Role", _role), _AGE)),
    "services": (
        _NAME,
        TableColumn("Type", _field("spec.type", "ClusterIP")),
        TableColumn("Cluster-IP", _field("spec.clusterIP", _NONE)),
        TableColumn("Port(s)", _ports),
        _AGE,
        TableColumn("Selector", _pairs("spec.selector"), True),
    ),
    "poddisruptionbudgets": (
        _NAME,
        TableColumn("Min Available", _field("spec.minAvailable", "N/A")),
        TableColumn("Max Unavailable", _field("spec.maxUnavailable", "N/A")),
        TableColumn("Allowed Disruptions", _field("status.disruptionsAllowed", 0)),
        _AGE,
    ),
    "persistentvolumeclaims": (
        _NAME,
        TableColumn("Status", _field("status.phase", "Pending")),
        TableColumn("Volume", _field("spec.volumeName")),
        TableColumn("Capacity", _field("status.capacity.storage")),
        TableColumn("Access Modes", _joined("spec.accessModes")),
        TableColumn("StorageClass", _field("spec.storageClassName")),
        _AGE,
    ),
    "persistentvolumes": (
        _NAME,
        TableColumn("Capacity", _field("spec.capacity.storage")),
        TableColumn("Access Modes", _joined("spec.accessModes")),
        TableColumn("Reclaim Policy", _field("spec.persistentVolumeReclaimPolicy")),
        TableColumn("Status", _field("status.phase")),
        TableColumn("Claim", _claim),
        TableColumn("StorageClass", _field("spec.storageClassName")),
        _AGE,
    ),
    "storageclasses": (
        _NAME,
        TableColumn("Provisioner", _field("provisioner")),
        TableColumn("ReclaimPolicy", _field("reclaimPolicy", "Delete")),
        TableColumn("VolumeBindingMode", _field("volumeBindingMode", "Immediate")),
        _AGE,
    ),
    "priorityclasses": (_NAME, TableColumn("Value", _field("value", 0)), _AGE),
    "leases": (_NAME, TableColumn("Holder", _field("spec.holderIdentity")), _AGE),
}
"""The columns of each resource, in their order; any other resource has a name and an age."""
