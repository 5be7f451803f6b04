"""Holds an install's settings of deploy time: its clusters and their manifests, and the names of its AWS resources.

The stack compiles this into the package `shiplap_settings` (a layer of its own, one file `settings.json`); resource
names arrive as environment variables. Handlers read both once per cold start and pass them down.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from typing import TypeVar

import msgspec

from shiplap.disruption.disruption_snapshot import DisruptionSettings
from shiplap.disruption.repair.repair_policies import RepairPolicy
from shiplap.errors import InvalidInput, UnknownCluster
from shiplap.manifests.claim_rules import ClaimRule
from shiplap.manifests.custom_resources import Manifests
from shiplap.manifests.live.allowed_resources import AllowedResources
from shiplap.manifests.scheduler_config import PodTopologySpread
from shiplap.policies.policy_settings import ChosenPolicy
from shiplap.policies.registry import POLICIES

S = TypeVar("S")

IMPROVE_S = 1.0
"""Effort that a decision spends on cheaper nodes where nothing else is said, in seconds of a server core."""


KARPENTER_LEASE = "kube-system/karpenter-leader-election"
"""Namespace and name of the Lease that a Karpenter installed by its chart's defaults holds."""


LAYER_DESCRIPTION = "Clusters and their manifests"
"""That of the layer that holds a Settings, by which `shiplap install uninstall` finds its versions."""


class ClusterSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One cluster, as it was deployed; flows replace only `manifests`, by those that they have read.

    Without `endpoint` the API server is looked up by EKS DescribeCluster and entered with an IAM token. With it, the
    five fields beside it take the place of that answer.
    """

    name: str

    region: str

    install: str = ""
    """The install that owns its instances: another install of the account may serve a cluster of the same name."""

    network: str = ""
    """The network group whose functions serve the cluster: they alone reach its API server."""

    endpoint: str = ""
    """The API server's address; empty to look it up."""

    certificate_authority: str = ""
    """The certificate authority of the API server, base64."""

    token: str = ""
    """A static token, for a cluster of this machine."""

    kubeconfig_secret: str = ""
    """ARN of a secret with a kubeconfig in JSON, for clusters that IAM does not open; nodes get `endpoint` and the
    fields that belong to it."""

    kubernetes_version: str = ""
    """The minor version, such as 1.34."""

    service_cidr: str = ""
    """The range of Services, from which nodes derive the address of the cluster's DNS."""

    manifests: Manifests = Manifests()
    """NodePools, EC2NodeClasses and the objects beside them."""

    live_manifests: bool = False
    """True if the manifests are those of the cluster's API server."""

    allowed: AllowedResources = AllowedResources()
    """Bounds what live EC2NodeClasses may name."""

    karpenter_lease: str = KARPENTER_LEASE
    """Namespace/name of the Lease; with live manifests nothing is launched while somebody holds it."""

    vm_memory_overhead_percent: float = 0.075
    """The part of an unknown type's memory that the hypervisor takes, as a fraction."""

    reserved_enis: int = 0
    """Network interfaces that pods cannot use, as upstream."""

    prefix_delegation: str = "auto"
    """`auto` (read from the VPC CNI's DaemonSet), `on` or `off`."""

    preference_policy: str = "Respect"
    """Respect|Ignore, see `SchedulingSettings`."""

    min_values_policy: str = "Strict"
    """Strict|BestEffort, see `SchedulingSettings`."""

    reserved_policy: str = "Strict"
    """Strict|Fallback, see `SchedulingSettings`."""

    pod_topology_spread: PodTopologySpread = PodTopologySpread()
    """kube-scheduler's configuration for pods without spread constraints."""

    placement: str = "nominate"
    """How pods get to the nodes that are launched for them: `none`, `nominate` or `bind`."""

    join_timeout_s: int = 900
    """Bounds the time from launch to registration."""

    unproven_nodes: int = 200
    """Nodes that may be on their way at once on an AMI that no node has joined with."""

    unproven_pod_nodes: int = 35
    """Nodes that may be launched within five minutes for pods of which no node has run any yet, all kinds together; 0
    for no limit."""

    node_repair: bool = True
    """True to replace nodes whose instance or kubelet has failed for long."""

    repair_policies: tuple[RepairPolicy, ...] = ()
    """How long bad conditions of nodes are waited out, where that differs from the built-in policies."""

    dry_run: bool = True
    """True to try launches out before pods depend on them."""

    zonal_shift: bool = False
    """True to launch nothing in zones that ARC has shifted the cluster's traffic away from."""

    paused: bool = False
    """True if nothing of the cluster is launched, registered, emptied or ended."""

    improve_s: float = IMPROVE_S
    """The effort spent on cheaper nodes per decision, in seconds of a server core."""

    claim_rules: tuple[ClaimRule, ...] = ()
    """The pods that are ours; without any rule, all are."""

    disruption: DisruptionSettings = DisruptionSettings()
    """Bounds what may be disrupted for money."""

    policies: tuple[ChosenPolicy, ...] = ()
    """The settings of optional features (`policies.policy_settings.chosen`)."""

    @property
    def policies_on(self) -> tuple[str, ...]:
        """The names of the optional features that are on, in the order of the registry."""
        on = {item.name: item.settings.is_on for item in self.policies}
        return tuple(entry.name for entry in POLICIES if on.get(entry.name))

    def policy(self, kind: type[S]) -> S | None:
        """Return the settings of an optional feature, by their class; None if the cluster has none."""
        return next((item.settings for item in self.policies if isinstance(item.settings, kind)), None)


