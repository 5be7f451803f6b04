"""Kubernetes' own rules, written once more for the judges of plans: they share no code with the planner.

Amounts are integers: millicores for cpu, units for everything else. Written for clearness, not for speed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from itertools import product
from typing import Any

from shiplap.kubernetes.objects import Pod, PodSpec
from shiplap.scheduling.model.snapshot import ClusterView

ZONE, KIND = "topology.kubernetes.io/zone", "karpenter.sh/capacity-type"
TYPE, POOL = "node.kubernetes.io/instance-type", "karpenter.sh/nodepool"
HOST, EBS = "kubernetes.io/hostname", "ebs.csi.aws.com"
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_OLDER = {
    "failure-domain.beta.kubernetes.io/zone": ZONE,
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "beta.kubernetes.io/arch": "kubernetes.io/arch",
    "beta.kubernetes.io/os": "kubernetes.io/os",
    "beta.kubernetes.io/instance-type": TYPE,
    "topology.ebs.csi.aws.com/zone": ZONE,
}

Labels = Mapping[str, str]
Amounts = dict[str, int]


def amount(resource: str, text: str | int | float) -> int:
    """A quantity in whole units, rounded up."""
    found = re.fullmatch(r"([0-9.]+(?:[eE][+-]?[0-9]+)?)([A-Za-z]*)", str(text))
    assert found is not None, text
    factor = Decimal(2) ** _BINARY[found[2]] if found[2] in _BINARY else Decimal(10) ** _DECIMAL[found[2]]
    value = Decimal(found[1]) * factor * (1000 if resource == "cpu" else 1)
    return int(value.to_integral_value(rounding="ROUND_CEILING"))


def add(lists: Iterable[Mapping[str, int]]) -> Amounts:
    """The sum per resource."""
    total: Counter[str] = Counter()
    for amounts in lists:
        total.update(amounts)
    return dict(total)


def most(lists: Iterable[Mapping[str, int]]) -> Amounts:
    """The largest per resource."""
    total: Amounts = {}
    for amounts in lists:
        total = {key: max(total.get(key, 0), amounts.get(key, 0)) for key in {*total, *amounts}}
    return total


def requests(pod: Pod) -> Amounts:
    """Return the requests of a pod: containers and sidecars, or the largest init step; its own; overhead; one place."""
    spec = pod.spec
    held = {status.name: status for status in (*pod.status.container_statuses, *pod.status.init_container_statuses)}
    running = [_of_container(container, held) for container in spec.containers]
    sidecars: list[Amounts] = []
    steps: list[Amounts] = []
    for container in spec.init_containers:
        if container.restart_policy == "Always":
            sidecars.append(_of_container(container, held))
            steps.append(add(sidecars))
        else:
            steps.append(add([*sidecars, _of_container(container, held)]))
    total = most([add([*running, *sidecars]), *steps])
    if spec.resources is not None:
        own = {key: amount(key, text) for key, text in spec.resources.limits.items() if key not in total}
        total |= own | {key: amount(key, text) for key, text in spec.resources.requests.items()}
    overhead = {key: amount(key, text) for key, text in spec.overhead.items()}
    return {key: value for key, value in (add([total, overhead]) | {"pods": 1}).items() if value}


def _of_container(container: Any, held: Mapping[str, Any]) -> Amounts:
    declared = {**container.resources.limits, **container.resources.requests}
    wanted = {key: amount(key, text) for key, text in declared.items()}
    status = held.get(container.name)
    if status is None:
        return wanted
    actual = status.resources.requests if status.resources is not None else {}
    lists = [{key: amount(key, text) for key, text in known.items()} for known in (status.allocated_resources, actual)]
    return most([wanted, *lists])


def ports(spec: PodSpec) -> list[tuple[int, str, str]]:
    """Host ports: number, protocol and address, empty for all addresses."""
    sidecars = [c for c in spec.init_containers if c.restart_policy == "Always"]
    return [
        (number, port.protocol, "" if port.host_ip in ("", "0.0.0.0", "::") else port.host_ip)  # noqa: S104
        for container in (*spec.containers, *sidecars)
        for port in container.ports
        if (number := port.host_port or (port.container_port if spec.host_network else 0))
    ]


def collisions(taken: Iterable[tuple[str, list[tuple[int, str, str]]]]) -> Iterator[str]:
    """Host ports that two owners claim; an owner's own ports do not collide with each other."""
    seen: list[tuple[str, tuple[int, str, str]]] = []
    for owner, mine in taken:
        for other, (port, protocol, address) in seen:
            for wanted in mine:
                if wanted[:2] == (port, protocol) and (wanted[2] == address or not wanted[2] or not address):
                    yield f"{owner} and {other} both take host port {port}/{protocol}"
        seen += [(owner, entry) for entry in mine]


def tolerates(taints: Iterable[Any], spec: PodSpec) -> bool:
    """True if a pod may be scheduled despite these taints; preferences keep no pod away."""
    return all(
        taint.effect == "PreferNoSchedule" or any(_tolerates(entry, taint) for entry in spec.tolerations)
        for taint in taints
    )


def _tolerates(toleration: Any, taint: Any) -> bool:
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    if toleration.operator in ("Gt", "Lt") and _IS_INTEGER(toleration.value) and _IS_INTEGER(taint.value):
        above = int(taint.value) - int(toleration.value)
        return above > 0 if toleration.operator == "Gt" else above < 0
    equal = toleration.key and toleration.operator in ("", "Equal") and toleration.value == taint.value
    return toleration.operator == "Exists" or bool(equal)


