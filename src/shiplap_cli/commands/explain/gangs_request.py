"""`shiplap explain provisioningrequest`: what a request asks for, has and lacks, and when it is looked at again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Annotated

import msgspec
import typer
from rich.console import Group, RenderableType
from rich.text import Text

from shiplap.errors import InvalidInput
from shiplap.kubernetes.objects import Pod
from shiplap.kubernetes.pod_requests import pod_requests
from shiplap.kubernetes.quantity import format_resources
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.policies.gangs.gangs_settings import GangSettings
from shiplap.policies.gangs.memory.gang_tries import GANGS, GangTries
from shiplap.policies.gangs.provisioning_requests import (
    BOOKING_EXPIRED,
    CAPACITY_REVOKED,
    FAILED,
    REQUEST_KIND,
    CapacityRequest,
)
from shiplap.policies.gangs.requested_pods import consumers_of, unconsumed
from shiplap.policies.gangs.whole_gangs import served_pods
from shiplap.scheduling.model.scheduling_plan import Plan
from shiplap.scheduling.model.snapshot import Snapshot
from shiplap.scheduling.planner import solve
from shiplap_cli.accounts.smallest_changes import ChangeProposal, change_proposals
from shiplap_cli.inputs.loaded_inputs import LoadedInputs, load_inputs
from shiplap_cli.installs.find_install import InstallOptions
from shiplap_cli.joined_documents import joined, joined_type
from shiplap_cli.options import Sources, takes_sources
from shiplap_cli.output import Format, Output, Printed, counted, emit, plain_table, spaced
from shiplap_cli.policies.gangs.gangs_requests import PlanInWords, pods_by_request, request_named
from shiplap_cli.policy_views import planned_together
from shiplap_cli.render.decision_documents import Caveats, caveat_lines, caveats_of
from shiplap_cli.render.pages import change_lines

_ENDS = {FAILED: "failed", CAPACITY_REVOKED: "revoked", BOOKING_EXPIRED: "expired"}
"""States of requests for which nothing is done any more, by the condition that says so; the first one counts."""

_WANTING = ("waits", "failed", "revoked")
_AGAIN_S = 60.0
"""The functions plan all that waits once more within this time, in seconds."""


class RequestedPodSet(Printed, frozen=True):
    """Pods of one PodTemplate; `requests` of one of them, as quantities."""

    template: str
    count: int
    requests: dict[str, str]


class StoredCondition(Printed, frozen=True):
    """A condition of a request, as its status has it."""

    type: str
    status: str
    reason: str
    message: str
    since: str


class BookedNode(Printed, frozen=True):
    """A node with booked room for so many pods."""

    node: str
    pods: int


class RequestWithPlan(Printed, frozen=True, kw_only=True):
    """A ProvisioningRequest, and what the decision of now has for it."""

    request: str
    """`namespace/name`."""

    provisioning_class: str

    state: str
    """`planned`, `waits`, `booked`, `expired`, `revoked`, `failed` or `left alone`."""

    message: str = ""
    """What it waits for, has, or ended by."""

    pods: int = 0

    taken: int = 0
    """Pods with a node that consume it."""

    pod_sets: tuple[RequestedPodSet, ...] = ()

    conditions: tuple[StoredCondition, ...] = ()

    booked: tuple[BookedNode, ...] = ()
    """The room that nobody has taken yet."""

    booked_until: str = ""

    valid_until: str = ""
    """When it fails if it has not been provisioned; a file that does not say when it was made has it made now."""

    next_try: str = ""
    """The time by which an install plans it again; empty if it does not wait or no install was asked."""

    changes: tuple[ChangeProposal, ...] = ()
    """The smallest changes that let it be launched whole."""


RequestAccount = joined_type(RequestWithPlan, Caveats)


@takes_sources
def provisioningrequest(
    name: Annotated[str, typer.Argument(help="The request as NAMESPACE/NAME, or NAME in the namespace default.")],
    *,
    sources: Sources,
    which: InstallOptions,
    output: Output = Format.TABLE,
) -> int:
    """What a ProvisioningRequest asks for, what it has or lacks, its booked nodes, and when it is looked at again.

    Requests of a cluster are known to the install that serves them: name both by --cluster and --context. Exit code 0
    when it is provisioned, planned, or left alone, 1 when it waits or has failed, 2 for bad input.

    Example: shiplap explain provisioningrequest ml/train --cluster prod --context prod

    Example: shiplap explain provisioningrequest ml/train -f requests.yaml --manifests pools/
    """
    inputs = load_inputs(sources, which)
    snapshot, decided = inputs.decided()
    account = _account(_request(inputs, name), snapshot, decided)
    if account.state == "waits" and inputs.decision is not None:
        account = msgspec.structs.replace(account, next_try=_next_try(account.request, snapshot.now, decided))
    page = Group(_page(account), *caveat_lines(inputs))
    emit(joined(account, caveats_of(inputs)), output, lambda: page)
    return 1 if account.state in _WANTING else 0


def _next_try(request: str, now: float, decided: Plan) -> str:
    """The next decision, or where the request has been tried in vain, the end of its pause."""
    tries = decided.remembered.get(GANGS, ()) if decided.remembered else ()
    found = (each for each in msgspec.convert(tries, tuple[GangTries, ...]) if each.gang == request)
    return rfc3339(max((each.next_at for each in found), default=now + _AGAIN_S))


def _request(inputs: LoadedInputs, name: str) -> CapacityRequest:
    """Raises InvalidInput: it is not known, or cannot be read."""
    objects = inputs.state.of_features
    if objects is None:
        raise InvalidInput("provisioningrequest", "the objects of this kind may not be listed")
    chosen = inputs.decision.settings.policy(GangSettings) if inputs.decision is not None else None
    if objects.live and (chosen is None or not chosen.serves_requests):
        why = "no install that serves them was asked: name one with gangs.provisioningRequests by --cluster"
        raise InvalidInput("provisioningrequest", why)
    return request_named(objects, name, inputs.snapshot.now, chosen.wait_s if chosen is not None else 0.0)


def _account(request: CapacityRequest, snapshot: Snapshot, decided: Plan) -> RequestWithPlan:
    item = request.item
    ended = next((item.condition(kind) for kind in _ENDS if item.holds(kind)), None)
    of_request = RequestWithPlan(
        request=item.key,
        provisioning_class=item.spec.provisioning_class_name,
        state="",
        pods=sum(each.count for each in item.spec.pod_sets),
        pod_sets=tuple(_sets(request)),
        conditions=tuple(
            StoredCondition(each.type, each.status, each.reason, each.message, each.last_transition_time or "")
            for each in item.status.conditions
        ),
    )
    if not item.is_ours:
        why = "its class is served by another controller"
        return msgspec.structs.replace(of_request, state="left alone", message=why)
    if ended is not None:
        return msgspec.structs.replace(of_request, state=_ENDS[ended.type], message=ended.message)
    if item.metadata.deletion_timestamp:
        return msgspec.structs.replace(of_request, state="left alone", message="it is being deleted")
    taken = consumers_of(snapshot.view, [item.name])[item.name]
    of_request = msgspec.structs.replace(of_request, taken=len(taken))
    if item.is_provisioned:
        return _booked(of_request, request, taken)
    if request.problem is not None:
        return msgspec.structs.replace(of_request, state="failed", message=request.problem.message)
    return _waiting(of_request, request, snapshot, decided)


def _sets(request: CapacityRequest) -> Iterator[RequestedPodSet]:
    for place, each in enumerate(request.item.spec.pod_sets):
        known = request.sets[place].template.spec if request.sets else None
        requests = format_resources(pod_requests(Pod(spec=known))) if known is not None else {}
        yield RequestedPodSet(each.pod_template_ref.name, each.count, requests)


def _booked(account: RequestWithPlan, request: CapacityRequest, taken: Sequence[Pod]) -> RequestWithPlan:
    left = Counter[str]()
    for (_, node), number in unconsumed(request, taken).items():
        left[node] += number
    found = request.item.condition("Provisioned")
    return msgspec.structs.replace(
        account,
        state="booked",
        message=found.message if found is not None else "",
        booked=tuple(BookedNode(node, number) for node, number in sorted(left.items())),
        booked_until=rfc3339(request.item.booked_until),
    )


def _waiting(account: RequestWithPlan, request: CapacityRequest, snapshot: Snapshot, decided: Plan) -> RequestWithPlan:
    pods = pods_by_request(snapshot.view).get(f"{REQUEST_KIND} {account.request}", [])
    account = msgspec.structs.replace(account, valid_until=rfc3339(request.valid_until))
    words, served = PlanInWords.of(snapshot, decided), served_pods(decided)
    if not pods:
        why = request.waits or ("all its pods have nodes" if account.taken else "it waits for its turn")
        return msgspec.structs.replace(account, state="waits", message=why)
    open_ = next((pod for pod in pods if pod.key not in served), None)
    if open_ is None:
        message = f"{counted(len(pods), 'pod')} with room, {words.launched(words.claims(pods))}"
        return msgspec.structs.replace(account, state="planned", message=message)
    changes = change_proposals(snapshot, *solve(snapshot), open_.key, planned_together(snapshot, open_.key))
    why = words.reason(open_, account.request)
    return msgspec.structs.replace(account, state="waits", message=why, changes=changes)


def _page(account: RequestWithPlan) -> RenderableType:
    title = Text.assemble((f"{REQUEST_KIND} {account.request}", "bold"), f": {account.state}")
    lines = [title, *([Text(account.message)] if account.message else []), *change_lines(account.changes)]
    times = (
        ("booked until", account.booked_until),
        ("fails unless provisioned by", account.valid_until),
        ("planned again by", account.next_try),
    )
    said = [f"{what} {at}" for what, at in times if at]
    lines += [Text("; ".join(said))] if said else []
    taken = f", {counted(account.taken, 'consumer')} with a node" if account.taken else ""
    lines.append(Text(f"class {account.provisioning_class}, {counted(account.pods, 'pod')}{taken}"))
    asked = [
        (each.template, str(each.count), ", ".join(f"{name} {much}" for name, much in each.requests.items()))
        for each in account.pod_sets
    ]
    parts: list[RenderableType] = [Group(*lines), plain_table("pod template", "pods", "each requests", rows=asked)]
    if account.booked:
        rows = [(each.node, str(each.pods)) for each in account.booked]
        parts.append(plain_table("booked node", "pods", rows=rows))
    if account.conditions:
        rows_ = [(each.type, each.status, each.reason, each.since, Text(each.message)) for each in account.conditions]
        parts.append(plain_table("condition", "status", "reason", "since", "message", rows=rows_))
    return Group(*spaced(parts))
