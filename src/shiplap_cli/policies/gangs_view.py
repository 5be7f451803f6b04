"""Gangs on the command line: those that wait, and what a plan has for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from shiplap.errors import InvalidInput
from shiplap.kubernetes.names import has_no_object
from shiplap.kubernetes.objects import Pod
from shiplap.manifests.files.documents import Document
from shiplap.policies.gangs.gang import GangMembers, KnownGangs, PodGroupFacts
from shiplap.policies.gangs.gang_input import GangInput
from shiplap.policies.gangs.gang_launches import most_at_risk
from shiplap.policies.gangs.gang_membership import REQUESTS, membership, named_pod_groups
from shiplap.policies.gangs.known_requests import consumers, pods_of_requests
from shiplap.policies.gangs.pod_groups import KIND, VERSIONS, named_facts
from shiplap.policies.gangs.provisioning_requests import REQUEST_KIND, REQUEST_VERSIONS
from shiplap.policies.gangs.running_gangs import runs_gangs
from shiplap.policies.gangs.waiting_gangs import waiting_gangs
from shiplap.policies.gangs.whole_gangs import served_pods
from shiplap.ports.state import COMMIT_GROUP
from shiplap.scheduling.model.scheduling_plan import Plan
from shiplap.scheduling.model.snapshot import ClusterView, PolicyInput, Snapshot
from shiplap_cli.money import Money, dollars
from shiplap_cli.output import counted
from shiplap_cli.policies.gangs_objects import PRIORITY_CLASS, checked_pod_groups, facts_of_objects
from shiplap_cli.policies.gangs_requests import (
    POD_TEMPLATE,
    checked_requests,
    request_documents,
    request_lines,
    requests_of_files,
)
from shiplap_cli.policy_views import FeatureObjects, OptionalKind, PolicyView

if TYPE_CHECKING:
    from shiplap.manifests.custom_resources import NodePool
    from shiplap_cli.labels_of_types import Supply


class GangsView(PolicyView):
    """Plans gangs as a whole where pods or files say that they are gangs, and tells of each that waits."""

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
            from shiplap_cli.policies.gangs_limits import limit_warnings  # noqa: PLC0415 - only `validate` asks

            yield from limit_warnings(documents, pools, supply)

    def wanted(self, view: ClusterView, *, installed: bool) -> Sequence[OptionalKind]:
        """Return the PodGroups of those APIs of which a pod names one; an install also protects gangs that run.

        An install may serve ProvisioningRequests, too, which no pod need name.
        """
        pods, consequence = (view.pods, _WAIT) if installed else (view.unbound, _ONE_BY_ONE)
        apis = sorted({api for api, _, _ in named_pod_groups(pods)})
        groups = [OptionalKind(api, VERSIONS[api], "pod_groups", KIND, consequence) for api in apis]
        return [*groups, *_OF_REQUESTS] if installed else groups

    def pods_without_objects(self, view: ClusterView, objects: FeatureObjects | None, now: float) -> Sequence[Pod]:
        """Return the pods of ProvisioningRequests in files. Raises InvalidInput."""
        if objects is None or objects.live:
            return ()
        known = requests_of_files(objects, now)
        return pods_of_requests(known, view, consumers(known, view), now)

    def asked_by(self, view: ClusterView, objects: FeatureObjects | None, now: float) -> PolicyInput | None:
        """Return what pods, PodGroups and ProvisioningRequests say of gangs; None if no gang waits or runs."""
        facts: Sequence[PodGroupFacts] = ()
        if objects is not None:
            where, pods = ("in the cluster", view.unbound) if objects.live else ("among the files", view.pods)
            facts = named_facts(named_pod_groups(pods), facts_of_objects(objects), where)
        requests = requests_of_files(objects, now).states if objects is not None and not objects.live else ()
        known = KnownGangs(pod_groups=tuple(facts), requests=requests or None)
        return GangInput(known) if requests or waiting_gangs(view, known, 0.0) or runs_gangs(view, known) else None

    def of_plan(self, snapshot: Snapshot, plan: Plan) -> Iterator[str]:
        """Yield the gangs that wait, each with the places of its members and what they cost."""
        told = {entry.pod.key: entry.message for entry in plan.unschedulable}
        again, money = bool(snapshot.install), Money(snapshot)
        lines = [_line(members, plan, told, money, again=again) for members in _waiting(snapshot)]
        lines += request_lines(snapshot, plan, told, money)
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

    def document(self, snapshot: Snapshot, rehearsed: Sequence[str]) -> dict[str, Any] | None:  # noqa: ARG002 - none of it leaves
        """Return the gangs that wait, and the requests."""
        gangs, requests = _waiting(snapshot), request_documents(snapshot.view)
        found = {"waiting": [_document(members) for members in gangs]} if gangs or requests else {}
        return (found | {"requests": requests} if requests else found) or None


VIEW = GangsView()

_ONE_BY_ONE = "pods that name one are planned one by one"
_WAIT = "pods that name one wait in this answer"
_OF_REQUESTS = (
    OptionalKind(REQUESTS, REQUEST_VERSIONS, "provisioning_requests", REQUEST_KIND, "what they ask for is not known"),
    OptionalKind("", ("v1",), "pod_templates", "PodTemplate", "what ProvisioningRequests ask for is not known"),
)
_AS_IN_AN_INSTALL = "\nGangs, all or nothing, as an install with `gangs: {mode: whole}` plans them:"


def _waiting(snapshot: Snapshot) -> Sequence[GangMembers]:
    """Return the gangs of pods that exist; requests have lines of their own."""
    known = snapshot.policy(GangInput)
    found = () if known is None else waiting_gangs(snapshot.view, known.known, snapshot.now)
    return [members for members in found if not has_no_object(members.waiting[0].metadata.name)]


def _line(members: GangMembers, plan: Plan, told: Mapping[str, str], money: Money, *, again: bool) -> str:
    gang, keys = members.gang, {pod.key for pod in members.waiting}
    claims = [claim for claim in plan.node_claims if any(pod.key in keys for pod in claim.pods)]
    served = served_pods(plan) & keys
    if not served:
        why = told.get(members.waiting[0].key, "").removeprefix(f"nothing is launched for gang {gang.key}: ")
        when = "; it is planned again every minute" if again else ""
        return (
            f"  {gang.key}: {members.placed} of {gang.minimum} members have a place; nothing is launched: {why}{when}"
        )
    cost = dollars(money.of_launches(claims))
    nodes = f", {counted(len(claims), 'new node')} for {cost} an hour" if claims else ", no new node"
    risk = most_at_risk(claims, members, COMMIT_GROUP)
    if risk:
        nodes += f", in several requests: at most ${risk:.4f} an hour at risk if the last is refused"
    return f"  {gang.key}: {members.placed + len(served)} of {gang.minimum} members have a place{nodes}"


def _in_words(members: GangMembers) -> str:
    gang = members.gang
    about = f"gang {gang.key}: {len(members.waiting)} wait, {members.placed} of {gang.minimum} have a place"
    return f"{about}; {gang.problem}" if gang.problem else about


def _document(members: GangMembers) -> dict[str, Any]:
    gang = members.gang
    return {
        "namespace": gang.namespace,
        "name": gang.name,
        "minimum": gang.minimum,
        "waiting": len(members.waiting),
        "placed": members.placed,
        "problem": gang.problem,
    }
