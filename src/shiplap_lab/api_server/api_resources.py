"""The kinds of objects the in-memory API server knows, and the field selectors each of them supports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

_ANY = frozenset({"metadata.name", "metadata.namespace"})


class Resource(msgspec.Struct, frozen=True):
    """One kind. `fields` are those a field selector may name; `has_status` when status is a subresource."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    has_status: bool = False
    fields: frozenset[str] = _ANY

    @property
    def counts_generation(self) -> bool:
        """True if the server counts how often an object's spec has changed: of workloads, and where a CRD says so."""
        return self.group.startswith(("karpenter.", "autoscaling.x-k8s.io", "apps", "batch"))

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def key(self) -> str:
        """The plural name, with the group where several groups have a kind of this name."""
        return f"{self.plural}.{self.group}" if self.plural in _OF_SEVERAL_GROUPS else self.plural


_OF_SEVERAL_GROUPS = frozenset({"podgroups"})
_POD_FIELDS = _ANY | {
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.nominatedNodeName",
}
_EVENT_FIELDS = _ANY | {
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
}

_ADMISSION, _FLOW_CONTROL = "admissionregistration.k8s.io", "flowcontrol.apiserver.k8s.io"

RESOURCES = {
    resource.key: resource
    for resource in (
        Resource("", "v1", "pods", "Pod", has_status=True, fields=_POD_FIELDS),
        Resource("", "v1", "nodes", "Node", False, True, _ANY | {"spec.unschedulable"}),
        Resource("", "v1", "events", "Event", fields=_EVENT_FIELDS),
        Resource("", "v1", "namespaces", "Namespace", False, True, _ANY | {"status.phase"}),
        Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", has_status=True),
        Resource("", "v1", "persistentvolumes", "PersistentVolume", False, True),
        Resource("", "v1", "configmaps", "ConfigMap"),
        Resource("", "v1", "services", "Service", has_status=True),
        Resource("", "v1", "replicationcontrollers", "ReplicationController", has_status=True),
        Resource("apps", "v1", "daemonsets", "DaemonSet", has_status=True),
        Resource("apps", "v1", "deployments", "Deployment", has_status=True),
        Resource("apps", "v1", "controllerrevisions", "ControllerRevision"),
        Resource("batch", "v1", "jobs", "Job", has_status=True, fields=_ANY | {"status.successful"}),
        Resource("apps", "v1", "replicasets", "ReplicaSet", has_status=True),
        Resource("apps", "v1", "statefulsets", "StatefulSet", has_status=True),
        Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", has_status=True),
        Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", False),
        Resource("storage.k8s.io", "v1", "csinodes", "CSINode", False),
        Resource("storage.k8s.io", "v1", "csidrivers", "CSIDriver", False),
        Resource("storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", False, True),
        Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False),
        Resource("scheduling.k8s.io", "v1beta1", "podgroups", "PodGroup", has_status=True),
        Resource("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup", has_status=True),
        Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup", has_status=True),
        Resource("scheduling.run.ai", "v2alpha2", "podgroups", "PodGroup", has_status=True),
        Resource("karpenter.sh", "v1", "nodepools", "NodePool", False, True),
        Resource("karpenter.sh", "v1", "nodeclaims", "NodeClaim", False, True),
        Resource("karpenter.sh", "v1alpha1", "nodeoverlays", "NodeOverlay", False, True),
        Resource("karpenter.k8s.aws", "v1", "ec2nodeclasses", "EC2NodeClass", False, True),
        Resource("autoscaling.x-k8s.io", "v1beta1", "capacitybuffers", "CapacityBuffer", has_status=True),
        Resource("autoscaling.x-k8s.io", "v1", "provisioningrequests", "ProvisioningRequest", has_status=True),
        Resource("", "v1", "podtemplates", "PodTemplate"),
        Resource("coordination.k8s.io", "v1", "leases", "Lease"),
        Resource("batch", "v1", "cronjobs", "CronJob", has_status=True),
        Resource("", "v1", "serviceaccounts", "ServiceAccount"),
        Resource("", "v1", "secrets", "Secret", fields=_ANY | {"type"}),
        Resource("", "v1", "endpoints", "Endpoints"),
        Resource("", "v1", "limitranges", "LimitRange"),
        Resource("", "v1", "resourcequotas", "ResourceQuota", has_status=True),
        Resource("networking.k8s.io", "v1", "ingresses", "Ingress", has_status=True),
        Resource("networking.k8s.io", "v1", "ingressclasses", "IngressClass", False),
        Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy"),
        Resource("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", has_status=True),
        Resource("rbac.authorization.k8s.io", "v1", "roles", "Role"),
        Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding"),
        Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", False),
        Resource("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", False),
        Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice"),
        Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", False),
        Resource("apiregistration.k8s.io", "v1", "apiservices", "APIService", False, True),
        Resource(_ADMISSION, "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", False),
        Resource(_ADMISSION, "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", False),
        Resource(_FLOW_CONTROL, "v1", "flowschemas", "FlowSchema", False, True),
        Resource(_FLOW_CONTROL, "v1", "prioritylevelconfigurations", "PriorityLevelConfiguration", False, True),
        Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False, True),
    )
}
"""By `Resource.key`."""

_NO_TRAFFIC = "simulated containers do nothing, and carry no traffic"
_NO_CHECKS = "the playground checks no rights"

IDLE = {
    **dict.fromkeys(("services", "ingresses", "networkpolicies"), _NO_TRAFFIC),
    **dict.fromkeys(("roles", "rolebindings", "clusterroles", "clusterrolebindings"), _NO_CHECKS),
    **dict.fromkeys(("mutatingwebhookconfigurations", "validatingwebhookconfigurations"), "nobody is called"),
    "horizontalpodautoscalers": "there are no metrics of pods, so nothing is scaled",
    "limitranges": "pods get no defaults from it, and none is refused",
    "resourcequotas": "nothing is counted or refused",
    "runtimeclasses": "pods get no overhead from it",
    "apiservices": "no request is forwarded",
    "customresourcedefinitions": "objects of its kind are not served",
}
"""Kinds that a real cluster acts on and a simulated one only stores, and what does not happen."""

PLURALS = {resource.kind: key for key, resource in RESOURCES.items() if key == resource.plural}
"""The plural name of each kind that only one group has."""

_KEYS = {(resource.group, resource.kind): key for key, resource in RESOURCES.items()}


def resource_of(group: str, version: str, plural: str) -> Resource | None:
    """Return the resource of a path; None if there is none."""
    found = RESOURCES.get(f"{plural}.{group}") or RESOURCES.get(plural)
    return found if found is not None and (found.group, found.version) == (group, version) else None


def key_of(body: Mapping[str, Any]) -> str:
    """Return the key of the resource that an object is of, by its kind, and by its group if it states one."""
    group = str(body.get("apiVersion", "")).rpartition("/")[0]
    kind = body.get("kind", "")
    return _KEYS.get((group, kind)) or PLURALS.get(kind, "")
