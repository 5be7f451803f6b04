"""Decides which pods sleep: pods of sleeping namespaces, and pods that no awake NodePool would take.

A pod that could also run on a NodePool that is awake does not sleep: if its node left, it would have another launched
there, and nothing would be saved. It keeps its node instead, and says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from shiplap.kubernetes import labels
from shiplap.kubernetes.names import label_value_of
from shiplap.kubernetes.objects import NodeSelectorTerm, Pod
from shiplap.kubernetes.requirements import Requirement, Requirements, requirement
from shiplap.kubernetes.taints import untolerated
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.manifests.custom_resources import NodePool
from shiplap.policies.sleep.sleep_state import NAMESPACE, NODE_POOL, SleepState

SYSTEM_CRITICAL = 2_000_000_000
"""The lowest priority of a system-critical pod: Kubernetes lets nobody give such a one to a class of their own."""

_CRITICAL_CLASSES = ("system-cluster-critical", "system-node-critical")


class SleepingPods:
    """Answers, for the pods of one snapshot, whether and until when they sleep."""

    def __init__(self, state: SleepState, pools: Iterable[NodePool]) -> None:
        """`pools` are all NodePools of the cluster, also those that are not armed."""
        self._namespaces = state.asleep(NAMESPACE)
        self._pools = state.asleep(NODE_POOL)
        usable = [pool for pool in pools if pool.spec.replicas is None and not pool.metadata.deletion_timestamp]
        usable.sort(key=lambda pool: pool.metadata.name)
        self._nodes = [(pool.metadata.name, pool, _requirements(pool)) for pool in usable]
        self._answers: dict[object, tuple[str, str]] = {}

    @property
    def any(self) -> bool:
        """True if anything sleeps."""
        return bool(self._namespaces or self._pools)

    def reason(self, pod: Pod) -> str:
        """Return why a pod sleeps; empty if it is awake."""
        return self._answer(pod)[0]

    def awake_because(self, pod: Pod) -> str:
        """Return why a pod is awake; empty if it sleeps."""
        return self._answer(pod)[1]

    def _answer(self, pod: Pod) -> tuple[str, str]:
        if pod.spec.priority >= SYSTEM_CRITICAL or pod.spec.priority_class_name in _CRITICAL_CLASSES:
            return "", f"pod {pod.key} is system-critical"
        scope = self._namespaces.get(pod.metadata.namespace or "default")
        if scope is not None:
            return f"namespace {scope.name} sleeps until {rfc3339(scope.until)}", ""
        if not self._pools:
            return "", f"pod {pod.key} is of no namespace that sleeps"
        why, awake = self._by_pools(pod)
        return (why, "") if why else ("", f"pod {pod.key} {awake}")

    def _by_pools(self, pod: Pod) -> tuple[str, str]:
        """Return why the NodePools let a pod sleep, and why they do not."""
        spec = pod.spec
        affinity = spec.affinity.node_affinity if spec.affinity is not None else None
        key = (tuple(sorted(spec.node_selector.items())), affinity, spec.tolerations)
        if key not in self._answers:
            self._answers[key] = self._ask_pools(pod)
        return self._answers[key]

    def _ask_pools(self, pod: Pod) -> tuple[str, str]:
        try:
            terms = _terms(pod)
        except ValueError as error:
            return "", f"cannot be read: {error}"
        taking = [name for name, pool, nodes in self._nodes if _takes(pool, nodes, pod, terms)]
        awake = [name for name in taking if name not in self._pools]
        if awake:
            return "", f"could run on NodePool {awake[0]}, which is awake"
        if not taking:
            return "", "is taken by no NodePool"
        until = min(self._pools[name].until for name in taking)
        named = f"NodePool {taking[0]} sleeps" if len(taking) == 1 else f"NodePools {', '.join(taking)} sleep"
        return f"{named} until {rfc3339(until)}", ""


def _requirements(pool: NodePool) -> Requirements:
    """Return the requirements that nodes of a pool meet.

    It omits a requirement with globs: then more pods fit, and fewer sleep.
    """
    template = pool.spec.template
    given = {
        **template.metadata.labels,
        labels.NODE_POOL: label_value_of(pool.metadata.name),
        labels.NODE_CLASS: label_value_of(template.spec.node_class_ref.name),
        labels.REGISTERED: "true",
        labels.INITIALIZED: "true",
    }
    written = [item for item in template.spec.requirements if not any("*" in value for value in item.values)]
    return Requirements.of_labels(given).and_(Requirements.of(written).values())


def _terms(pod: Pod) -> list[Requirements]:
    """The alternatives that a pod's node selector and required node affinity allow. Raises ValueError."""
    selector = [requirement(key, "In", (value,)) for key, value in pod.spec.node_selector.items()]
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    required = affinity.required.node_selector_terms if affinity is not None and affinity.required is not None else ()
    return [Requirements([*selector, *_expressions(term)]) for term in required] or [Requirements(selector)]


def _expressions(term: NodeSelectorTerm) -> Sequence[Requirement]:
    return [requirement(item.key, item.operator, item.values) for item in term.match_expressions]


def _takes(pool: NodePool, nodes: Requirements, pod: Pod, terms: Iterable[Mapping[str, Requirement]]) -> bool:
    taints = pool.spec.template.spec.taints
    if untolerated(taints, pod.spec.tolerations, ignore_preferences=True) is not None:
        return False
    return any(nodes.compatible(term, labels.WELL_KNOWN) for term in terms)
