"""Cluster Autoscaler's own settings: the flags of its Deployment and the priorities of its expander.

The flags: https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/FAQ.md ("What are the parameters to
CA?"). What a flag says once for the whole cluster is written into every NodePool.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from shiplap.errors import InvalidInput
from shiplap.kubernetes.quantity import NVIDIA_GPU
from shiplap.manifests.files.documents import Document, read_text
from shiplap.manifests.times import go_seconds
from shiplap_cli.commands.migrate.migration_findings import FindingCollector, MatchQuality, MigrationFinding

_SOURCE = "cluster-autoscaler"
_PRIORITY_MAP = "cluster-autoscaler-priority-expander"
_OWN_TAG = "k8s.io/cluster-autoscaler/"
_BY_TAGS = "asg:tag="
_DEFAULT_UNNEEDED = "10m"
_MOST_JOIN_S, _LEAST_JOIN_S = 3600, 60

NO_CLUSTER = ("enabled", "disabled")
"""Ends of Cluster Autoscaler's tags that are no names of clusters."""


class AutoscalerSettings(msgspec.Struct, frozen=True):
    """The settings that the flags come to.

    `consolidate_after` is a duration as NodePools have it; `scale_down` whether nodes may be removed at all;
    `budget_nodes` bounds how many leave at a time, 0 for no bound; `most_nodes` how many a cluster may have, 0 for any;
    `priorities` pairs the expander's numbers with its patterns, highest first; `bounds` are those of `--nodes`;
    `discovery` has the tags of each `--node-group-auto-discovery`, with an empty value where any will do.
    """

    present: bool = False
    cluster: str = ""
    consolidate_after: str = _DEFAULT_UNNEEDED
    scale_down: bool = True
    budget_nodes: int = 0
    most_nodes: int = 0
    join_timeout_s: int = 0
    expander: str = "random"
    priorities: tuple[tuple[int, tuple[str, ...]], ...] = ()
    bounds: dict[str, tuple[int, int]] = {}
    discovery: tuple[tuple[tuple[str, str], ...], ...] = ()

    def priority_of(self, group: str) -> int | None:
        """The highest priority that one of the expander's patterns gives a group."""
        if "priority" not in self.expander.split(","):
            return None
        for number, patterns in self.priorities:
            if any(re.search(pattern, group) for pattern in patterns):
                return number
        return None


def is_autoscaler(document: Document) -> bool:
    """True if an object is Cluster Autoscaler's Deployment or its expander's ConfigMap."""
    data = document.data
    if data.get("kind") == "ConfigMap":
        return _metadata(data).get("name") == _PRIORITY_MAP
    return data.get("kind") == "Deployment" and bool(_arguments(data))


def read(documents: Sequence[Document]) -> tuple[AutoscalerSettings, tuple[MigrationFinding, ...]]:
    """Settings and what they map to.

    Raises:
        InvalidInput: the priorities are not a mapping of numbers to lists of patterns.
    """
    settings = AutoscalerSettings()
    collector = FindingCollector(_SOURCE)
    for document in documents:
        if document.data.get("kind") == "ConfigMap":
            settings = msgspec.structs.replace(settings, priorities=_priorities(document))
        else:
            settings = msgspec.structs.replace(settings, present=True)
            for name, value in _flags(_arguments(document.data)):
                settings = _apply(settings, name, value, collector)
    return settings, tuple(collector.all)


