"""Writes docs/reference/kubernetes-fields.md: the fields that scheduling depends on, and their use in Shiplap.

The fields are those of Kubernetes' Go types. `FIELDS` holds the use of each; tests compare it with the types, and with
the structs that Shiplap decodes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # run as a program, it finds only its own folder

from shiplap.kubernetes import objects, related_objects  # noqa: E402
from tests.go_modules import KUBERNETES, folder_of, kubernetes_module  # noqa: E402
from tests.go_types import GoField, structs_of  # noqa: E402

PAGE = ROOT / "docs" / "reference" / "kubernetes-fields.md"
READ, REFUSED, WITHOUT_EFFECT = "read", "refused", "without effect"

ROOTS: Mapping[str, type[msgspec.Struct] | None] = {
    "PodSpec": objects.PodSpec,
    "PodStatus": objects.PodStatus,
    "NodeSpec": objects.NodeSpec,
    "NodeStatus": objects.NodeStatus,
    "PersistentVolumeClaimSpec": related_objects.PersistentVolumeClaimSpec,
    "PersistentVolumeClaimStatus": related_objects.PersistentVolumeClaimStatus,
    "PersistentVolumeSpec": related_objects.PersistentVolumeSpec,
    "PersistentVolumeStatus": related_objects.PersistentVolumeStatus,
    "StorageClass": related_objects.StorageClass,
    "CSINodeSpec": related_objects.CSINodeSpec,
    "CSIDriverSpec": related_objects.CSIDriverSpec,
    "CSIStorageCapacity": None,
    "VolumeAttachmentSpec": related_objects.VolumeAttachmentSpec,
    "VolumeAttachmentStatus": None,
}
"""Go types with our structs. The types of fields that are read follow from them."""

_OF_EVERY_OBJECT = {"kind", "apiVersion", "metadata"}


class Entry(NamedTuple):
    """Fields of one type with the same use for the same reason."""

    use: str
    reason: str
    names: tuple[str, ...]


def read(reason: str, *names: str) -> Entry:
    """Fields that decisions or the command line read."""
    return Entry(READ, reason, names)


def refused(reason: str, *names: str) -> Entry:
    """Fields whose pods are not planned."""
    return Entry(REFUSED, reason, names)


def without_effect(reason: str, *names: str) -> Entry:
    """Fields that are not even decoded."""
    return Entry(WITHOUT_EFFECT, reason, names)


_NOT_SCHEDULED_BY = "kube-scheduler does not read it"
_BY_KUBELET = "the kubelet reads it on the node"
_BY_PROVISIONER = "the provisioner reads it when it makes the volume"
_STATIC = "which volumes an unbound claim of a class that makes none can be bound to"
_NOT_OF_AWS = "no volume of AWS"
_DRA = "dynamic resource allocation"

FIELDS: Mapping[str, tuple[Entry, ...]] = {
    "PodSpec": (
        read("claims: the zones of volumes, and volumes per node", "volumes"),
        read("requests, host ports, sidecars", "containers", "initContainers"),
        read("requests of the pod as a whole, instead of the sum of its containers", "resources"),
        read("added to the requests", "overhead"),
        read("where the pod may run", "nodeSelector", "affinity", "tolerations", "topologySpreadConstraints"),
        read("the node of a bound pod", "nodeName"),
        read("order of nominations, cost of an eviction", "priority"),
        read("order of a drain; `plan` looks up the priority of pods in files", "priorityClassName"),
        read("the length of a drain", "terminationGracePeriodSeconds"),
        read("such pods, and pods of another scheduler, are not bound by Shiplap", "hostNetwork", "schedulerName"),
        read("a pod with a gate is not planned until the gate is removed", "schedulingGates"),
        read("`plan` adds the overhead of the class to pods in files; an API server has added it", "runtimeClassName"),
        refused(f'{_DRA}: the pod is reported as unschedulable, "not supported yet"', "resourceClaims"),
        without_effect("such containers have no requests", "ephemeralContainers"),
        without_effect("Shiplap never counts on preemption", "preemptionPolicy"),
        read("`plan` without an install reads the PodGroup", "schedulingGroup"),
        without_effect(
            "alpha gate EvictionRequestAPI, off by default: the eviction-request controller reads it, kube-scheduler "
            "does not",
            "evictionResponders",
        ),
        without_effect(
            "only with the alpha gate UserNamespacesHostNetworkSupport does kube-scheduler read it", "hostUsers"
        ),
        without_effect("the node selector `kubernetes.io/os` decides", "os"),
        without_effect("resources are free again once the pod has ended", "restartPolicy", "activeDeadlineSeconds"),
        without_effect(
            _NOT_SCHEDULED_BY,
            *("automountServiceAccountToken", "dnsConfig", "dnsPolicy", "enableServiceLinks", "hostAliases", "hostIPC"),
            *("hostPID", "hostname", "hostnameOverride", "imagePullSecrets", "readinessGates", "securityContext"),
            *("serviceAccount", "serviceAccountName", "setHostnameAsFQDN", "shareProcessNamespace", "subdomain"),
        ),
    ),
    "PodStatus": (
        read("a pod that has ended takes nothing", "phase"),
        read("unschedulable or ready; whether a resize is infeasible", "conditions"),
        read("the node that is held for the pod", "nominatedNodeName"),
        read("the end of a protection by `karpenter.sh/do-not-disrupt`", "startTime"),
        read(
            "a resize: the larger of desired, allocated and actual requests counts, without the desired ones once the "
            "kubelet calls it infeasible",
            *("containerStatuses", "initContainerStatuses", "resources", "allocatedResources"),
        ),
        without_effect("replaced by the condition PodResizePending; kube-scheduler does not read it", "resize"),
        without_effect(
            "the devices are counted as extended resources, by the requests of the containers; nodes whose devices "
            "only a DRA driver offers are not planned",
            "extendedResourceClaimStatus",
        ),
        without_effect(
            "alpha gate DRANodeAllocatableResources, off by default; only pods with resource claims have it",
            "nodeAllocatableResourceClaimStatuses",
        ),
        without_effect("pods with resource claims are refused", "resourceClaimStatuses"),
        without_effect(
            _NOT_SCHEDULED_BY,
            *("ephemeralContainerStatuses", "hostIP", "hostIPs", "message", "observedGeneration", "podIP", "podIPs"),
            *("qosClass", "reason", "volumeHealth"),
        ),
    ),
    "Container": (
        read("names the container in statuses", "name"),
        read("host ports", "ports"),
        read("requests; a limit without a request is one", "resources"),
        read("`Always` makes an init container a sidecar", "restartPolicy"),
        without_effect("kube-scheduler scores nodes that have the image, it refuses none", "image"),
        without_effect(
            "the action RestartAllContainers needs a node of Kubernetes 1.36; older nodes of a cluster that is being "
            "upgraded are not told apart",
            "restartPolicyRules",
        ),
        without_effect("volumes of the pod count whether or not they are mounted", "volumeMounts", "volumeDevices"),
        without_effect(
            _BY_KUBELET,
            *("args", "command", "env", "envFrom", "imagePullPolicy", "lifecycle", "livenessProbe", "readinessProbe"),
            *("resizePolicy", "securityContext", "startupProbe", "stdin", "stdinOnce", "terminationMessagePath"),
            *("terminationMessagePolicy", "tty", "workingDir"),
        ),
    ),
    "ResourceRequirements": (
        read("requests; a limit without a request is one", "requests", "limits"),
        without_effect("names resource claims of the pod, which refuse it", "claims"),
    ),
    "ContainerPort": (
        read("a port of the node that no other pod may have", "hostPort", "hostIP", "protocol"),
        read("checked in files; the API server makes it the host port of a pod on the host's network", "containerPort"),
        without_effect(_NOT_SCHEDULED_BY, "name"),
    ),
    "Volume": (
        read("the claim behind the volume", "persistentVolumeClaim", "ephemeral"),
        read("part of the name of an ephemeral volume's claim", "name"),
        without_effect(
            "an EBS volume without a claim counts towards the volumes of a node in kube-scheduler, not in Shiplap",
            "awsElasticBlockStore",
        ),
        without_effect("made on the node", "emptyDir", "hostPath", "gitRepo", "image"),
        without_effect("filled by the kubelet", "configMap", "downwardAPI", "projected", "secret"),
        without_effect("an inline volume, which lives and dies with the pod", "csi", "flexVolume"),
        without_effect("reachable from every node", "nfs"),
        without_effect(
            f"{_NOT_OF_AWS}; kube-scheduler lets no two pods on a node write to the same disk", "iscsi", "rbd"
        ),
        without_effect(
            _NOT_OF_AWS,
            *("azureDisk", "azureFile", "cephfs", "cinder", "fc", "flocker", "gcePersistentDisk", "glusterfs"),
            *("photonPersistentDisk", "portworxVolume", "quobyte", "scaleIO", "storageos", "vsphereVolume"),
        ),
    ),
    "PersistentVolumeClaimVolumeSource": (
        read("the claim", "claimName"),
        without_effect("the claim is attached either way", "readOnly"),
    ),
    "EphemeralVolumeSource": (read("its `spec` stands for a claim that does not exist yet", "volumeClaimTemplate"),),
    "Affinity": (read("where the pod may run", "nodeAffinity", "podAffinity", "podAntiAffinity"),),
    "NodeAffinity": (
        read("must hold", "requiredDuringSchedulingIgnoredDuringExecution"),
        read("decides between nodes", "preferredDuringSchedulingIgnoredDuringExecution"),
    ),
    "PodAffinity": (
        read("must hold", "requiredDuringSchedulingIgnoredDuringExecution"),
        read("decides between nodes", "preferredDuringSchedulingIgnoredDuringExecution"),
    ),
    "PodAntiAffinity": (
        read("must hold", "requiredDuringSchedulingIgnoredDuringExecution"),
        read("decides between nodes", "preferredDuringSchedulingIgnoredDuringExecution"),
    ),
    "NodeSelector": (read("alternatives", "nodeSelectorTerms"),),
    "NodeSelectorTerm": (read("labels, or the name of the node", "matchExpressions", "matchFields"),),
    "NodeSelectorRequirement": (read("a requirement of a label", "key", "operator", "values"),),
    "PreferredSchedulingTerm": (read("a preference and its weight", "weight", "preference"),),
    "PodAffinityTerm": (
        read("which pods", "labelSelector", "matchLabelKeys", "mismatchLabelKeys", "namespaceSelector", "namespaces"),
        read("how near", "topologyKey"),
    ),
    "WeightedPodAffinityTerm": (read("a preference and its weight", "weight", "podAffinityTerm"),),
    "LabelSelector": (read("which pods or namespaces", "matchLabels", "matchExpressions"),),
    "LabelSelectorRequirement": (read("a requirement of a label", "key", "operator", "values"),),
    "Toleration": (
        read("which taints", "key", "operator", "value", "effect"),
        without_effect("when a pod leaves a node that was tainted later", "tolerationSeconds"),
    ),
    "TopologySpreadConstraint": (
        read("which pods", "labelSelector", "matchLabelKeys"),
        read("how they spread", "maxSkew", "minDomains", "topologyKey", "whenUnsatisfiable"),
        read("which nodes are counted", "nodeAffinityPolicy", "nodeTaintsPolicy"),
    ),
    "PodSchedulingGroup": (read("which PodGroup", "podGroupName"),),
    "PodSchedulingGate": (read("named in explanations", "name"),),
    "PodCondition": (
        read("which condition", "type", "status"),
        read("unschedulable, deferred or infeasible", "reason"),
        read("shown on pages", "message", "lastTransitionTime"),
        without_effect(_NOT_SCHEDULED_BY, "lastProbeTime", "observedGeneration"),
    ),
    "ContainerStatus": (
        read("which container", "name"),
        read("a resize: what the kubelet holds", "allocatedResources", "resources"),
        without_effect(
            _NOT_SCHEDULED_BY,
            *("allocatedResourcesStatus", "containerID", "image", "imageID", "lastState", "ready", "restartCount"),
            *("started", "state", "stopSignal", "user", "volumeMounts"),
        ),
    ),
    "NodeSpec": (
        read("names the instance", "providerID"),
        read("which pods may not run there", "taints", "unschedulable"),
        without_effect(
            "alpha gate InPlacePodVerticalScalingSchedulerPreemption, off by default: who is preempted for a resize on "
            "the node",
            "podPreemptionPolicy",
        ),
        without_effect(_NOT_SCHEDULED_BY, "configSource", "externalID", "podCIDR", "podCIDRs"),
    ),
    "Taint": (
        read("which pods may not run there", "key", "value", "effect"),
        without_effect("when pods that do not tolerate it leave", "timeAdded"),
    ),
    "NodeStatus": (
        read("the size of the node; estimates are compared with it", "capacity"),
        read("what pods can have", "allocatable"),
        read("ready or not; repairs", "conditions"),
        without_effect(
            "kube-scheduler compares it with pods whose containers restart together (`restartPolicyRules`) and, where "
            "the alpha gate VolumeBindMountOptions is on, with pods that set `bindMountOptions`; nodes that Shiplap "
            "launches have the version of the cluster",
            "declaredFeatures",
        ),
        without_effect("kube-scheduler scores nodes that have an image, it refuses none", "images"),
        without_effect("VolumeAttachments are read instead", "volumesAttached", "volumesInUse"),
        read("whether a node has been rebooted", "nodeInfo"),
        without_effect(
            _NOT_SCHEDULED_BY, "addresses", "config", "daemonEndpoints", "features", "phase", "runtimeHandlers"
        ),
    ),
    "NodeSystemInfo": (
        read("whether a node has been rebooted", "bootID"),
        without_effect(
            "labels of the node have what scheduling needs of it",
            *("architecture", "containerRuntimeVersion", "kernelVersion", "kubeProxyVersion", "kubeletVersion"),
            *("machineID", "operatingSystem", "osImage", "runningInUserNamespace", "swap", "systemUUID"),
        ),
    ),
    "NodeCondition": (
        read("which condition", "type", "status"),
        read("since when, for repairs", "lastTransitionTime"),
        read("shown on pages", "reason", "message"),
        without_effect("a node that is silent becomes not ready", "lastHeartbeatTime"),
    ),
    "PersistentVolumeClaimSpec": (
        read("the volume of a bound claim", "volumeName"),
        read("the class of an unbound claim", "storageClassName"),
        read(
            "a second pod of a ReadWriteOncePod claim is left alone; a claim of a class that makes no volumes",
            "accessModes",
        ),
        read(_STATIC, "resources", "selector", "volumeMode"),
        without_effect(_BY_PROVISIONER, "dataSource", "dataSourceRef", "volumeAttributesClassName"),
    ),
    "VolumeResourceRequirements": (
        read(_STATIC, "requests"),
        without_effect("kube-scheduler does not read it", "limits"),
    ),
    "ObjectReference": (
        read("the claim that a volume is kept for", "namespace", "name", "uid"),
        without_effect("kube-scheduler does not read it", "fieldPath", "resourceVersion"),
    ),
    "PersistentVolumeClaimStatus": (
        read("a lost claim cannot be used", "phase"),
        without_effect(
            _NOT_SCHEDULED_BY,
            *("accessModes", "allocatedResourceStatuses", "allocatedResources", "capacity", "conditions"),
            *("currentVolumeAttributesClassName", "healthStatus", "modifyVolumeStatus"),
        ),
    ),
    "PersistentVolumeSpec": (
        read("which nodes can use the volume", "nodeAffinity"),
        read("the driver that attaches the volume", "csi", "awsElasticBlockStore"),
        read("a volume that stays behind when its pod moves", "hostPath", "local"),
        read(_STATIC, "accessModes", "capacity", "claimRef", "storageClassName", "volumeMode"),
        without_effect("the volume controller reads it", "persistentVolumeReclaimPolicy"),
        without_effect(_BY_KUBELET, "mountOptions"),
        without_effect("changes how fast the volume is, not where", "volumeAttributesClassName"),
        without_effect("reachable from every node", "nfs"),
        without_effect(
            _NOT_OF_AWS,
            *("azureDisk", "azureFile", "cephfs", "cinder", "fc", "flexVolume", "flocker", "gcePersistentDisk"),
            *("glusterfs", "iscsi", "photonPersistentDisk", "portworxVolume", "quobyte", "rbd", "scaleIO"),
            *("storageos", "vsphereVolume"),
        ),
    ),
    "CSIPersistentVolumeSource": (
        read("the driver that attaches the volume", "driver"),
        without_effect(
            "the driver reads it",
            *("controllerExpandSecretRef", "controllerPublishSecretRef", "fsType", "nodeExpandSecretRef"),
            *("nodePublishSecretRef", "nodeStageSecretRef", "readOnly", "volumeAttributes", "volumeHandle"),
        ),
    ),
    "VolumeNodeAffinity": (read("which nodes can use the volume", "required"),),
    "PersistentVolumeStatus": (
        read("whether the volume is available", "phase"),
        without_effect("kube-scheduler does not read it", "lastPhaseTransitionTime", "message", "reason"),
    ),
    "StorageClass": (
        read("the driver of volumes that do not exist yet", "provisioner"),
        read("whether a volume is made where the pod goes", "volumeBindingMode"),
        read("where it may be made", "allowedTopologies"),
        without_effect(_BY_PROVISIONER, "allowVolumeExpansion", "mountOptions", "parameters", "reclaimPolicy"),
    ),
    "TopologySelectorTerm": (read("where a volume may be made", "matchLabelExpressions"),),
    "TopologySelectorLabelRequirement": (read("a requirement of a label", "key", "values"),),
    "CSINodeSpec": (read("the drivers on a node", "drivers"),),
    "CSINodeDriver": (
        read("volumes per node", "name", "allocatable"),
        without_effect("the node has these labels", "topologyKeys"),
        without_effect("the driver reads it", "nodeID"),
    ),
    "VolumeNodeResources": (read("volumes per node", "count"),),
    "CSIDriverSpec": (
        without_effect("the drivers of EBS, EFS and FSx publish no capacity", "storageCapacity"),
        read(
            "whether a node that has not got the driver within fifteen minutes takes pods with its volumes",
            "preventPodSchedulingIfMissing",
        ),
        without_effect(
            _NOT_SCHEDULED_BY,
            *("attachRequired", "fsGroupPolicy", "nodeAllocatableUpdatePeriodSeconds", "podInfoOnMount"),
            *("requiresRepublish", "seLinuxMount", "serviceAccountTokenInSecrets", "tokenRequests"),
            "volumeLifecycleModes",
        ),
    ),
    "CSIStorageCapacity": (
        without_effect(
            "the drivers of EBS, EFS and FSx publish no capacity",
            *("capacity", "maximumVolumeSize", "nodeTopology", "storageClassName"),
        ),
    ),
    "VolumeAttachmentSpec": (
        read("volumes that a drained node still holds", "nodeName", "source"),
        without_effect("the driver reads it", "attacher"),
    ),
    "VolumeAttachmentSource": (
        read("volumes that a drained node still holds", "persistentVolumeName"),
        without_effect("volumes of drivers that were part of Kubernetes", "inlineVolumeSpec"),
    ),
    "VolumeAttachmentStatus": (
        without_effect(
            "a volume holds its node as long as the VolumeAttachment exists",
            *("attachError", "attached", "attachmentMetadata", "detachError"),
        ),
    ),
}
"""The use of every field, by Go type."""


def upstream_structs() -> Mapping[str, tuple[GoField, ...]]:
    """The fields of Kubernetes' types, without those of every object."""
    api = folder_of(kubernetes_module("k8s.io/api"))
    machinery = folder_of(kubernetes_module("k8s.io/apimachinery"))
    files = (api / "core/v1/types.go", api / "storage/v1/types.go", machinery / "pkg/apis/meta/v1/types.go")
    return {
        name: tuple(field for field in fields if field.name not in _OF_EVERY_OBJECT)
        for name, fields in structs_of(files).items()
    }


