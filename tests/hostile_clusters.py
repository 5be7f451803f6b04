"""Clusters whose objects are as large, and as unlike each other, as an API server stores them: one seed is one cluster.

Whoever may create pods chooses how many elements each list and map of a pod has, and every name in them. Each public
function of `_Pods` is a dimension: it writes that many elements into a pod. A seed draws a few dimensions, how many
pods are hostile, and how many elements each has, so that all of them together have `ELEMENTS`. A pod stays below the
1.5 MiB that an API server stores. Objects are JSON, page by page, as an API server sends them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec

from shiplap.cluster.client import KubernetesClient
from shiplap.cluster.transport import Transport
from shiplap.errors import AnswerTooLarge
from shiplap.manifests.custom_resources import Manifests, NodePool
from shiplap.scheduling.model.snapshot import ClusterView, NodeClassCatalog, SchedulingSettings, Snapshot
from tests.builders.nodes import node_object
from tests.builders.pods import WAITING
from tests.builders.pools import pool, rule
from tests.conformance import given as case
from tests.conformance.catalogues import Z1, Z2, Z3, incrementing_types

Object = dict[str, Any]

ELEMENTS = 400_000
"""Elements of one dimension in a whole cluster: some 12 to 40 MB of JSON."""

MOST_OF_A_POD = 20_000
"""Elements of one pod: 1.4 MiB where an element has 70 bytes."""

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
ZONES = (Z1, Z2, Z3)
_REQUIRED, _PREFERRED = (f"{word}DuringSchedulingIgnoredDuringExecution" for word in ("required", "preferred"))
_ANY_BYTES = 16 * 2**20


class _Names:
    """Names of one object; `own` ones are no other object's."""

    def __init__(self, number: int, *, own: bool) -> None:
        self._mark = f"-{number}" if own else ""

    def of(self, kind: str, many: int) -> list[str]:
        return [f"{kind}{self._mark}-{place}" for place in range(many)]


def _selector(names: Sequence[str], *, by_values: bool) -> Object:
    """A label selector with as many elements as there are names."""
    if by_values:
        return {"matchExpressions": [{"key": "app", "operator": "In", "values": list(names)}]}
    return {"matchLabels": dict.fromkeys(names, "x")}


