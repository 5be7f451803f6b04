"""ProvisioningRequests on the command line: those of files, and what a plan has for each."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import NamedTuple

from msgspec.structs import replace

from shiplap.errors import InvalidInput
from shiplap.kubernetes.names import has_no_object, namespaced_name, stands_for
from shiplap.kubernetes.objects import Pod, PodTemplateSpec
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.manifests.files.documents import Document
from shiplap.policies.gangs.gang_membership import REQUEST
from shiplap.policies.gangs.known_requests import KnownRequests, known_requests
from shiplap.policies.gangs.memory.gang_tries import says_when
from shiplap.policies.gangs.provisioning_requests import (
    CHECK_CAPACITY,
    CLASS,
    REQUEST_KIND,
    CapacityRequest,
    KnownTemplates,
    ProvisioningRequest,
    RequestTemplate,
    capacity_request,
    named_templates,
)
from shiplap.policies.gangs.whole_gangs import ITS_TURN, served_pods
from shiplap.scheduling.model.scheduling_plan import Plan, PlannedClaim
from shiplap.scheduling.model.snapshot import ClusterView, Snapshot
from shiplap_cli.inputs.object_validation import invalid_field, raise_first, typed_object
from shiplap_cli.money import Money, dollars
from shiplap_cli.output import counted
from shiplap_cli.policies.gangs.gangs_answers import PlannedRequest
from shiplap_cli.policy_views import FeatureObjects

POD_TEMPLATE = "PodTemplate"


def checked_requests(documents: Sequence[Document]) -> Iterator[tuple[Document, ProvisioningRequest | InvalidInput]]:
    """Yield the ProvisioningRequests among documents, each as it was read, or what is wrong with it."""
    for document in documents:
        if document.data.get("kind") != REQUEST_KIND:
            continue
        try:
            item = typed_object(document, ProvisioningRequest)
            # A template that may be in another file is waited for; every other problem is one of the request.
            problem = capacity_request(item, KnownTemplates(), item.created_at, 1.0).problem if item.is_ours else None
            raise_first(document, iter([("spec", problem.message)] if problem is not None else []))
        except InvalidInput as error:
            yield document, error
        else:
            yield document, item


def requests_of_files(objects: FeatureObjects, now: float) -> KnownRequests:
    """Return the requests of files, as made now where they do not say when.

    Raises InvalidInput: one cannot be read, or a PodTemplate that it names is not among the files.
    """
    items: list[ProvisioningRequest] = []
    found = [*checked_requests(objects.documents)]
    for _, item in found:
        if isinstance(item, InvalidInput):
            raise item
        meta = item.metadata
        items.append(replace(item, metadata=replace(meta, creation_timestamp=meta.creation_timestamp or rfc3339(now))))
    known = known_requests(items, (), templates_of(objects.documents), now, 0.0)
    problems = {request.item.key: request.problem for request in known.served}
    for document, item in found:
        problem = problems.get(item.key) if isinstance(item, ProvisioningRequest) else None
        if problem is not None:
            raise invalid_field(document, "spec.podSets", problem.message)
    return known


def request_named(objects: FeatureObjects, name: str, now: float, template_wait_s: float) -> CapacityRequest:
    """Return one request, whatever others are like. Files that do not say when it was made have it made now.

    Raises InvalidInput: there is none of this name, or it cannot be read.
    """
    asked = tuple(name.split("/", 1)) if "/" in name else ("default", name)
    named = [(_name_of(each), each) for each in objects.documents if each.data.get("kind") == REQUEST_KIND]
    document = next((each for known, each in named if known == asked), None)
    if document is None:
        near = get_close_matches(namespaced_name(*asked), [namespaced_name(*known) for known, _ in named], cutoff=0.4)
        known = f"did you mean {', '.join(near)}?" if near else f"there are {len(named)}"
        raise InvalidInput("provisioningrequest", f"there is no ProvisioningRequest {namespaced_name(*asked)}; {known}")
    item = typed_object(document, ProvisioningRequest)
    meta = item.metadata
    item = replace(item, metadata=replace(meta, creation_timestamp=meta.creation_timestamp or rfc3339(now)))
    return capacity_request(item, _readable_templates(objects, named_templates([item])), now, template_wait_s)


def _readable_templates(objects: FeatureObjects, wanted: Collection[tuple[str, str]]) -> KnownTemplates:
    items, unreadable = dict[tuple[str, str], PodTemplateSpec](), dict[tuple[str, str], str]()
    for document in objects.documents:
        if document.data.get("kind") == POD_TEMPLATE and (name := _name_of(document)) in wanted:
            try:
                items[name] = typed_object(document, RequestTemplate).template
            except InvalidInput as error:
                unreadable[name] = error.reason
    return KnownTemplates(items, unreadable)


def _name_of(document: Document) -> tuple[str, str]:
    meta = document.data.get("metadata")
    fields = meta if isinstance(meta, Mapping) else {}
    return str(fields.get("namespace") or "default"), str(fields.get("name", ""))


def templates_of(documents: Sequence[Document]) -> KnownTemplates:
    """Return the PodTemplates among documents. Raises InvalidInput."""
    found = [typed_object(each, RequestTemplate) for each in documents if each.data.get("kind") == POD_TEMPLATE]
    return KnownTemplates({(each.metadata.namespace or "default", each.metadata.name): each.template for each in found})


class PlanInWords(NamedTuple):
    """A plan as gangs and requests are told of it.

    `told` are the reasons for pods without a place, by key, `held` those for pods that are not planned at all.
    """

    plan: Plan
    told: Mapping[str, str]
    held: Mapping[str, str]
    money: Money
    again: bool

    @classmethod
    def of(cls, snapshot: Snapshot, plan: Plan) -> PlanInWords:
        """Return what lines tell of a plan; that of an install is made again every minute."""
        told, held = (
            {entry.pod.key: entry.message for entry in entries} for entries in (plan.unschedulable, plan.ignored)
        )
        return cls(plan, told, held, Money(snapshot), bool(snapshot.install))

    def claims(self, pods: Iterable[Pod]) -> list[PlannedClaim]:
        """Return the new nodes that pods have places on."""
        keys = {pod.key for pod in pods}
        return [claim for claim in self.plan.node_claims if any(pod.key in keys for pod in claim.pods)]

    def launched(self, claims: Sequence[PlannedClaim]) -> str:
        """Return how many new nodes there are, and for how much."""
        if not claims:
            return "no new node"
        return f"{counted(len(claims), 'new node')} for {dollars(self.money.of_launches(claims))} an hour"

    def reason(self, pod: Pod, gang: str) -> str:
        """Return why nothing is launched for the gang or request of a pod."""
        told = self.told.get(pod.key) or self.held.get(pod.key, "")
        return told.removeprefix(f"nothing is launched for gang {gang}: ")

    def not_launched(self, pod: Pod, gang: str) -> str:
        """Return the same as a part of a line, and when it is planned again."""
        reason = self.reason(pod, gang)
        is_said = ITS_TURN in reason or says_when(reason)
        again = "; it is planned again every minute" if self.again and not is_said else ""
        return f"nothing is launched: {reason}{again}"

    def verdict(self, pods: Sequence[Pod], gang: str) -> Verdict:
        """Return what the plan has for the pods of a gang or request that wait."""
        served = served_pods(self.plan)
        places = sum(pod.key in served for pod in pods)
        price = self.money.of_launches(claims := self.claims(pods))
        reason = self.reason(pods[0], gang) if pods and not places else ""
        return Verdict(places, bool(places), reason, len(claims), price.hourly, price.estimated)


class Verdict(NamedTuple):
    """What a plan has for a gang or request: pods with a place, or the reason for none, and what new nodes cost."""

    places: int
    launched: bool
    reason: str
    new_nodes: int
    hourly: float
    estimated: bool


def waiting_request_lines(view: ClusterView, words: PlanInWords) -> Iterator[str]:
    """Yield what a plan has for each request that is not provisioned yet."""
    waiting = tuple(pod for pod in view.pods if not pod.spec.node_name)
    return request_lines(ClusterView(pods=waiting), words)


def request_lines(view: ClusterView, words: PlanInWords) -> Iterator[str]:
    """Yield what a plan has for each request."""
    served = served_pods(words.plan)
    for name, pods in pods_by_request(view).items():
        waiting = [pod for pod in pods if not pod.spec.node_name]
        if not waiting:
            nodes = len({pod.spec.node_name for pod in pods})
            yield f"  {name}: {counted(len(pods), 'pod')} with booked room on {counted(nodes, 'node')}"
            continue
        number = counted(len(waiting), "pod")
        open_ = next((pod for pod in waiting if pod.key not in served), None)
        if open_ is None:
            yield f"  {name}: {number} with room, {words.launched(words.claims(waiting))}"
        else:
            yield f"  {name}: no room for its {number}; {words.not_launched(open_, name.partition(' ')[2])}"


def asks_no_launch(pod: Pod) -> bool:
    """True for a pod of a request that checks capacity."""
    return has_no_object(pod.metadata.name) and pod.metadata.annotations.get(CLASS) == CHECK_CAPACITY


def planned_requests(view: ClusterView, words: PlanInWords) -> tuple[PlannedRequest, ...]:
    """Return the requests whose pods are in a view."""
    return tuple(_planned_request(pods, words) for pods in pods_by_request(view).values())


def _planned_request(pods: Sequence[Pod], words: PlanInWords) -> PlannedRequest:
    meta, waiting = pods[0].metadata, [pod for pod in pods if not pod.spec.node_name]
    verdict = words.verdict(waiting, namespaced_name(meta.namespace, meta.annotations[REQUEST]))
    booked = len(pods) - len(waiting)
    return PlannedRequest(
        namespace=meta.namespace,
        name=meta.annotations[REQUEST],
        provisioning_class=meta.annotations[CLASS],
        pods=len(pods),
        booked=booked,
        with_place=booked + verdict.places,
        launched=verdict.launched,
        reason=verdict.reason,
        new_nodes=verdict.new_nodes,
        hourly=verdict.hourly,
        estimated=verdict.estimated,
    )


def pods_by_request(view: ClusterView) -> dict[str, list[Pod]]:
    """Return the pods of each request, by its kind and name. Those of requests that cannot be read have no class."""
    found: dict[str, list[Pod]] = {}
    for pod in view.pods:
        if has_no_object(pod.metadata.name) and CLASS in pod.metadata.annotations:
            found.setdefault(stands_for(pod.metadata.namespace, pod.metadata.name), []).append(pod)
    return dict(sorted(found.items()))
