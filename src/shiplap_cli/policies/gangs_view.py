"""Gangs on the command line: those that wait, and what a plan has for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import UNSET

from shiplap.errors import InvalidInput
from shiplap.kubernetes.names import has_no_object
from shiplap.kubernetes.objects import Pod
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.manifests.files.documents import Document
from shiplap.policies.gangs.gang import GangMembers, KnownGangs, PodGroupFacts
from shiplap.policies.gangs.gang_input import GangInput
from shiplap.policies.gangs.gang_launches import most_at_risk
from shiplap.policies.gangs.gang_membership import REQUESTS, membership, named_pod_groups
from shiplap.policies.gangs.gangs_settings import GangSettings
from shiplap.policies.gangs.known_requests import consumers, pods_of_requests
from shiplap.policies.gangs.pod_groups import KIND, VERSIONS, named_facts
from shiplap.policies.gangs.provisioning_requests import REQUEST_KIND, REQUEST_VERSIONS
from shiplap.policies.gangs.running_gangs import runs_gangs
from shiplap.policies.gangs.waiting_gangs import waiting_gangs
from shiplap.policies.gangs.whole_gangs import served_pods
from shiplap.policies.policy_settings import PolicySettings
from shiplap.ports.state import COMMIT_GROUP
from shiplap.scheduling.model.scheduling_plan import Plan
from shiplap.scheduling.model.snapshot import ClusterView, Snapshot
from shiplap_cli.output import counted
from shiplap_cli.policies.gangs.gangs_annotations import misplaced_annotations
from shiplap_cli.policies.gangs.gangs_answers import PlannedGang, PlannedGangs
from shiplap_cli.policies.gangs.gangs_objects import PRIORITY_CLASS, checked_pod_groups, facts_of_objects
from shiplap_cli.policies.gangs.gangs_requests import (
    POD_TEMPLATE,
    PlanInWords,
    asks_no_launch,
    checked_requests,
    planned_requests,
    request_lines,
    requests_of_files,
    waiting_request_lines,
)
from shiplap_cli.policy_views import AskedByObjects, FeatureCounts, FeatureObjects, OptionalKind, PolicyView, Together

if TYPE_CHECKING:
    from shiplap.manifests.custom_resources import NodePool
    from shiplap_cli.labels_of_types import Supply


class GangsView(PolicyView):
    """Plans gangs as a whole where pods or files say that they are gangs, and tells of each that waits."""

    answer: ClassVar[Any] = PlannedGangs

    has_standing: ClassVar[bool] = True

    kinds: ClassVar[frozenset[str]] = frozenset({KIND, PRIORITY_CLASS, REQUEST_KIND, POD_TEMPLATE})

    def checked(self, documents: Sequence[Document]) -> Iterator[tuple[Document, InvalidInput | None]]:
        """Yield the PodGroups and ProvisioningRequests, each with what is wrong with it."""
        for document, item in (*checked_pod_groups(documents), *checked_requests(documents)):
            yield document, item if isinstance(item, InvalidInput) else None

    def warnings(
        self, documents: Sequence[Document], pools: Sequence[NodePool], supply: Supply
    ) -> Iterator[InvalidInput]:
        """Yield the gangs that need more than the limits of their NodePools allow."""
        if documents and pools:
            from shiplap_cli.policies.gangs.gangs_limits import limit_warnings  # noqa: PLC0415 - only `validate` asks

            yield from limit_warnings(documents, pools, supply)

    def doubts(self, documents: Sequence[Document]) -> Iterator[InvalidInput]:
        """Yield the annotations of gangs that stand where no pod gets them."""
        return misplaced_annotations(documents)

    def wanted(self, view: ClusterView, settings: PolicySettings | None) -> Sequence[OptionalKind]:
        """Return the PodGroups of those APIs of which a pod names one; an install also protects gangs that run.

        An install that serves ProvisioningRequests needs them, too, which no pod need name.
        """
        pods, consequence = (view.unbound, _ONE_BY_ONE) if settings is None else (view.pods, _WAIT)
        apis = sorted({api for api, _, _ in named_pod_groups(pods)})
        groups = [OptionalKind(api, VERSIONS[api], "pod_groups", KIND, consequence) for api in apis]
        return [*groups, *_OF_REQUESTS] if isinstance(settings, GangSettings) and settings.serves_requests else groups

    def asked_by(self, view: ClusterView, objects: FeatureObjects | None, now: float) -> AskedByObjects:
        """Return what pods, PodGroups and ProvisioningRequests say of gangs; nothing if no gang waits or runs."""
        if objects is None:
            known = KnownGangs()
        elif objects.live:
            known = KnownGangs(pod_groups=_facts(objects, view.unbound, "in the cluster"))
        else:
            found = requests_of_files(objects, now)
            known = KnownGangs(pod_groups=_facts(objects, view.pods, "among the files"), requests=found.states or None)
            if found.states:
                return AskedByObjects(GangInput(known), pods_of_requests(found, view, consumers(found, view), now))
        waits = waiting_gangs(view, known, 0.0) or runs_gangs(view, known)
        return AskedByObjects(GangInput(known) if waits else None)

    def of_plan(self, snapshot: Snapshot, plan: Plan) -> Iterator[str]:
        """Yield the gangs that wait, each with the places of its members and what they cost."""
        words = PlanInWords.of(snapshot, plan)
        lines = [_line(members, words) for members in _waiting(snapshot)]
        lines += request_lines(snapshot.view, words)
        if lines:
            yield "" if snapshot.install else _AS_IN_AN_INSTALL
        yield from lines

    def of_waiting(self, view: ClusterView, now: float) -> Mapping[str, str]:
        """Return the gang of each pod that waits in one, by the key of the pod; gangs of PodGroups are not known."""
        if not any(membership(pod) for pod in view.unbound):
            return {}
        return {
            pod.key: _in_words(members) for members in waiting_gangs(view, KnownGangs(), now) for pod in members.waiting
        }

    def standing(self, snapshot: Snapshot, plan: Plan) -> FeatureCounts | None:
        """Return how many gangs and requests wait, and the requests that are booked, each with its next time."""
        words, known = PlanInWords.of(snapshot, plan), snapshot.policy(GangInput)
        gangs, waiting = _waiting(snapshot), [*waiting_request_lines(snapshot.view, words)]
        states = (known.known.requests or ()) if known is not None else ()
        booked = [state for state in states if state.booked_until > snapshot.now]
        counts = {"gangsWaiting": len(gangs), "requestsWaiting": len(waiting), "requestsBooked": len(booked)}
        lines = [f"gang {_line(members, words).strip()}" for members in gangs] + [each.strip() for each in waiting]
        lines += [
            f"{REQUEST_KIND} {each.namespace}/{each.name}: booked until {rfc3339(each.booked_until)}" for each in booked
        ]
        return FeatureCounts(counts, lines) if lines else None

    def together(self, snapshot: Snapshot, key: str) -> Together | None:
        """Return the members of a gang that wait; no change helps a gang with a problem, or a check of capacity."""
        if any(pod.key == key and asks_no_launch(pod) for pod in snapshot.view.pods):
            return Together()
        known = snapshot.policy(GangInput)
        for members in waiting_gangs(snapshot.view, known.known, snapshot.now) if known is not None else ():
            keys = frozenset(pod.key for pod in members.waiting)
            if key in keys:
                return Together() if members.gang.problem else Together(keys, members.needed)
        return None

    def document(self, snapshot: Snapshot, plan: Plan, rehearsed: Sequence[str]) -> PlannedGangs | None:  # noqa: ARG002 - none of it leaves
        """Return the gangs that wait, and the requests."""
        words = PlanInWords.of(snapshot, plan)
        waiting = tuple(_planned(members, words) for members in _waiting(snapshot))
        requests = planned_requests(snapshot.view, words)
        return PlannedGangs(waiting, requests or UNSET) if waiting or requests else None


VIEW = GangsView()

_ONE_BY_ONE = "pods that name one are planned one by one"
_WAIT = "pods that name one wait in this answer"
_OF_REQUESTS = (
    OptionalKind(REQUESTS, REQUEST_VERSIONS, "provisioning_requests", REQUEST_KIND, "what they ask for is not known"),
    OptionalKind("", ("v1",), "pod_templates", "PodTemplate", "what ProvisioningRequests ask for is not known"),
)
_AS_IN_AN_INSTALL = "\nGangs, all or nothing, as an install with `gangs: {mode: whole}` plans them:"


def _facts(objects: FeatureObjects, pods: Iterable[Pod], where: str) -> tuple[PodGroupFacts, ...]:
    return named_facts(named_pod_groups(pods), facts_of_objects(objects), where)


def _waiting(snapshot: Snapshot) -> Sequence[GangMembers]:
    """Return the gangs of pods that exist; requests have lines of their own."""
    known = snapshot.policy(GangInput)
    found = () if known is None else waiting_gangs(snapshot.view, known.known, snapshot.now)
    return [members for members in found if not has_no_object(members.waiting[0].metadata.name)]


def _line(members: GangMembers, words: PlanInWords) -> str:
    gang, first = members.gang, members.waiting[0]
    if held := words.held.get(first.key):
        return f"  {gang.key}: its {counted(len(members.waiting), 'member')} are not planned: {held}"
    served = served_pods(words.plan) & {pod.key for pod in members.waiting}
    have = f"  {gang.key}: {members.placed + len(served)} of {gang.minimum} members have a place"
    if not served:
        return f"{have}; {words.not_launched(first, gang.key)}"
    claims = words.claims(members.waiting)
    risk = most_at_risk(claims, members, COMMIT_GROUP)
    several = f", in several requests: at most ${risk:.4f} an hour at risk if the last is refused" if risk else ""
    return f"{have}, {words.launched(claims)}{several}"


def _in_words(members: GangMembers) -> str:
    gang = members.gang
    about = f"gang {gang.key}: {len(members.waiting)} wait, {members.placed} of {gang.minimum} have a place"
    return f"{about}; {gang.problem}" if gang.problem else about


def _planned(members: GangMembers, words: PlanInWords) -> PlannedGang:
    gang = members.gang
    verdict = words.verdict(members.waiting, gang.key)
    return PlannedGang(
        namespace=gang.namespace,
        name=gang.name,
        minimum=gang.minimum,
        waiting=len(members.waiting),
        placed=members.placed,
        problem=gang.problem,
        with_place=members.placed + verdict.places,
        launched=verdict.launched,
        reason=verdict.reason,
        new_nodes=verdict.new_nodes,
        hourly=verdict.hourly,
        estimated=verdict.estimated,
    )
