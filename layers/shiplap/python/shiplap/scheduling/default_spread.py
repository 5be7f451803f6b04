"""Default spread constraints: those of the cluster for pods that have none, with selectors deduced as on a cluster.

A pod is spread among the pods that the Services selecting it and its controller select together: kube-scheduler's own
rule. A pod that belongs to neither is not spread.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from shiplap.kubernetes.objects import LabelSelector, LabelSelectorRequirement, Pod, TopologySpreadConstraint
from shiplap.scheduling.snapshot import ClusterView


class DefaultSpread:
    """The default constraints of one decision; pods with the same deduced selector share a number, 0 is none."""

    def __init__(self, constraints: Sequence[TopologySpreadConstraint], view: ClusterView) -> None:
        self._constraints = tuple(constraints)
        self._services: dict[str, list[dict[str, str]]] = {}
        for service in sorted(view.services, key=lambda item: item.metadata.name) if constraints else ():
            if service.spec.selector:
                namespace = service.metadata.namespace or "default"
                self._services.setdefault(namespace, []).append(service.spec.selector)
        self._selectors: dict[tuple[str, str, str], LabelSelector] = {}
        for kind, items in (("ReplicaSet", view.replica_sets), ("StatefulSet", view.stateful_sets)):
            for item in items:
                if item.spec.selector is not None:
                    namespace = item.metadata.namespace or "default"
                    self._selectors[kind, namespace, item.metadata.name] = item.spec.selector
        self._plain = {
            (item.metadata.namespace or "default", item.metadata.name): item.spec.selector or {}
            for item in view.replication_controllers
        }
        self._numbers: dict[object, int] = {}
        self._written: list[tuple[TopologySpreadConstraint, ...]] = [()]

    def number(self, pod: Pod) -> int:
        """Which of the deduced sets of constraints applies to a pod; 0 when it has constraints of its own, or none."""
        if not self._constraints or pod.spec.topology_spread_constraints:
            return 0
        meta = pod.metadata
        namespace = meta.namespace or "default"
        controller = next((owner for owner in meta.owner_references if owner.controller), None)
        kind, name = (controller.kind, controller.name) if controller is not None else ("", "")
        key = (namespace, kind, name, tuple(sorted(meta.labels.items())))
        known = self._numbers.get(key)
        if known is None:
            selector = self._deduced(namespace, kind, name, meta.labels)
            known = self._numbers[key] = 0 if selector is None else self._numbered(selector)
        return known

    def constraints(self, number: int) -> tuple[TopologySpreadConstraint, ...]:
        """The constraints of a number."""
        return self._written[number]

    def _numbered(self, selector: LabelSelector) -> int:
        identity = msgspec.msgpack.encode(selector, order="deterministic")
        known = self._numbers.setdefault(identity, len(self._written))
        if known == len(self._written):
            with_selector = (msgspec.structs.replace(item, label_selector=selector) for item in self._constraints)
            self._written.append(tuple(with_selector))
        return known

    def _deduced(self, namespace: str, kind: str, name: str, labels: dict[str, str]) -> LabelSelector | None:
        """What the pod's Services and its controller select together; None when that is nothing in particular.

        The selector of a ReplicationController replaces what Services say about the same label; those of the others
        are joined with it, so that a contradiction selects nobody.
        """
        wanted: dict[str, str] = {}
        for selector in self._services.get(namespace, ()):
            if selector.items() <= labels.items():
                wanted |= selector
        expressions: list[LabelSelectorRequirement] = []
        if kind == "ReplicationController":
            wanted |= self._plain.get((namespace, name), {})
        elif (own := self._selectors.get((kind, namespace, name))) is not None:
            for key, value in sorted(own.match_labels.items()):
                if wanted.setdefault(key, value) != value:
                    expressions.append(LabelSelectorRequirement(key, "In", (value,)))
            expressions += own.match_expressions
        if not wanted and not expressions:
            return None
        return LabelSelector(wanted, tuple(expressions))