def _metadata(data: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = data.get("metadata")
    return metadata if isinstance(metadata, Mapping) else {}


def _arguments(data: Mapping[str, Any]) -> list[str]:
    """The command line of the container that runs Cluster Autoscaler; empty when there is none."""
    spec: Any = data
    for key in ("spec", "template", "spec"):
        spec = spec.get(key) if isinstance(spec, Mapping) else None
    containers = spec.get("containers") if isinstance(spec, Mapping) else None
    for container in containers if isinstance(containers, list) else ():
        words = [str(word) for key in ("command", "args") for word in container.get(key) or []]
        if any("cluster-autoscaler" in text for text in (str(container.get("image", "")), *words[:1])):
            return words
    return []


def _flags(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Pairs of name and value; a switch without a value is `true`."""
    for place, word in enumerate(words):
        if not word.startswith("-"):
            continue
        name, equals, value = word.lstrip("-").partition("=")
        if not equals:
            following = words[place + 1] if place + 1 < len(words) else "-"
            value = "true" if following.startswith("-") else following
        yield name, value


def _priorities(document: Document) -> tuple[tuple[int, tuple[str, ...]], ...]:
    text = (document.data.get("data") or {}).get("priorities", "")
    where = f"{document.source}: {document.name}: data.priorities"
    (inner,) = read_text(where, text) or (None,)
    priorities: list[tuple[int, tuple[str, ...]]] = []
    for number, patterns in (inner.data if inner is not None else {}).items():
        try:
            priorities.append((int(number), tuple(re.compile(pattern).pattern for pattern in patterns)))
        except (ValueError, TypeError, re.error) as error:
            raise InvalidInput(
                where, f"{number}: expected a number with a list of regular expressions: {error}"
            ) from error
    return tuple(sorted(priorities, reverse=True))


def _apply(settings: AutoscalerSettings, name: str, value: str, collector: FindingCollector) -> AutoscalerSettings:
    if name in _HANDLERS:
        try:
            return msgspec.structs.replace(settings, **_HANDLERS[name](settings, value, collector))
        except ValueError as error:
            collector.not_mapped(f"--{name}", f"{value!r} cannot be read: {error}")
    elif name in _BUILT_IN:
        collector.exact(f"--{name}", _BUILT_IN[name])
    elif name not in _IRRELEVANT:
        unknown = "is not known to this report; see what it does for you"
        collector.not_mapped(f"--{name}", _UNMAPPED.get(name, unknown))
    return settings


Handler = Callable[[AutoscalerSettings, str, FindingCollector], dict[str, Any]]
"""What a flag of some value changes in the settings, and what it maps to."""


def _unneeded_time(_found: AutoscalerSettings, value: str, collector: FindingCollector) -> dict[str, Any]:
    go_seconds(value)
    note = "counted from the last pod that came or went, not from when utilisation fell"
    collector.approximate("--scale-down-unneeded-time", f"spec.disruption.consolidateAfter: {value}", note)
    return {"consolidate_after": value}


def _scale_down(_found: AutoscalerSettings, value: str, collector: FindingCollector) -> dict[str, Any]:
    allowed = value.lower() != "false"
    becomes = "consolidation" if allowed else 'spec.disruption.budgets: [{nodes: "0"}]'
    collector.exact("--scale-down-enabled", becomes)
    return {"scale_down": allowed}


def _provision_time(_found: AutoscalerSettings, value: str, collector: FindingCollector) -> dict[str, Any]:
    seconds = int(go_seconds(value))
    within = min(max(seconds, _LEAST_JOIN_S), _MOST_JOIN_S)
    note = "a node that has not joined by then is ended and its pods are planned again; learned join times shorten it"
    match = MatchQuality.EXACT if within == seconds else MatchQuality.APPROXIMATE
    collector.add(match, "--max-node-provision-time", f"shiplap.yaml joinTimeoutSeconds: {within}", note)
    return {"join_timeout_s": within}


def _nodes_total(_found: AutoscalerSettings, value: str, collector: FindingCollector) -> dict[str, Any]:
    number = int(value)
    if number:
        note = "a bound of each pool, not of all together; share it out among them"
        collector.approximate("--max-nodes-total", f"spec.limits.nodes at most {number}", note)
    return {"most_nodes": number}


def _parallel(name: str) -> Handler:
    def apply(settings: AutoscalerSettings, value: str, collector: FindingCollector) -> dict[str, Any]:
        number = int(value)
        becomes = f'spec.disruption.budgets: [{{nodes: "{number}"}}]'
        collector.approximate(f"--{name}", becomes, "a bound of each pool")
        return {"budget_nodes": min(number, settings.budget_nodes) if settings.budget_nodes else number}

    return apply


_EXPANDERS = {
    "priority": (MatchQuality.EXACT, "spec.weight", "in the order of the priorities; those that share one, by name"),
    "least-waste": (
        MatchQuality.APPROXIMATE,
        "the cost search",
        "nodes are chosen by price, which is what waste costs",
    ),
    "price": (MatchQuality.EXACT, "the cost search", ""),
    "least-nodes": (MatchQuality.APPROXIMATE, "the cost search", "nodes are chosen by price, not by number"),
    "most-pods": (MatchQuality.APPROXIMATE, "the cost search", "nodes are chosen by price"),
    "random": (MatchQuality.APPROXIMATE, "the cost search", "nodes are chosen by price"),
}


def _expander(_found: AutoscalerSettings, value: str, collector: FindingCollector) -> dict[str, Any]:
    for name in value.split(","):
        match, becomes, note = _EXPANDERS.get(name, (MatchQuality.NONE, "", "an expander of your own is not asked"))
        collector.add(match, f"--expander={name}", becomes, note)
    return {"expander": value}


def _group_sizes(settings: AutoscalerSettings, value: str, collector: FindingCollector) -> dict[str, Any]:
    least, most, name = value.split(":", 2)
    bounds = settings.bounds | {name: (int(least), int(most))}
    collector.exact(f"--nodes={value}", f"spec.limits.nodes: {int(most)}", "of the group's pool")
    return {"bounds": bounds}


def _discovery(settings: AutoscalerSettings, value: str, collector: FindingCollector) -> dict[str, Any]:
    tags = tuple(
        (key, wanted) for key, _, wanted in (part.partition("=") for part in value[len(_BY_TAGS) :].split(","))
    )
    if not value.startswith(_BY_TAGS) or not all(key for key, _ in tags):
        raise ValueError(f"expected {_BY_TAGS}KEY,KEY")
    names = [key.removeprefix(_OWN_TAG) for key, _ in tags if key.startswith(_OWN_TAG)]
    collector.exact("--node-group-auto-discovery", "the NodePools", "of the groups given here that have these tags")
    cluster = next((name for name in names if name not in NO_CLUSTER), settings.cluster)
    return {"cluster": cluster, "discovery": (*settings.discovery, tags)}


_HANDLERS: dict[str, Handler] = {
    "scale-down-unneeded-time": _unneeded_time,
    "scale-down-enabled": _scale_down,
    "max-node-provision-time": _provision_time,
    "max-nodes-total": _nodes_total,
    "max-scale-down-parallelism": _parallel("max-scale-down-parallelism"),
    "max-empty-bulk-delete": _parallel("max-empty-bulk-delete"),
    "expander": _expander,
    "nodes": _group_sizes,
    "node-group-auto-discovery": _discovery,
}

_BUILT_IN = {
    "cordon-node-before-terminating": "always so",
    "daemonset-eviction-for-empty-nodes": "DaemonSet pods end with their node",
    "ignore-daemonsets-utilization": "DaemonSets are never counted as use of a node",
    "balance-similar-node-groups": "one NodePool spans the zones; pods spread by their topology constraints",
    "enforce-node-group-min-size": "a NodePool has no minimum; see the finding of each group",
    "scan-interval": "not needed: events, and a sweep each minute",
    "aws-use-static-instance-list": "the catalogue is refreshed hourly",
}
"""Flags whose purpose is met without a setting."""

_UNMAPPED = {
    "scale-down-utilization-threshold": "nodes are removed when that saves money, whatever their utilisation is",
    "scale-down-delay-after-add": "a node is left alone until its pods have started; `consolidateAfter` does the rest",
    "scale-down-delay-after-delete": "the budgets pace removals",
    "scale-down-delay-after-failure": "a command that fails is undone and rests for a while",
    "scale-down-unready-time": "sick nodes are repaired after the times that Karpenter has for each condition",
    "skip-nodes-with-local-storage": "pods with local storage are moved; annotate those that must not be "
    'karpenter.sh/do-not-disrupt: "true"',
    "skip-nodes-with-system-pods": "pods of kube-system are moved within their PodDisruptionBudgets; give them some",
    "skip-nodes-with-custom-controller-pods": "pods of any controller are moved within their PodDisruptionBudgets",
    "max-graceful-termination-sec": "a pod has its own grace period; a node's is spec.template.spec."
    "terminationGracePeriod, which overrides PodDisruptionBudgets, and is therefore not set",
    "expendable-pods-priority-cutoff": "every pod may get a node; keep those of low priority out by claim rules",
    "new-pod-scale-up-delay": "pods that wait are batched for a second",
    "cores-total": "limits are those of each NodePool: share it out as spec.limits.cpu",
    "memory-total": "limits are those of each NodePool: share it out as spec.limits.memory",
    "gpu-total": f"limits are those of each NodePool: share it out as spec.limits[{NVIDIA_GPU}]",
    "max-total-unready-percentage": "repair stops by itself when too many nodes of a pool are sick",
    "ok-total-unready-count": "repair stops by itself when too many nodes of a pool are sick",
    "max-drain-parallelism": "the budgets bound how many nodes leave at a time",
    "balancing-ignore-label": "one NodePool spans the zones",
    "balancing-label": "one NodePool spans the zones",
    "force-ds": "DaemonSets always count",
    "min-replica-count": "write a PodDisruptionBudget for workloads that must keep some replicas",
}

_IRRELEVANT = frozenset(
    {
        "address",
        "alsologtostderr",
        "cloud-config",
        "cloud-provider",
        "cluster-name",
        "debugging-snapshot-enabled",
        "emit-per-nodegroup-metrics",
        "kube-api-content-type",
        "kube-client-burst",
        "kube-client-qps",
        "kubeconfig",
        "leader-elect",
        "leader-elect-lease-duration",
        "leader-elect-renew-deadline",
        "leader-elect-resource-name",
        "leader-elect-resource-namespace",
        "leader-elect-retry-period",
        "log-file",
        "logtostderr",
        "namespace",
        "profiling",
        "record-duplicated-events",
        "regional",
        "status-config-map-name",
        "stderrthreshold",
        "user-agent",
        "v",
        "vmodule",
        "write-status-configmap",
    }
)
"""Flags about Cluster Autoscaler itself, which say nothing about nodes."""
