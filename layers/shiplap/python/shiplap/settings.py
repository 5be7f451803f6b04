"""Holds an install's settings of deploy time: its clusters and their manifests, and the names of its AWS resources.

The stack compiles this into the package `shiplap_settings` (a layer of its own, one file `settings.json`); resource
names arrive as environment variables. Handlers read both once per cold start and pass them down.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources

import msgspec

from shiplap.disruption.disruption_snapshot import DisruptionSettings
from shiplap.errors import InvalidInput, UnknownCluster
from shiplap.manifests.claim_rules import ClaimRule
from shiplap.manifests.custom_resources import Manifests
from shiplap.manifests.live.allowed_resources import AllowedResources
from shiplap.manifests.scheduler_config import PodTopologySpread
from shiplap.manifests.standalone_claims import StandaloneClaim
from shiplap.policies.ceilings.ceilings import Ceiling
from shiplap.policies.commitments.account_commitments import CommitmentSettings
from shiplap.policies.sleep.sleep_settings import SleepSettings
from shiplap.policies.spot_risk.safer_offerings import SpotRiskSettings

IMPROVE_S = 1.0
"""Effort that a decision spends on cheaper nodes where nothing else is said, in seconds of a server core."""


KARPENTER_LEASE = "kube-system/karpenter-leader-election"
"""Namespace and name of the Lease that a Karpenter installed by its chart's defaults holds."""


LAYER_DESCRIPTION = "Clusters and their manifests"
"""That of the layer that holds a Settings, by which `shiplap uninstall` finds its versions."""


class ClusterSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One cluster. Without `endpoint` the API server is looked up by EKS DescribeCluster and entered with an IAM token.

    With `endpoint`, what DescribeCluster would say is taken from here: `certificate_authority` (base64),
    `kubernetes_version` (minor) and `service_cidr`, which nodes derive the address of the cluster's DNS from.

    `kubeconfig_secret` is the ARN of a secret with a kubeconfig in JSON, for clusters that IAM does not open; nodes
    are told `endpoint` and what belongs to it.

    `vm_memory_overhead_percent` is a fraction (0.075); `reserved_enis` as upstream; `prefix_delegation` is `auto`
    (read from the VPC CNI's DaemonSet), `on` or `off`; `join_timeout_s` bounds launch → registered.
    `unproven_nodes` may be on their way at once on an AMI that no node has joined with. `unproven_pod_nodes` may be
    launched within five minutes for pods of which no node has run any yet, all kinds together; 0 for no limit.
    `reserved_policy` Strict|Fallback see `SchedulingSettings`.
    `pod_topology_spread` is what kube-scheduler is configured with for pods without spread constraints.
    `node_repair` replaces nodes whose instance or kubelet has failed for long; `zonal_shift` keeps launches out of
    zones that ARC has shifted the cluster's traffic away from. `dry_run` tries launches out before pods depend on
    them. `disruption` bounds what may be disrupted for money, `sleep` says what sleeps when, None for nothing.
    `spot_risk` says what is made of how often spot takes instances back.
    While `paused`, nothing of the cluster is launched, registered, emptied or ended.
    `improve_s` is the effort spent on cheaper nodes per decision, in seconds of a server core.
    `claim_rules` say which pods are ours; without any, all are.
    `install` names whom its instances belong to: another install of the account may serve a cluster of the same name.
    With `live_manifests` the manifests are those of the cluster's API server, `allowed` bounds what its EC2NodeClasses
    may name, and nothing is launched while `karpenter_lease` (namespace/name) is held. Flows then replace `manifests`
    by what they have read (`flows.live_settings`), `suspended` by why nothing is launched and no node disrupted for
    now, `unsettled_pools` by the names of NodePools that no node drifts by yet, `settles_at` by when that changes next
    (epoch seconds, or 0), and `standalone_claims` by NodeClaims that users wrote and that nothing was launched for.
    `network` names the network group whose functions serve the cluster: they alone reach its API server.
    `ceilings` in dollars are those of the cluster, its NodePools and namespaces, `account_ceilings` those of all
    clusters of the install together.
    `commitments` is what the install counts on of Savings Plans and Reserved Instances, None for nothing.
    """

    name: str
    region: str
    install: str = ""
    network: str = ""
    endpoint: str = ""
    certificate_authority: str = ""
    token: str = ""
    kubeconfig_secret: str = ""
    kubernetes_version: str = ""
    service_cidr: str = ""
    manifests: Manifests = Manifests()
    live_manifests: bool = False
    allowed: AllowedResources = AllowedResources()
    karpenter_lease: str = KARPENTER_LEASE
    suspended: str = ""
    unsettled_pools: tuple[str, ...] = ()
    settles_at: float = 0.0
    standalone_claims: tuple[StandaloneClaim, ...] = ()
    vm_memory_overhead_percent: float = 0.075
    reserved_enis: int = 0
    prefix_delegation: str = "auto"
    preference_policy: str = "Respect"
    min_values_policy: str = "Strict"
    reserved_policy: str = "Strict"
    pod_topology_spread: PodTopologySpread = PodTopologySpread()
    placement: str = "nominate"
    join_timeout_s: int = 900
    unproven_nodes: int = 200
    unproven_pod_nodes: int = 35
    node_repair: bool = True
    dry_run: bool = True
    zonal_shift: bool = False
    paused: bool = False
    improve_s: float = IMPROVE_S
    claim_rules: tuple[ClaimRule, ...] = ()
    disruption: DisruptionSettings = DisruptionSettings()
    sleep: SleepSettings | None = None
    spot_risk: SpotRiskSettings = SpotRiskSettings()
    ceilings: tuple[Ceiling, ...] = ()
    account_ceilings: tuple[Ceiling, ...] = ()
    commitments: CommitmentSettings | None = None

    @property
    def policies_on(self) -> tuple[str, ...]:
        """The names of the optional features that are on, in the order of the registry."""
        on = {
            "commitments": self.commitments is not None,
            "sleep": self.sleep is not None,
            "ceilings": self.has_ceilings,
            "spot_risk": self.spot_risk.is_on,
        }
        return tuple(name for name, is_on in on.items() if is_on)

    @property
    def has_ceilings(self) -> bool:
        """True if anything bounds the cost of the cluster's nodes."""
        return bool(self.ceilings or self.account_ceilings)


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
    """The stack's own resources, by the environment variable that names each.

    `network` is the network group of a function that talks to the Kubernetes API. A function outside of all networks
    finds the lifecycle queue of each group in `lifecycle_queue_urls`.
    """

    state_table: str
    capacity_table: str
    bucket: str
    bus: str
    lifecycle_queue_url: str
    dead_letter_queue_url: str = ""
    install: str = ""
    network: str = ""
    lifecycle_queue_urls: dict[str, str] = {}

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