class OtlpSettings(msgspec.Struct, frozen=True, omit_defaults=True):
    """An OpenTelemetry collector: the address that takes OTLP/HTTP in JSON, such as https://…/v1/metrics.

    `headers_secret` is the ARN of a secret whose text is a JSON object of headers, such as one with a token.
    """

    endpoint: str
    headers_secret: str = ""


class Settings(msgspec.Struct, frozen=True, omit_defaults=True):
    """All clusters this install serves, sorted by name.

    With `cluster_metrics`, what is known of each cluster, NodePool and tier is written as metrics of their own. `otlp`
    is where the functions that run each minute send their metrics as well.
    """

    clusters: tuple[ClusterSettings, ...] = ()
    cluster_metrics: bool = False
    otlp: OtlpSettings | None = None

    def cluster(self, name: str) -> ClusterSettings:
        """Raises UnknownCluster."""
        for cluster in self.clusters:
            if cluster.name == name:
                return cluster
        raise UnknownCluster(name)

    def of_network(self, network: str) -> tuple[ClusterSettings, ...]:
        """The clusters that the functions of a network group serve."""
        return tuple(cluster for cluster in self.clusters if cluster.network == network)


class ResourceNames(msgspec.Struct, frozen=True):
    """The stack's own resources, by the environment variable that names each."""

    state_table: str
    """The table of claims, commands and notes."""

    capacity_table: str
    """The table of learned capacity."""

    bucket: str
    """The bucket of catalogues, records and snapshots."""

    bus: str
    """The event bus."""

    lifecycle_queue_url: str
    """The queue of timers and joined nodes."""

    dead_letter_queue_url: str = ""
    """The dead letters of the queue that feeds the function."""

    install: str = ""
    """The name of the install."""

    network: str = ""
    """The network group of a function that talks to the Kubernetes API."""

    lifecycle_queue_urls: dict[str, str] = {}
    """The lifecycle queue of each network group, for a function outside of all networks."""

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> ResourceNames:
        """From SHIPLAP_STATE_TABLE, SHIPLAP_CAPACITY_TABLE, SHIPLAP_BUCKET, SHIPLAP_BUS, SHIPLAP_LIFECYCLE_QUEUE_URL,
        SHIPLAP_DEAD_LETTER_QUEUE_URL, the dead letters of the queue that feeds the function, SHIPLAP_INSTALL,
        SHIPLAP_NETWORK, and SHIPLAP_LIFECYCLE_QUEUE_URLS, a JSON object from network groups to addresses.

        A variable that a function was not given leaves its name empty. Nothing is read from the process here.

        Raises:
            InvalidInput: SHIPLAP_LIFECYCLE_QUEUE_URLS is not such an object.
        """
        given = {field: environment.get(f"SHIPLAP_{field.upper()}", "") for field in cls.__struct_fields__}
        urls = given.pop("lifecycle_queue_urls") or "{}"
        try:
            return cls(**given, lifecycle_queue_urls=msgspec.json.decode(urls, type=dict[str, str]))
        except msgspec.DecodeError as error:
            raise InvalidInput("SHIPLAP_LIFECYCLE_QUEUE_URLS", str(error)) from error

    def lifecycle_queue_of(self, network: str) -> str:
        """The address of the lifecycle queue that serves the clusters of a network group."""
        return self.lifecycle_queue_urls.get(network, self.lifecycle_queue_url)


def load() -> Settings:
    """The settings compiled into the deployment.

    Raises:
        InvalidInput: the package is missing or does not hold valid settings.
    """
    try:
        document = resources.files("shiplap_settings").joinpath("settings.json").read_bytes()
        return msgspec.json.decode(document, type=Settings)
    except (ModuleNotFoundError, FileNotFoundError) as error:
        raise InvalidInput("shiplap_settings", f"the settings layer is missing: {error}") from error
    except msgspec.DecodeError as error:
        raise InvalidInput("shiplap_settings/settings.json", str(error)) from error