def types_read(structs: Mapping[str, tuple[GoField, ...]]) -> dict[str, dict[str, str]]:
    """Each Go type of `ROOTS` and of the fields in them that we decode, outermost first.

    Returns:
        Our attributes by the names of fields, by type.
    """
    found: dict[str, dict[str, str]] = {}
    waiting = list(ROOTS.items())
    while waiting:
        name, ours = waiting.pop(0)
        if name in found:
            continue
        shape = inspect.type_info(ours) if ours is not None else None
        fields = {field.encode_name: field for field in shape.fields} if isinstance(shape, inspect.StructType) else {}
        found[name] = {key: field.name for key, field in fields.items() if key not in _OF_EVERY_OBJECT}
        for field in structs[name]:
            inner = _struct_in(fields[field.name].type) if field.name in fields else None
            if inner is not None:
                waiting.append((field.kind, inner))
    return found


def _struct_in(shape: inspect.Type) -> Any:
    """The struct that a field holds, one or several of; None where it holds none."""
    match shape:
        case inspect.StructType(cls=cls):
            return cls
        case inspect.VarTupleType(item_type=of):
            return _struct_in(of)
        case inspect.UnionType(types=types):
            return next(filter(None, map(_struct_in, types)), None)
    return None


def text(structs: Mapping[str, tuple[GoField, ...]]) -> str:
    """The page."""
    entries = [entry for entries in FIELDS.values() for entry in entries]
    counted = {use: sum(len(item.names) for item in entries if item.use == use) for use in _USES}
    lines = [
        "# Fields of Kubernetes",
        "",
        f"The objects that scheduling depends on, in Kubernetes {KUBERNETES}, and the use of each field in Shiplap.",
        "The parts of a field without effect are not listed; neither is `metadata`.",
        "",
        *(f"* **{use}** ({counted[use]}): {meaning}" for use, meaning in _USES.items()),
        "",
        "This page is written by `make docs`. A test compares it with the types of Kubernetes and of Shiplap.",
    ]
    for name in types_read(structs):
        lines += ["", f"## {name}", "", "| field | use | reason |", "|---|---|---|", *_rows(name)]
    return "\n".join(lines) + "\n"


_USES = {
    READ: "decisions or the command line depend on it.",
    REFUSED: "pods that set it are not planned, and the reason is reported.",
    WITHOUT_EFFECT: "it is not decoded. The reason says whether kube-scheduler reads it.",
}


def _rows(name: str) -> Iterator[str]:
    for entry in FIELDS[name]:
        yield f"| {', '.join(f'`{field}`' for field in entry.names)} | {entry.use} | {entry.reason} |"


if __name__ == "__main__":
    PAGE.write_text(text(upstream_structs()), encoding="utf-8")
