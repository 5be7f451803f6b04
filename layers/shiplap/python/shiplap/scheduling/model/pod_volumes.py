"""The demands of a pod's volumes on a node, and the number of volumes that existing nodes still take.

Most pods with claims are alike in this: only claims that several pods use keep their names, the others are counted.

Reads from storage objects what the volumes of each pod ask of a node, or why they cannot be used at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce

import msgspec

from shiplap.kubernetes import labels
from shiplap.kubernetes.names import namespaced_name
from shiplap.kubernetes.objects import TERMINAL_PHASES, Node, NodeSelectorTerm, Pod, Volume
from shiplap.kubernetes.quantity import parse_amount
from shiplap.kubernetes.related_objects import (
    BIND_COMPLETED,
    DEFAULT_CLASS,
    SELECTED_NODE,
    CSINode,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    StorageClass,
    is_claim,
)
from shiplap.kubernetes.requirements import Requirement, Requirements, contradiction, requirement
from shiplap.kubernetes.selectors import matches
from shiplap.kubernetes.timestamps import epoch
from shiplap.scheduling.model.planned_pods import STARTING_S
from shiplap.scheduling.model.resources import PLENTY
from shiplap.scheduling.model.snapshot import ClusterView

ANYWHERE: tuple[Requirements, ...] = (Requirements(),)
"""The alternatives of volumes that may be used on any node."""

ATTACHED = "volumes of "
"""With a driver's name: stands on the axis like a resource, for nodes that are yet to be launched."""

Attachment = tuple[str, str]
"""A volume as a node's driver counts it: driver, and namespace/name of the claim."""


class SharedPlace(msgspec.Struct, frozen=True, order=True):
    """Pods that use one volume which does not exist yet: all go where the first has the same value of the label `key`.

    `claim` is the namespace/name of the first claim, by name, of all that pods join in this way.
    """

    key: str
    claim: str


class VolumeNeeds(msgspec.Struct, frozen=True):
    """The demands of a pod's volumes on a node.

    One of the `alternatives` must be met, and there is none when the volumes contradict each other. `private` counts
    volumes by driver that no other pod uses; `shared` ones are attached once, however many pods on the node use them.
    `together` are the places that the pod has to share with other pods.
    """

    alternatives: tuple[Requirements, ...] = ANYWHERE
    private: tuple[tuple[str, int], ...] = ()
    shared: frozenset[Attachment] = frozenset()
    together: tuple[SharedPlace, ...] = ()

    @property
    def attaches(self) -> bool:
        """True if any driver has something to attach."""
        return bool(self.private or self.shared)


NO_VOLUMES = VolumeNeeds()