_IS_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}").fullmatch


def suits(spec: PodSpec, node: Labels) -> bool:
    """True if node selector and required node affinity hold on a node with these labels."""
    node = stable(node)
    if any(node.get(_OLDER.get(key, key)) != value for key, value in spec.node_selector.items()):
        return False
    affinity = spec.affinity.node_affinity.required if spec.affinity and spec.affinity.node_affinity else None
    if affinity is None:
        return True
    terms = [term for term in affinity.node_selector_terms if term.match_expressions or term.match_fields]
    named = [all(node.get(HOST) in field.values for field in term.match_fields) for term in terms]
    chosen = [term.match_expressions for term, here in zip(terms, named, strict=True) if here]
    return meets(node, chosen)


def stable(labels: Labels) -> dict[str, str]:
    """Labels under their stable keys."""
    return {**{_OLDER.get(key, key): value for key, value in labels.items()}, **labels}


def meets(node: Labels, terms: Iterable[Iterable[Any]]) -> bool:
    """True if all expressions of some term hold."""
    return any(
        all(holds(node.get(_OLDER.get(rule.key, rule.key)), rule.operator, rule.values) for rule in term)
        for term in terms
    )


def holds(value: str | None, operator: str, values: tuple[str, ...]) -> bool:
    """True if a label's value, None when it is missing, satisfies one expression."""
    match operator:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    number = int(value) if value is not None and re.fullmatch(r"-?[0-9]+", value) else None
    if number is None:
        return False
    bound = int(values[0])
    return {"Gt": number > bound, "Lt": number < bound, "Gte": number >= bound, "Lte": number <= bound}[operator]


def volumes_allow(view: ClusterView, pod: Pod, node: Labels) -> bool:
    """True if every volume of a pod may be used on a node with these labels."""
    node = stable(node)
    return all(
        not alternatives or any(all(node.get(key) in values for key, values in term) for term in alternatives)
        for alternatives in (_alternatives(view, pod, name, template) for name, template in _volume_claims(pod))
    )


def _volume_claims(pod: Pod) -> Iterator[tuple[str, Any]]:
    """The claims of a pod by name, with the template of those made for it."""
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            yield volume.persistent_volume_claim.claim_name, None
        elif volume.ephemeral is not None:
            yield f"{pod.metadata.name}-{volume.name}", volume.ephemeral.volume_claim_template.get("spec", {})


def _alternatives(view: ClusterView, pod: Pod, name: str, template: Any) -> list[list[tuple[str, tuple[str, ...]]]]:
    """OR'd terms of AND'd (label, values); none when the volume may be used anywhere."""
    volume, storage_class = _source(view, pod, name, template)
    if volume is not None:
        required = volume.spec.node_affinity.required if volume.spec.node_affinity is not None else None
        local = volume.spec.local is not None or volume.spec.host_path is not None
        return [
            [
                (_OLDER.get(rule.key, rule.key), rule.values)
                for rule in term.match_expressions
                if rule.operator == "In" and not (local and rule.key == HOST)
            ]
            for term in (required.node_selector_terms if required is not None else ())
        ]
    if storage_class is None:
        return []
    return [
        [(_OLDER.get(rule.key, rule.key), rule.values) for rule in term.match_label_expressions]
        for term in storage_class.allowed_topologies
    ]


def _source(view: ClusterView, pod: Pod, name: str, template: Any) -> tuple[Any, Any]:
    """The volume that a claim is bound to, or the class that it will be provisioned by."""
    namespace = pod.metadata.namespace or "default"
    known = [
        claim
        for claim in view.persistent_volume_claims
        if claim.metadata.name == name and (claim.metadata.namespace or "default") == namespace
    ]
    bound = known[0].spec.volume_name if known else ""
    volume = next((item for item in view.persistent_volumes if item.metadata.name == bound), None) if bound else None
    wanted = known[0].spec.storage_class_name if known else (template or {}).get("storageClassName")
    default = [
        item
        for item in view.storage_classes
        if any(key.endswith("is-default-class") and value == "true" for key, value in item.metadata.annotations.items())
    ]
    default.sort(key=lambda item: item.metadata.creation_timestamp or "", reverse=True)
    name = wanted if wanted is not None else (default[0].metadata.name if default else "")
    return volume, next((item for item in view.storage_classes if item.metadata.name == name), None)


def attached(view: ClusterView, pods: Iterable[Pod]) -> dict[str, set[str]]:
    """The claims that these pods attach to their node, by driver."""
    found: dict[str, set[str]] = {}
    for pod in pods:
        for name, template in _volume_claims(pod):
            volume, storage_class = _source(view, pod, name, template)
            driver = ""
            if volume is not None:
                legacy = EBS if volume.spec.aws_elastic_block_store is not None else ""
                driver = volume.spec.csi.driver if volume.spec.csi is not None else legacy
            elif storage_class is not None:
                driver = storage_class.provisioner.replace("kubernetes.io/aws-ebs", EBS)
            if driver:
                found.setdefault(driver, set()).add(f"{pod.metadata.namespace or 'default'}/{name}")
    return found


def combinations(labels: Mapping[str, Iterable[str]]) -> Iterator[dict[str, str]]:
    """Every choice of one value per label."""
    for choice in product(*labels.values()):
        yield dict(zip(labels, choice, strict=True))
