"""The parts of the command line that an optional feature adds: notes, launches and decisions in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from shiplap.disruption.disruption_snapshot import DisruptionInput
from shiplap.errors import InvalidInput
from shiplap.kubernetes.objects import Pod
from shiplap.manifests.files.documents import Document
from shiplap.policies.policy_settings import ChosenPolicy, PolicySettings
from shiplap.policies.registry import parts
from shiplap.scheduling.model.scheduling_plan import Placement, Plan, PlannedClaim
from shiplap.scheduling.model.snapshot import ClusterView, PolicyInput, Snapshot

if TYPE_CHECKING:
    from shiplap.manifests.custom_resources import NodePool
    from shiplap_cli.labels_of_types import Supply


class Unread(NamedTuple):
    """A source that may not be read, what follows from that, and the answer that takes its place."""

    what: str
    consequence: str
    otherwise: object


class OptionalKind(NamedTuple):
    """A kind of namespaced objects that a feature wants listed; the first of `versions` that has any counts.

    `field` is the plural with `_` between its words. `consequence` is what follows where it may not be listed.
    """

    group: str
    versions: tuple[str, ...]
    field: str
    kind: str
    consequence: str


class FeatureObjects(msgspec.Struct, frozen=True):
    """Objects of kinds that features read, not yet checked; `live` where a cluster was asked, not files."""

    documents: tuple[Document, ...] = ()
    live: bool = False


class AskedByObjects(NamedTuple):
    """The input of plans that objects ask for, and the pods that stand for room that they ask for."""

    input: PolicyInput | None = None
    pods: Sequence[Pod] = ()


class Together(NamedTuple):
    """Pods that wait, by `namespace/name`, of which `needed` have places or none has; 0 if none can have any."""

    members: frozenset[str] = frozenset()
    needed: int = 0

    def is_served(self, plan: Plan) -> bool:
        """True if as many as are needed have places in a plan."""
        places: tuple[PlannedClaim | Placement, ...] = (*plan.node_claims, *plan.existing_nodes)
        return sum(pod.key in self.members for place in places for pod in place.pods) >= self.needed > 0


class FeatureCounts(NamedTuple):
    """What a feature counts in a cluster, and a line on each of what it counts."""

    counts: Mapping[str, int]
    lines: Sequence[str]


class PolicyView:
    """One feature on the command line. `shiplap_cli.policies.<name>_view` holds one as VIEW."""

    has_standing: ClassVar[bool] = False
    """True if `standing` may have something to say."""

    answer: ClassVar[Any] = dict[str, Any]
    """The type of `document`."""

    unread: ClassVar[Mapping[str, Unread]] = {}
    """What a note says of each port of the feature that refuses to be read, by the name of its `PolicyPort`."""

    kinds: ClassVar[frozenset[str]] = frozenset()
    """Kinds of objects in files that the feature reads beside those of every decision."""

    def wanted(self, view: ClusterView, settings: PolicySettings | None) -> Sequence[OptionalKind]:
        """Return what is to be listed of a cluster beside what every decision reads.

        With `settings` it is for the decisions of an install in which the feature is on.
        """
        return ()

    def checked(self, documents: Sequence[Document]) -> Iterator[tuple[Document, InvalidInput | None]]:
        """Yield the objects among documents that only the feature reads, each with what is wrong with it."""
        yield from ()

    def warnings(
        self, documents: Sequence[Document], pools: Sequence[NodePool], supply: Supply
    ) -> Iterator[InvalidInput]:
        """Yield what is legal and surely not meant in objects of other kinds, beside these NodePools."""
        yield from ()

    def doubts(self, documents: Sequence[Document]) -> Iterator[InvalidInput]:
        """Yield the same of objects of files alone, for decisions as well."""
        yield from ()

    def of_launch(self, claim: PlannedClaim) -> str:
        """Return what there is to say of a launch; empty for nothing."""
        return ""

    def has_rehearsal(self, snapshot: Snapshot) -> bool:
        """Return True if nodes would leave now if the feature did not rehearse."""
        return False

    def asked_by(self, view: ClusterView, objects: FeatureObjects | None, now: float) -> AskedByObjects:
        """Return what the objects of the cluster ask for themselves in plans without an install.

        `objects` are those of `kinds` in files, or those that are `wanted` of a cluster; None where they may not be
        listed. Raises InvalidInput.
        """
        return AskedByObjects()

    def lines(self, snapshot: Snapshot, rehearsed: Sequence[str]) -> Iterator[str]:
        """Yield what there is to say of a decision. `rehearsed` are the nodes that would leave but for a rehearsal."""
        yield from ()

    def of_plan(self, snapshot: Snapshot, plan: Plan) -> Iterator[str]:
        """Yield what there is to say of a plan that was made of a snapshot."""
        yield from ()

    def of_disruption(self, inputs: Iterable[DisruptionInput]) -> Iterator[str]:
        """Yield what there is to say of the further inputs of a decision on disruption."""
        yield from ()

    def of_waiting(self, view: ClusterView, now: float) -> Mapping[str, str]:
        """Return what pods wait for together, in words, by the key of each pod."""
        return {}

    def standing(self, snapshot: Snapshot, plan: Plan) -> FeatureCounts | None:
        """Return what there is to say of a cluster in `shiplap status`, by its newest decision; None for nothing."""
        return None

    def together(self, snapshot: Snapshot, key: str) -> Together | None:
        """Return the pods with which the pod `namespace/name` waits for places; None for a pod that waits alone."""
        return None

    def document(
        self, snapshot: Snapshot, plan: Plan, rehearsed: Sequence[str]
    ) -> dict[str, Any] | msgspec.Struct | None:
        """Return the same for `shiplap plan -o json`, as an `answer`; None for nothing."""
        return None


def views() -> tuple[tuple[str, PolicyView], ...]:
    """Return the views of all features, each with the name of the feature."""
    return tuple((name, module.VIEW) for name, module in parts("shiplap_cli", "view"))


def kinds_of_features() -> frozenset[str]:
    """Return the kinds of objects in files that features read."""
    return frozenset().union(*(view.kinds for _, view in views()))


def wanted_by_features(view: ClusterView, on: Sequence[ChosenPolicy] | None) -> tuple[OptionalKind, ...]:
    """Return what features want listed of a cluster: those that are on in its install, or all without an install."""
    settings = {item.name: item.settings for item in on or () if item.settings.is_on}
    asked = [(each, settings.get(name)) for name, each in views() if on is None or name in settings]
    return tuple(kind for each, chosen in asked for kind in each.wanted(view, chosen))


def checked_by_features(documents: Sequence[Document]) -> Iterator[tuple[Document, InvalidInput | None]]:
    """Yield the objects that only features read, each with what is wrong with it."""
    for _, view in views():
        yield from view.checked(documents)


def warned_by_features(
    documents: Sequence[Document], pools: Sequence[NodePool], supply: Supply
) -> Iterator[InvalidInput]:
    """Yield the warnings of features about objects of other kinds than manifests, as `manifest_warnings`."""
    yield from doubted_by_features(documents)
    for _, view in views():
        yield from view.warnings(documents, pools, supply)


def doubted_by_features(documents: Sequence[Document]) -> Iterator[InvalidInput]:
    """Yield those warnings of features that need no NodePools."""
    for _, view in views():
        yield from view.doubts(documents)


def as_asked_by(snapshot: Snapshot, objects: FeatureObjects | None) -> Snapshot:
    """Return a snapshot without an install, with the features that its objects ask for. Raises InvalidInput."""
    found = [view.asked_by(snapshot.view, objects, snapshot.now) for _, view in views()]
    more, inputs = (
        [pod for each in found for pod in each.pods],
        [each.input for each in found if each.input is not None],
    )
    if more:
        snapshot = replace(snapshot, view=replace(snapshot.view, pods=(*snapshot.view.pods, *more)))
    return snapshot.with_policies(inputs) if inputs else snapshot


def launch_remarks(claim: PlannedClaim) -> Iterator[tuple[str, str]]:
    """Yield what features say of a launch, each with the feature in words."""
    for name, view in views():
        if text := view.of_launch(claim):
            yield name.replace("_", " "), text


def policy_lines(snapshot: Snapshot, rehearsed: Sequence[str]) -> Iterator[str]:
    """Yield the lines that features say of a decision."""
    for _, view in views():
        yield from view.lines(snapshot, rehearsed)


def plan_lines(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """Yield the lines that features say of a plan."""
    for _, view in views():
        yield from view.of_plan(snapshot, plan)


def disruption_lines(inputs: Iterable[DisruptionInput]) -> Iterator[str]:
    """Yield the lines that features say of the further inputs of a decision on disruption."""
    for _, view in views():
        yield from view.of_disruption(inputs)


def waiting_together(view: ClusterView, now: float) -> dict[str, str]:
    """Return what pods wait for together as features know it, in words, by the key of each pod."""
    return {key: text for _, each in views() for key, text in each.of_waiting(view, now).items()}


def planned_together(snapshot: Snapshot, key: str) -> Together | None:
    """Return the pods with which a pod waits for places, as features plan them."""
    found = (view.together(snapshot, key) for _, view in views())
    return next((item for item in found if item is not None), None)


@cache
def policy_answers() -> type[msgspec.Struct]:
    """Return the type of the parts of features of `shiplap plan -o json`."""
    fields = [(name, view.answer | UnsetType, UNSET) for name, view in views()]
    return msgspec.defstruct("PolicyAnswers", fields, frozen=True)


def policy_documents(snapshot: Snapshot, plan: Plan, rehearsed: Sequence[str]) -> dict[str, Any]:
    """Return the parts of features of `shiplap plan -o json`, by the name of the feature."""
    found = {name: view.document(snapshot, plan, rehearsed) for name, view in views()}
    return {name: document for name, document in found.items() if document is not None}