class Attachments(msgspec.Struct):
    """The volumes on one node: how many each driver allows, which claims are there and how many that makes.

    A driver without an entry in `limits` sets none, or none that is known.
    """

    limits: Mapping[str, int]
    claims: set[Attachment]
    counts: Counter[str]

    def copy(self) -> Attachments:
        """The same node, filled independently."""
        return Attachments(self.limits, set(self.claims), self.counts.copy())

    def room(self, needs: VolumeNeeds) -> int:
        """Return how many pods with these volumes the node still takes."""
        coming = Counter(driver for driver, _ in needs.shared - self.claims)
        many = PLENTY
        for driver, number in sorted((coming + Counter(dict(needs.private))).items()):
            if driver not in self.limits:
                continue
            left = self.limits[driver] - self.counts[driver] - coming[driver]
            each = number - coming[driver]
            if left < 0:
                return 0
            if each:
                many = min(many, left // each)
        return many

    def add(self, needs: VolumeNeeds, pods: int) -> None:
        """Attach the volumes of this many pods."""
        fresh = needs.shared - self.claims
        self.claims |= fresh
        self.counts.update(driver for driver, _ in fresh)
        for driver, each in needs.private:
            self.counts[driver] += each * pods


UNSUPPORTED_PROVISIONERS = frozenset({"ebs.csi.eks.amazonaws.com"})
"""Drivers that run only on nodes of EKS Auto Mode."""

UNSUPPORTED_TOPOLOGY_KEYS = frozenset({"eks.amazonaws.com/compute-type"})
"""Labels that only nodes of EKS Auto Mode and Fargate have."""

_MIGRATED = {"kubernetes.io/aws-ebs": "ebs.csi.aws.com"}
"""In-tree provisioners and the CSI drivers that do their work."""

_NOT_MADE = frozenset({"", "kubernetes.io/no-provisioner"})
"""What classes have as provisioner whose volumes are made by hand, or by a DaemonSet on a node that has joined."""

_ONE_POD = "ReadWriteOncePod"

_encode = msgspec.msgpack.Encoder().encode


class UnusableVolume(ValueError):
    """A pod's volumes cannot be used as they are, and no node would change that; the text says why."""


class PodVolumes:
    """The storage objects of a view by name, and which claims several of its pods use.

    Thousands of volumes say one of a few things, so alternatives are read and combined once per distinct source.
    """

    def __init__(self, view: ClusterView) -> None:
        self._claims = {
            namespaced_name(item.metadata.namespace, item.metadata.name): item for item in view.persistent_volume_claims
        }
        self._volumes = {volume.metadata.name: volume for volume in view.persistent_volumes}
        self._classes = {storage_class.metadata.name: storage_class for storage_class in view.storage_classes}
        self._default = _default_class(view.storage_classes)
        self._limits = {csi_node.metadata.name: _limits(csi_node) for csi_node in view.csi_nodes}
        self.by_type = _limits_by_type(view.nodes, self._limits)
        self._registered = {
            item.metadata.name: {driver.name for driver in item.spec.drivers or ()} for item in view.csi_nodes
        }
        self._required = sorted(
            item.metadata.name for item in view.csi_drivers if item.spec.prevent_pod_scheduling_if_missing
        )
        self._nodes = {node.metadata.name: node for node in view.nodes}
        self._made: dict[str, list[PersistentVolume]] = {}
        for volume in view.persistent_volumes:
            self._made.setdefault(volume.spec.storage_class_name, []).append(volume)
        users: dict[str, list[Pod]] = {}
        for pod in view.pods:
            for key in {claim_key(pod, volume) for volume in _claimed(pod)}:
                users.setdefault(key, []).append(pod)
        self._shared = frozenset(key for key, pods in users.items() if len(pods) > 1)
        self._holders = {
            key: min(pods, key=_turn)
            for key in self._shared
            if key in self._claims
            and _ONE_POD in self._claims[key].spec.access_modes
            and (pods := [pod for pod in users[key] if _may_hold(pod)])
        }
        self._alternatives: list[Sequence[Requirements]] = []
        self._places: dict[str | bytes, int] = {}
        self._needs: dict[object, VolumeNeeds] = {}
        self._joined = self._joined_claims(users)

    def _joined_claims(self, users: Mapping[str, Sequence[Pod]]) -> dict[str, SharedPlace]:
        """The place of each shared claim without a volume. Claims that a pod uses together have one place."""
        keys = {name: key for name in sorted(self._shared) if (key := self._decided_by_first(name))}
        first = {name: name for name in keys}

        def root(name: str) -> str:
            while first[name] != name:
                first[name] = name = first[first[name]]
            return name

        for name, key in keys.items():
            for pod in users[name]:
                for other in sorted({claim_key(pod, volume) for volume in _claimed(pod)}):
                    if keys.get(other) == key:
                        one, another = sorted((root(name), root(other)))
                        first[another] = one
        return {name: SharedPlace(key, root(name)) for name, key in keys.items()}

    def _decided_by_first(self, name: str) -> str:
        """The label of a node by which the first pod with an unbound claim decides where its volume is; or none.

        Volumes of EBS are in one zone, local ones on one node. Of other drivers, and of volumes made by hand, the
        topologies that classes and volumes name say how far a volume reaches.
        """
        claim = self._claims.get(name)
        if claim is None or claim.spec.volume_name:
            return ""
        try:
            place = self._place(claim, name)
        except UnusableVolume:
            return ""  # `needs` says why
        provisioner = self._classes[self._class_name(claim)].provisioner
        if _MIGRATED.get(provisioner, provisioner) in _MIGRATED.values():
            return labels.ZONE
        alternatives = self._alternatives[place]
        if provisioner in _NOT_MADE and self._comes_with_node(self._class_name(claim)):
            return labels.HOSTNAME
        return next((key for key in (labels.HOSTNAME, labels.ZONE) if all(key in entry for entry in alternatives)), "")

    @property
    def joins_pods(self) -> bool:
        """True if any pods share a volume that does not exist yet."""
        return bool(self._joined)

    def together(self, pod: Pod) -> tuple[SharedPlace, ...]:
        """The places that a pod has to share with the other pods of its volumes."""
        if not self._joined:
            return ()
        claims = (claim_key(pod, volume) for volume in _claimed(pod))
        return tuple(sorted({self._joined[claim] for claim in claims if claim in self._joined}))

    def needs(self, pod: Pod) -> VolumeNeeds:
        """Return the demands of a pod's volumes on a node. Raises UnusableVolume."""
        places: list[int] = []
        attachments: set[Attachment] = set()
        for volume in _claimed(pod):
            key = claim_key(pod, volume)
            claim = self._claim(pod, volume, key)
            places.append(self._place(claim, key))
            driver = self._driver(claim)
            if driver in UNSUPPORTED_PROVISIONERS:
                raise UnusableVolume(f'persistentvolumeclaim "{key}": provisioner {driver} is not supported')
            if driver:
                attachments.add((driver, key))
        private = tuple(sorted(Counter(driver for driver, key in attachments if key not in self._shared).items()))
        shared = frozenset(item for item in attachments if item[1] in self._shared)
        together = self.together(pod)
        known = self._needs.get((*places, private, shared, together))
        if known is None:
            alternatives = reduce(_both, (self._alternatives[place] for place in places), ANYWHERE)
            known = VolumeNeeds(alternatives, private, shared, together)
            self._needs[(*places, private, shared, together)] = known
        return known

    def of_claims(self, pod: Pod) -> Iterator[tuple[str, str, Sequence[Requirements]]]:
        """Yield the namespace/name of each claim, its PersistentVolume and alternatives. Raises UnusableVolume."""
        for volume in _claimed(pod):
            key = claim_key(pod, volume)
            claim = self._claim(pod, volume, key)
            yield key, claim.spec.volume_name, self._alternatives[self._place(claim, key)]

    def attached(self, node: str, pods: Iterable[Pod], instance_type: str = "", now: float = 0.0) -> Attachments | None:
        """The volumes on a node with these pods; None when its drivers set no limits, or none are known yet.

        Drivers that have not registered on the node are expected to allow what they allow on others of its type. But
        kube-scheduler waits for those that demand it: a node that still lacks one takes no volumes of it.
        """
        limits = {**self.by_type.get(instance_type, {}), **self._limits.get(node, {}), **self._missing(node, now)}
        if not limits:
            return None
        claims: set[Attachment] = set()
        for pod in pods:
            for volume in _claimed(pod):
                key = claim_key(pod, volume)
                claim = self._claims.get(key)
                driver = self._driver(claim) if claim is not None else ""
                if driver:
                    claims.add((driver, key))
        return Attachments(limits, claims, Counter(driver for driver, _ in claims))

    def _missing(self, name: str, now: float) -> dict[str, int]:
        """No volumes of the drivers without which kube-scheduler puts no pods on a node, and that it will not get."""
        node = self._nodes.get(name)
        born = node.metadata.creation_timestamp if node is not None else ""
        if not self._required or not born or now - epoch(born) < STARTING_S:
            return {}
        return dict.fromkeys(set(self._required) - self._registered.get(name, set()), 0)

    def _claim(self, pod: Pod, volume: Volume, key: str) -> PersistentVolumeClaim:
        """The claim behind a volume; one that has still to be made for the pod is read from its template."""
        claim = self._claims.get(key)
        if claim is None:
            if volume.ephemeral is None:
                raise UnusableVolume(f'persistentvolumeclaim "{key}" not found')
            try:
                spec = msgspec.convert(
                    volume.ephemeral.volume_claim_template.get("spec", {}), PersistentVolumeClaimSpec
                )
            except msgspec.ValidationError as error:
                raise UnusableVolume(f"volume {volume.name}: malformed volumeClaimTemplate: {error}") from error
            return PersistentVolumeClaim(spec=spec)
        if claim.metadata.deletion_timestamp:
            raise UnusableVolume(f'persistentvolumeclaim "{key}" is being deleted')
        if claim.status.phase == "Lost":
            lost = claim.spec.volume_name
            raise UnusableVolume(f'persistentvolumeclaim "{key}" is bound to non-existent persistentvolume "{lost}"')
        if volume.ephemeral is not None and not _made_for(claim, pod):
            raise UnusableVolume(f'persistentvolumeclaim "{key}" was not created for the pod')
        holder = self._holders.get(key, pod)
        if holder.key != pod.key:
            raise UnusableVolume(f'persistentvolumeclaim "{key}" is {_ONE_POD}: it waits for pod {holder.key} to end')
        return claim

    def _place(self, claim: PersistentVolumeClaim, key: str) -> int:
        """Return the index of a claim's alternatives: its volume's node affinity, or its class's allowed topologies."""
        if not claim.spec.volume_name:
            storage_class = self._class_to_bind(claim, key)
            name = storage_class.metadata.name
            selected = self._nodes.get(claim.metadata.annotations.get(SELECTED_NODE, ""))
            if selected is not None and storage_class.provisioner not in _NOT_MADE:
                return self._remember(_encode((SELECTED_NODE, selected.metadata.name)), lambda: _only_on(selected))
            if storage_class.provisioner in _NOT_MADE and not self._comes_with_node(name):
                return self._place_of_made(claim, key, self._made[name])
            return self._remember(name, lambda: _topologies(storage_class, key))
        volume = self._bound_volume(claim, key)
        source = _encode((volume.spec.node_affinity, _stays_behind(volume)))
        return self._remember(source, lambda: _node_affinity(volume))

    def _comes_with_node(self, storage_class: str) -> bool:
        """True for a class that makes no volumes and has none, or local ones: they are expected to come with a node."""
        made = self._made.get(storage_class, ())
        return not made or any(map(_stays_behind, made))

    def _place_of_made(self, claim: PersistentVolumeClaim, key: str, made: Sequence[PersistentVolume]) -> int:
        """Return the index of the node affinities of volumes that a claim may be bound to: nothing makes one."""
        kept = [volume for volume in made if _kept_for(volume, claim)]
        free = kept or [volume for volume in made if _is_available(volume, claim)]
        if not free:
            name = made[0].spec.storage_class_name
            raise UnusableVolume(
                f'persistentvolumeclaim "{key}" is unbound, storageclass "{name}" makes no volumes, and none of its '
                f"{len(made)} volumes is available and large enough"
            )
        places = [_node_affinity(volume) or ANYWHERE for volume in free]
        alternatives = ANYWHERE if ANYWHERE in places else [entry for place in places for entry in place]
        return self._remember(_encode([volume.metadata.name for volume in free]), lambda: alternatives)

    def _remember(self, source: str | bytes, read: Callable[[], Sequence[Requirements]]) -> int:
        place = self._places.get(source)
        if place is None:
            self._alternatives.append(read() or ANYWHERE)
            place = self._places[source] = len(self._alternatives) - 1
        return place

    def _bound_volume(self, claim: PersistentVolumeClaim, key: str) -> PersistentVolume:
        name = claim.spec.volume_name
        volume = self._volumes.get(name)
        if volume is None:
            raise UnusableVolume(f'persistentvolumeclaim "{key}": persistentvolume "{name}" not found')
        if volume.metadata.deletion_timestamp:
            raise UnusableVolume(f'persistentvolumeclaim "{key}": persistentvolume "{name}" is being deleted')
        if BIND_COMPLETED not in claim.metadata.annotations:
            raise UnusableVolume(f'persistentvolumeclaim "{key}" is not bound yet: no annotation {BIND_COMPLETED}')
        return volume

    def _class_to_bind(self, claim: PersistentVolumeClaim, key: str) -> StorageClass:
        """The class that an unbound claim gets its volume from, once there is a node."""
        name = self._class_name(claim)
        if not name:
            raise UnusableVolume(f'unbound persistentvolumeclaim "{key}" has no storage class')
        storage_class = self._classes.get(name)
        if storage_class is None:
            raise UnusableVolume(f'persistentvolumeclaim "{key}": storageclass "{name}" not found')
        if storage_class.volume_binding_mode != "WaitForFirstConsumer":
            raise UnusableVolume(
                f'persistentvolumeclaim "{key}" is unbound, and storageclass "{name}" binds immediately: '
                "it waits for the volume controller"
            )
        return storage_class

    def _class_name(self, claim: PersistentVolumeClaim) -> str:
        name = claim.spec.storage_class_name
        return self._default if name is None else name

    def _driver(self, claim: PersistentVolumeClaim) -> str:
        """The CSI driver that attaches a claim's volume; empty when none does or it is not known."""
        if claim.spec.volume_name:
            volume = self._volumes.get(claim.spec.volume_name)
            if volume is None:
                return ""
            if volume.spec.csi is not None:
                return volume.spec.csi.driver
            return _MIGRATED["kubernetes.io/aws-ebs"] if volume.spec.aws_elastic_block_store is not None else ""
        storage_class = self._classes.get(self._class_name(claim))
        return _MIGRATED.get(storage_class.provisioner, storage_class.provisioner) if storage_class is not None else ""


def _claimed(pod: Pod) -> Iterator[Volume]:
    return (volume for volume in pod.spec.volumes if is_claim(volume))


def claim_key(pod: Pod, volume: Volume) -> str:
    """Return the namespace/name of the claim of a volume; one made for the pod is named after pod and volume."""
    named = volume.persistent_volume_claim
    name = named.claim_name if named is not None else f"{pod.metadata.name}-{volume.name}"
    return namespaced_name(pod.metadata.namespace, name)


def _made_for(claim: PersistentVolumeClaim, pod: Pod) -> bool:
    """True if the pod owns a claim with the name of a claim made for it, as far as uids show."""
    owners = [owner.uid for owner in claim.metadata.owner_references if owner.controller]
    return not pod.metadata.uid or pod.metadata.uid in owners


def _turn(pod: Pod) -> tuple[bool, int, str, str]:
    """The order in which pods get a claim that allows one: who is on a node has it; kube-scheduler asks by priority."""
    return not pod.spec.node_name, -pod.spec.priority, pod.metadata.creation_timestamp or "", pod.key


def _may_hold(pod: Pod) -> bool:
    """True if a pod has its claims, or will get them before others: not a pod that has ended or may not start yet."""
    if pod.status.phase in TERMINAL_PHASES:
        return False
    return bool(pod.spec.node_name) or not (pod.spec.scheduling_gates or pod.metadata.deletion_timestamp)


def _stays_behind(volume: PersistentVolume) -> bool:
    """True if a volume is a part of its node."""
    return volume.spec.local is not None or volume.spec.host_path is not None


def _kept_for(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """True if a volume's `claimRef` names this claim, and the volume is large enough for it."""
    wanted, own = volume.spec.claim_ref, claim.metadata
    return (
        wanted is not None
        and (wanted.namespace, wanted.name) == (own.namespace, own.name)
        and wanted.uid in ("", own.uid)
        and _is_large_enough(volume, claim)
    )


def _is_available(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """True if kube-scheduler may bind a claim to a volume, as in FindMatchingVolume of its component-helpers."""
    selector = claim.spec.selector
    return (
        volume.spec.claim_ref is None
        and volume.status.phase == "Available"
        and set(claim.spec.access_modes) <= set(volume.spec.access_modes)
        and (selector is None or matches(selector, volume.metadata.labels))
        and _is_large_enough(volume, claim)
    )


def _is_large_enough(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """True if a volume holds what a claim requests, in the mode that the claim asks for, and is not being deleted."""
    if volume.metadata.deletion_timestamp or volume.spec.volume_mode != claim.spec.volume_mode:
        return False
    try:
        there = parse_amount("storage", volume.spec.capacity.get("storage", "0"))
        return there >= parse_amount("storage", claim.spec.resources.requests.get("storage", "0"))
    except ValueError as error:
        raise UnusableVolume(f'persistentvolume "{volume.metadata.name}": {error}') from error


def _default_class(classes: Iterable[StorageClass]) -> str:
    """The newest class marked as default, the first by name among equally old ones; empty when there is none."""
    marked = [item for item in classes if any(item.metadata.annotations.get(key) == "true" for key in DEFAULT_CLASS)]
    marked.sort(key=lambda storage_class: storage_class.metadata.name)
    return max(marked, key=lambda item: item.metadata.creation_timestamp or "").metadata.name if marked else ""


def _limits(node: CSINode) -> dict[str, int]:
    found = ((driver.name, driver.allocatable) for driver in node.spec.drivers or ())
    return {name: limit.count for name, limit in found if limit is not None and limit.count is not None}


def _limits_by_type(nodes: Iterable[Node], limits: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    """The least each driver allows on the nodes of an instance type, by type and driver."""
    least: dict[str, dict[str, int]] = {}
    for node in nodes:
        known = least.setdefault(node.metadata.labels.get(labels.INSTANCE_TYPE, ""), {})
        for driver, count in limits.get(node.metadata.name, {}).items():
            known[driver] = min(count, known.get(driver, count))
    least.pop("", None)
    return least


def _only_on(node: Node) -> list[Requirements]:
    """The node for which a volume is being made: kube-scheduler lets the pod on no other until the volume exists.

    If the node goes first, the provisioner takes the annotation off the claim (FindPodVolumes of kube-scheduler).
    """
    hostname = node.metadata.labels.get(labels.HOSTNAME, node.metadata.name)
    return [Requirements((_requirement(labels.HOSTNAME, "In", (hostname,)),))]


def _topologies(storage_class: StorageClass, key: str) -> list[Requirements]:
    terms = []
    for term in storage_class.allowed_topologies:
        entries = []
        for expression in term.match_label_expressions:
            if expression.key in UNSUPPORTED_TOPOLOGY_KEYS:
                name = storage_class.metadata.name
                raise UnusableVolume(
                    f'persistentvolumeclaim "{key}": storageclass "{name}" asks for {expression.key}, '
                    "which no node that is launched will have"
                )
            entries.append(_requirement(expression.key, "In", expression.values))
        if entries:
            terms.append(Requirements(entries))
    return terms


def _node_affinity(volume: PersistentVolume) -> list[Requirements]:
    """The terms of a volume's node affinity.

    A local volume stays behind when its pod moves, so the node it is on is no reason against another one.
    """
    spec = volume.spec
    if spec.node_affinity is None or spec.node_affinity.required is None:
        return []
    stays_behind = _stays_behind(volume)
    terms = []
    for term in spec.node_affinity.required.node_selector_terms:
        if term.match_fields and not stays_behind:
            raise UnusableVolume(f'persistentvolume "{volume.metadata.name}": matchFields is not supported')
        if term.match_expressions or stays_behind:
            terms.append(_term(term, without_hostname=stays_behind))
    return terms


def _term(term: NodeSelectorTerm, *, without_hostname: bool) -> Requirements:
    return Requirements(
        _requirement(entry.key, entry.operator, entry.values)
        for entry in term.match_expressions
        if not (without_hostname and entry.key == labels.HOSTNAME)
    )


def _requirement(key: str, operator: str, values: Sequence[str]) -> Requirement:
    try:
        return requirement(key, operator, values)
    except ValueError as error:
        raise UnusableVolume(str(error)) from error


def _both(left: Sequence[Requirements], right: Sequence[Requirements]) -> tuple[Requirements, ...]:
    """Every combination that a node can meet, in order, each once."""
    joined = {
        one.and_(other.values()): None
        for one in left
        for other in right
        if contradiction([*one.values(), *other.values()]) is None
    }
    return tuple(joined)