class _Pods:
    """The dimensions of pods: each method adds `many` elements to a pod."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def extended_resources(self, pod: Object, names: _Names, many: int) -> None:
        field = self._chance.choice(("requests", "limits"))
        pod["spec"]["containers"][0]["resources"].setdefault(field, {}).update(
            dict.fromkeys([f"example.com/{name}" for name in names.of("r", many)], "1")
        )

    def annotations(self, pod: Object, names: _Names, many: int) -> None:
        most = min(many, 8_000)  # API servers take 256 KiB of annotations
        pod["metadata"]["annotations"] = dict.fromkeys(names.of("note", most), "some text of a note")

    def labels(self, pod: Object, names: _Names, many: int) -> None:
        pod["metadata"]["labels"].update(dict.fromkeys(names.of("label", many), "x"))

    def owners(self, pod: Object, names: _Names, many: int) -> None:
        pod["metadata"]["ownerReferences"] = [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": name} for name in names.of("o", many)
        ]

    def finalizers(self, pod: Object, names: _Names, many: int) -> None:
        pod["metadata"]["finalizers"] = [f"example.com/{name}" for name in names.of("f", many)]

    def managed_fields(self, pod: Object, names: _Names, many: int) -> None:
        fields: Object = {f"f:{name}": {} for name in names.of("field", many)}
        pod["metadata"]["managedFields"] = [{"manager": "x", "operation": "Update", "fieldsV1": fields}]

    def environment(self, pod: Object, names: _Names, many: int) -> None:
        pod["spec"]["containers"][0]["env"] = [{"name": name, "value": "x" * 20} for name in names.of("E", many)]

    def tolerations(self, pod: Object, names: _Names, many: int) -> None:
        pod["spec"]["tolerations"] = [{"key": name, "operator": "Exists"} for name in names.of("t", many)]

    def node_selector(self, pod: Object, names: _Names, many: int) -> None:
        pod["spec"]["nodeSelector"] = dict.fromkeys(names.of("example.com/s", many), "x")

    def node_terms(self, pod: Object, names: _Names, many: int) -> None:
        rules = self._rules(names, many)
        size = self._chance.choice((1, 3, 50))
        terms = [{"matchExpressions": rules[at : at + size]} for at in range(0, len(rules), size)]
        _affinity(pod, "nodeAffinity")[_REQUIRED] = {"nodeSelectorTerms": terms}

    def preferred_nodes(self, pod: Object, names: _Names, many: int) -> None:
        _affinity(pod, "nodeAffinity")[_PREFERRED] = [
            {"weight": 1 + place % 100, "preference": {"matchExpressions": [rule]}}
            for place, rule in enumerate(self._rules(names, many))
        ]

    def node_values(self, pod: Object, names: _Names, many: int) -> None:
        operator = self._chance.choice(("In", "NotIn"))
        rule = {"key": ZONE, "operator": operator, "values": [*ZONES[: operator == "In"], *names.of("v", many)]}
        _affinity(pod, "nodeAffinity")[_REQUIRED] = {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}

    def _rules(self, names: _Names, many: int) -> list[Object]:
        kind = self._chance.choice(("key", "value", "number"))
        if kind == "key":
            return [{"key": name, "operator": "DoesNotExist"} for name in names.of("example.com/k", many)]
        if kind == "value":
            return [{"key": ZONE, "operator": "NotIn", "values": [name]} for name in names.of("v", many)]
        return [{"key": "integer", "operator": "Gt", "values": [str(place % 30)]} for place in range(many)]

    def spreads(self, pod: Object, names: _Names, many: int) -> None:
        how = self._chance.choice(("DoNotSchedule", "ScheduleAnyway"))
        keys = [ZONE, HOST, *names.of("example.com/key", many)][:many]
        pod["spec"]["topologySpreadConstraints"] = [
            {"topologyKey": key, "maxSkew": 1, "whenUnsatisfiable": how, "labelSelector": {"matchLabels": {"app": "a"}}}
            for key in keys
        ]

    def spread_selector(self, pod: Object, names: _Names, many: int) -> None:
        pod["spec"]["topologySpreadConstraints"] = [
            {
                "topologyKey": ZONE,
                "maxSkew": 1,
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": _selector(names.of("s", many), by_values=self._chance.random() < 0.5),
            }
        ]

    def spread_label_keys(self, pod: Object, names: _Names, many: int) -> None:
        keys = names.of("key", many // 2)
        pod["metadata"]["labels"].update(dict.fromkeys(keys, "x"))
        spread = {"topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "matchLabelKeys": keys}
        pod["spec"]["topologySpreadConstraints"] = [{**spread, "labelSelector": {"matchLabels": {"app": "a"}}}]

    def pod_terms(self, pod: Object, names: _Names, many: int) -> None:
        side = self._chance.choice(("podAffinity", "podAntiAffinity"))
        how = self._chance.choice((_REQUIRED, _PREFERRED))
        key = self._chance.choice((ZONE, HOST, ""))
        terms: list[Object] = [
            {"topologyKey": key or name, "labelSelector": {"matchLabels": {"app": name}}}
            for name in names.of("a", many)
        ]
        if how == _PREFERRED:
            terms = [{"weight": 1 + at % 100, "podAffinityTerm": term} for at, term in enumerate(terms)]
        _affinity(pod, side)[how] = terms

    def pod_term_selector(self, pod: Object, names: _Names, many: int) -> None:
        selector = _selector(names.of("s", many), by_values=self._chance.random() < 0.5)
        _affinity(pod, "podAntiAffinity")[_REQUIRED] = [{"topologyKey": HOST, "labelSelector": selector}]

    def namespaces(self, pod: Object, names: _Names, many: int) -> None:
        _affinity(pod, "podAntiAffinity")[_REQUIRED] = [
            {
                "topologyKey": HOST,
                "labelSelector": {"matchLabels": {"app": "a"}},
                "namespaces": names.of("team", many // 2),
                "namespaceSelector": _selector(names.of("s", many // 2), by_values=self._chance.random() < 0.5),
            }
        ]

    def volumes(self, pod: Object, names: _Names, many: int) -> None:
        pod["spec"]["volumes"] = [
            {"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names.of("claim", many)
        ]

    def ephemeral_volumes(self, pod: Object, names: _Names, many: int) -> None:
        template = {"spec": {"storageClassName": "fast", "accessModes": ["ReadWriteOnce"]}}
        pod["spec"]["volumes"] = [
            {"name": name, "ephemeral": {"volumeClaimTemplate": template}} for name in names.of("v", many)
        ]

    def containers(self, pod: Object, names: _Names, many: int) -> None:
        field = self._chance.choice(("containers", "initContainers"))
        policy = {"restartPolicy": "Always"} if field == "initContainers" and self._chance.random() < 0.5 else {}
        pod["spec"].setdefault(field, []).extend(
            {"name": name, "resources": {"requests": {"memory": f"{at % 50}Ki"}}, **policy}
            for at, name in enumerate(names.of("c", many))
        )

    def container_resources(self, pod: Object, names: _Names, many: int) -> None:
        """Half as many containers as names: the sum of their requests is what costs."""
        size = max(int(many**0.5), 1)
        requests = dict.fromkeys([f"example.com/{name}" for name in names.of("r", size)], "1")
        pod["spec"]["initContainers"] = [
            {"name": name, "restartPolicy": "Always", "resources": {"requests": requests}}
            for name in names.of("c", size)
        ]

    def host_ports(self, pod: Object, names: _Names, many: int) -> None:
        del names
        pod["spec"]["containers"][0]["ports"] = [
            {"containerPort": 1 + at % 65_535, "hostPort": 1 + at % 65_535, "hostIP": f"10.0.{at % 250}.1"}
            for at in range(many)
        ]

    def conditions(self, pod: Object, names: _Names, many: int) -> None:
        pod["status"]["conditions"] += [{"type": name, "status": "True"} for name in names.of("C", many)]

    def container_statuses(self, pod: Object, names: _Names, many: int) -> None:
        pod["status"]["containerStatuses"] = [
            {"name": name, "allocatedResources": {"cpu": "1"}} for name in names.of("c", many)
        ]

    def scheduling_gates(self, pod: Object, names: _Names, many: int) -> None:
        pod["spec"]["schedulingGates"] = [{"name": name} for name in names.of("gate", many)]

    def long_values(self, pod: Object, names: _Names, many: int) -> None:
        """Quantities and names of one pod that are long by themselves, as only a hostile API server sends them."""
        text = "1" * min(many * 10, 200_000)
        place = self._chance.choice(("request", "name", "time", "label", "resource", "owner"))
        if place == "request":
            pod["spec"]["containers"][0]["resources"]["requests"]["memory"] = text
        elif place == "name":
            pod["metadata"]["name"] += text
        elif place == "time":
            pod["metadata"]["creationTimestamp"] = text
        elif place == "label":
            pod["metadata"]["labels"]["app"] = text
        elif place == "resource":
            pod["spec"]["containers"][0]["resources"]["requests"][text] = "1"
        else:
            pod["metadata"]["ownerReferences"] = [{"kind": text, "name": text, "uid": text}]
        del names


def _affinity(pod: Object, side: str) -> Object:
    found: Object = pod["spec"].setdefault("affinity", {}).setdefault(side, {})
    return found


Dimension = Callable[[_Pods, Object, _Names, int], None]

DIMENSIONS: Mapping[str, Dimension] = {
    name: method for name, method in vars(_Pods).items() if callable(method) and not name.startswith("_")
}
"""By name."""


class HostileCluster(msgspec.Struct, frozen=True):
    """The items of each list by the end of its path, as JSON, and NodePools."""

    lists: Mapping[str, Sequence[bytes]]
    node_pools: tuple[NodePool, ...]
    drawn: tuple[str, ...] = ()


def drawn_cluster(seed: int, pods: int = 1000) -> HostileCluster:
    """The cluster of a seed."""
    chance = random.Random(f"hostile {seed}")  # noqa: S311 - repeatable chance
    dimensions = chance.sample(sorted(DIMENSIONS), chance.choice((1, 2, 2, 3, 5)))
    around = [name for name in _AROUND if chance.random() < 0.3]
    return cluster_of(chance, dimensions, around, pods, is_varied=True)


def cluster_of(
    chance: random.Random,
    dimensions: Sequence[str],
    around: Sequence[str],
    pods: int = 1000,
    hostile: int = 0,
    *,
    elements: int = 0,
    is_varied: bool = False,
) -> HostileCluster:
    """`pods` pods, a tenth of them bound, of which `hostile` (drawn if 0) have these dimensions, and what is around.

    `elements` of each dimension are in all of them together, by default `ELEMENTS` for a thousand pods. `is_varied`:
    how many there are is drawn as well, few as often as many; otherwise there are the most.
    """
    hostile = min(hostile or chance.choice((1, 10, 100, pods)), pods)
    most = min(max((elements or ELEMENTS * pods // 1000) // hostile, 1), MOST_OF_A_POD) // len(dimensions or "1")
    many = round(most ** chance.uniform(0.3, 1)) if is_varied else most
    own = chance.random() < 0.7
    writer = _Pods(chance)
    written = []
    for number in range(pods):
        pod = _plain_pod(number, bound=number % 10 == 9)
        if number < hostile:
            for name in dimensions:
                DIMENSIONS[name](writer, pod, _Names(number, own=own), max(many, 1))
        written.append(pod)
    nodes = [_ready_node(number) for number in range(20)]
    lists: dict[str, list[Object]] = {"nodes": nodes, "pods": written}
    pools = [pool("default", limits={})]
    for name in around:
        _AROUND[name](chance, lists, pools, pods)
    return HostileCluster(
        {kind: [msgspec.json.encode(item) for item in items] for kind, items in lists.items()},
        tuple(pools),
        (*dimensions, *around, f"{hostile} pods of {many}", "own names" if own else "names shared"),
    )


def _plain_pod(number: int, *, bound: bool) -> Object:
    status: Object = {"phase": "Running", "conditions": []} if bound else msgspec.json.decode(_WAITING)
    return {
        "metadata": {
            "name": f"p{number}",
            "namespace": "default",
            "uid": f"uid-{number}",
            "labels": {"app": f"a{number % 7}"},
        },
        "spec": {
            "containers": [{"name": "main", "resources": {"requests": {"cpu": "250m", "memory": "512Mi"}}}],
            **({"nodeName": f"n{number % 20}"} if bound else {}),
        },
        "status": status,
    }


_WAITING = msgspec.json.encode(WAITING)


def _ready_node(number: int) -> Object:
    name = f"n{number}"
    return node_object(name, "4", "16Gi", "110", zone=ZONES[number % 3], labels={HOST: name}, ready=True)


def _hostile_nodes(chance: random.Random, lists: dict[str, list[Object]], pools: list[NodePool], pods: int) -> None:
    many = chance.choice((10, 1000, 10_000)) * pods // 1000
    for number, node in enumerate(lists["nodes"]):
        names = _Names(number, own=chance.random() < 0.5)
        amounts = dict.fromkeys([f"example.com/{name}" for name in names.of("r", many)], "1")
        node["metadata"]["labels"] |= dict.fromkeys(names.of("label", many), "x")
        node["status"]["allocatable"] = {**node["status"]["allocatable"], **amounts}
        node["spec"]["taints"] = [
            {"key": name, "effect": "PreferNoSchedule"} for name in names.of("t", min(many, 1000))
        ]
    del pools


def _daemon_sets(chance: random.Random, lists: dict[str, list[Object]], pools: list[NodePool], pods: int) -> None:
    writer, names = _Pods(chance), sorted(set(DIMENSIONS) - {"conditions", "container_statuses"})
    found = lists.setdefault("daemonsets", [])
    number = chance.choice((1, 20, 200))
    for place in range(number):
        pod = _plain_pod(place, bound=False)
        if chance.random() < 0.5:
            many = ELEMENTS * pods // 1000 // number
            DIMENSIONS[chance.choice(names)](writer, pod, _Names(place, own=True), min(many, MOST_OF_A_POD))
        template = {"metadata": {"labels": pod["metadata"]["labels"]}, "spec": pod["spec"]}
        metadata = {"name": f"daemon-{place}", "namespace": "default", "uid": f"daemon-{place}"}
        found.append({"metadata": metadata, "spec": {"template": template}})
    del pools


def _budgets(chance: random.Random, lists: dict[str, list[Object]], pools: list[NodePool], pods: int) -> None:
    number = chance.choice((10, 1000)) * pods // 1000
    many = 20_000 * pods // 1000 // max(number, 1)
    lists["poddisruptionbudgets"] = [
        {
            "metadata": {"name": f"b{place}", "namespace": "default"},
            "spec": {
                "maxUnavailable": 1,
                "selector": {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["b"] * many}]},
            },
        }
        for place in range(number)
    ]
    del pools


def _namespaces(chance: random.Random, lists: dict[str, list[Object]], pools: list[NodePool], pods: int) -> None:
    many = chance.choice((0, 100))
    lists["namespaces"] = [
        {"metadata": {"name": f"team-{place}", "labels": dict.fromkeys(_Names(place, own=True).of("s", many), "x")}}
        for place in range(pods)
    ]
    del pools


def _many_pools(chance: random.Random, lists: dict[str, list[Object]], pools: list[NodePool], pods: int) -> None:
    del lists
    many = chance.choice((10, 1000, 5000)) * pods // 1000
    pools += [
        pool(
            f"pool-{number}",
            rule("integer", "NotIn", *(f"v{place}" for place in range(many))),
            limits={f"example.com/limit-{place}": "1" for place in range(many)},
            labels={f"example.com/label-{place}": "x" for place in range(min(many, 90))},
            taints=[{"key": f"t-{place}", "value": "x", "effect": "NoSchedule"} for place in range(many)],
        )
        for number in range(chance.choice((1, 10)))
    ]


def _running_pods(chance: random.Random, lists: dict[str, list[Object]], pools: list[NodePool], pods: int) -> None:
    """Pods on as many more nodes, which each keep pods away by terms of their own."""
    many, key = chance.choice((1, 10, 100)), chance.choice((ZONE, HOST))
    first = len(lists["nodes"])
    for number in range(first, first + pods):
        lists["nodes"].append(_ready_node(number))
        running = _plain_pod(number, bound=True)
        running["metadata"] |= {"name": f"r{number}", "namespace": "busy", "uid": f"uid-r{number}"}
        running["spec"]["nodeName"] = f"n{number}"
        _affinity(running, "podAntiAffinity")[_REQUIRED] = [
            {"topologyKey": key, "labelSelector": {"matchLabels": {"app": name}}}
            for name in _Names(number, own=True).of("a", many)
        ]
        lists["pods"].append(running)
    del pools


_AROUND = {
    "hostile nodes": _hostile_nodes,
    "daemon sets": _daemon_sets,
    "budgets": _budgets,
    "namespaces": _namespaces,
    "pools": _many_pools,
    "running pods": _running_pods,
}


class StoredLists:
    """Answers lists of an API server in pages, as `Transport` does; `sent` counts bytes, `asked` requests."""

    def __init__(self, lists: Mapping[str, Sequence[bytes]], most_bytes: int = _ANY_BYTES) -> None:
        self._lists = lists
        self.most_bytes = most_bytes
        self.sent = self.asked = 0

    def get(self, path: str, query: Mapping[str, str | int] | None = None) -> bytes:
        """A page. Raises AnswerTooLarge for one that has more than `most_bytes`."""
        given = query or {}
        items = list(self._chosen(path.rpartition("/")[2], str(given.get("fieldSelector", ""))))
        first = int(given.get("continue", 0) or 0)
        last = first + int(given.get("limit", 500))
        page = items[first:last]
        self.asked += 1
        if sum(map(len, page)) > self.most_bytes:
            raise AnswerTooLarge(f"{path}: too large")
        token = str(last) if last < len(items) else ""
        body = b'{"metadata":{"resourceVersion":"1","continue":"%s"},"items":[%s]}' % (token.encode(), b",".join(page))
        self.sent += len(body)
        return body

    def get_one(self, path: str, query: Mapping[str, str | int]) -> bytes:
        """A page of one object."""
        return self.get(path, query)

    def _chosen(self, kind: str, selector: str) -> Iterator[bytes]:
        for item in self._lists.get(kind, ()):
            if kind == "events":
                continue
            if kind != "pods" or ("spec.nodeName!=" in selector) == (b'"nodeName":"n' in item):
                yield item


def view_of(transport: StoredLists) -> ClusterView:
    """The cluster as a decision lists it."""
    client = KubernetesClient(cast("Transport", transport))
    view = client.view()
    return msgspec.structs.replace(view, pod_disruption_budgets=client.disruption_budgets())


def snapshot_of(cluster: HostileCluster, transport: StoredLists | None = None) -> Snapshot:
    """The decision about the cluster."""
    return Snapshot(
        cluster="hostile",
        now=case.NOW,
        view=view_of(transport or StoredLists(cluster.lists)),
        manifests=Manifests(node_pools=cluster.node_pools),
        catalogs=(NodeClassCatalog("default", incrementing_types(40)),),
        settings=SchedulingSettings(improve_s=0.1),
    )
