"""Reads ProvisioningRequests (autoscaling.x-k8s.io): the pods that capacity is asked for, and how far each has come.

The conditions of the object are its state: whatever was written is gone on from, by whoever looks next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec

from shiplap.kubernetes import labels
from shiplap.kubernetes.names import has_no_object, namespaced_name
from shiplap.kubernetes.objects import ApiObject, Few, FewLabels, ObjectMeta, Pod, PodTemplateSpec
from shiplap.kubernetes.pod_requests import pod_requests
from shiplap.kubernetes.timestamps import epoch, rfc3339
from shiplap.policies.gangs.gang import RequestState
from shiplap.policies.gangs.gang_membership import REQUESTS
from shiplap.scheduling.model.bounds import BOUNDS

REQUEST_KIND = "ProvisioningRequest"
REQUEST_VERSIONS = ("v1",)
CHECK_CAPACITY = f"check-capacity.{REQUESTS}"
ATOMIC_SCALE_UP = f"best-effort-atomic-scale-up.{REQUESTS}"
CLASSES = (CHECK_CAPACITY, ATOMIC_SCALE_UP)
"""Requests of any other class are another controller's."""

CLASS = f"{REQUESTS}/provisioning-class-name"

ACCEPTED = "Accepted"
PROVISIONED = "Provisioned"
FAILED = "Failed"
BOOKING_EXPIRED = "BookingExpired"
CAPACITY_REVOKED = "CapacityRevoked"
_OVER = (FAILED, BOOKING_EXPIRED, CAPACITY_REVOKED)

BOOKED_S = 600.0
"""Capacity is kept for a request for so long after it was provisioned, in seconds, as Cluster Autoscaler does."""

GIVEN_UP_S = 7 * 24 * 3600.0
"""A request without a deadline of its own, or with one of 0, fails after so long, in seconds, as all do with Cluster
Autoscaler, which reads no deadline."""

MOST_POD_SETS = 32
_VALID_UNTIL = "ValidUntilSeconds"
_NO_RETRY = "noRetry"
_DIGITS = 9
_Name = tuple[str, str]

Text = Annotated[str, msgspec.Meta(max_length=32_768)]


class RequestCondition(ApiObject, frozen=True):
    """A condition of a request, as the API stores it."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: Text = ""
    last_transition_time: str | None = ""
    observed_generation: int = 0


class _TemplateReference(ApiObject, frozen=True):
    name: str = ""


class _PodSet(ApiObject, frozen=True):
    pod_template_ref: _TemplateReference = _TemplateReference()
    count: int = 0


class _Spec(ApiObject, frozen=True):
    provisioning_class_name: str = ""
    pod_sets: Few[_PodSet] = ()
    parameters: FewLabels = msgspec.field(default_factory=dict)


class _Status(ApiObject, frozen=True):
    conditions: Few[RequestCondition] = ()
    provisioning_class_details: Annotated[dict[str, Text], msgspec.Meta(max_length=64)] = msgspec.field(
        default_factory=dict
    )


class ProvisioningRequest(ApiObject, frozen=True):
    """A ProvisioningRequest as the API server lists it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def name(self) -> _Name:
        """Namespace and name."""
        return self.metadata.namespace or "default", self.metadata.name

    @property
    def key(self) -> str:
        """`namespace/name`, as messages name a request."""
        return namespaced_name(*self.name)

    @property
    def is_ours(self) -> bool:
        """True if its class is one that Shiplap serves."""
        return self.spec.provisioning_class_name in CLASSES

    @property
    def is_check(self) -> bool:
        """True if it asks for capacity that exists, and launches nothing."""
        return self.spec.provisioning_class_name == CHECK_CAPACITY

    def condition(self, kind: str) -> RequestCondition | None:
        """Return its condition of this type."""
        return next((item for item in self.status.conditions if item.type == kind), None)

    def holds(self, kind: str) -> bool:
        """True if its condition of this type is True."""
        found = self.condition(kind)
        return found is not None and found.status == "True"

    @property
    def is_over(self) -> bool:
        """True if nothing is done for it any more."""
        return bool(self.metadata.deletion_timestamp) or any(map(self.holds, _OVER))

    @property
    def is_provisioned(self) -> bool:
        """True if its capacity was there, and may still be booked."""
        return self.holds(PROVISIONED) and not self.is_over

    @property
    def created_at(self) -> float:
        """When it was created, epoch seconds; 0 where that is not known, as of a file."""
        return _moment(self.metadata.creation_timestamp)

    @property
    def booked_until(self) -> float:
        """When its booking ends, epoch seconds."""
        found = self.condition(PROVISIONED)
        return _moment(found.last_transition_time if found is not None else "") + BOOKED_S


class RequestedPods(msgspec.Struct, frozen=True):
    """One set of equal pods of a request."""

    template: PodTemplateSpec
    count: int


class RequestProblem(msgspec.Struct, frozen=True):
    """What keeps a request from being met for good: reason and message of its condition Failed."""

    reason: str
    message: str


class CapacityRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request of ours with the templates of its pods."""

    item: ProvisioningRequest

    sets: tuple[RequestedPods, ...] = ()
    """Empty where `problem` or `waits` says why they are not known."""

    problem: RequestProblem | None = None

    waits: str = ""
    """What has to come before it can be planned."""

    @property
    def total(self) -> int:
        """The number of its pods."""
        return sum(each.count for each in self.sets)

    @property
    def is_retried(self) -> bool:
        """False if the first answer is the last."""
        return not (self.item.is_check and self.item.spec.parameters.get(_NO_RETRY) == "true")

    @property
    def valid_until(self) -> float:
        """The time at which it fails if it has not been provisioned, epoch seconds."""
        text = self.item.spec.parameters.get(_VALID_UNTIL, "")
        return self.item.created_at + (float(text if _is_number(text) else 0) or GIVEN_UP_S)


class RequestTemplate(ApiObject, frozen=True):
    """A PodTemplate, as far as its pods need room."""

    metadata: ObjectMeta = ObjectMeta()
    template: PodTemplateSpec = PodTemplateSpec()


class KnownTemplates(msgspec.Struct, frozen=True):
    """PodTemplates by namespace and name, and why those that cannot be read are not among them."""

    items: Mapping[_Name, PodTemplateSpec] = {}
    unreadable: Mapping[_Name, str] = {}


def named_templates(requests: Sequence[ProvisioningRequest]) -> set[_Name]:
    """Return the PodTemplates that requests of ours still need."""
    return {
        (item.name[0], each.pod_template_ref.name)
        for item in requests
        if item.is_ours and not item.is_over
        for each in item.spec.pod_sets[:MOST_POD_SETS]
    }


def capacity_request(
    item: ProvisioningRequest, templates: KnownTemplates, now: float, template_wait_s: float
) -> CapacityRequest:
    """Return a request with its pods, or what is wrong with it.

    A PodTemplate that does not exist is waited for `template_wait_s` seconds: it may be made after the request.
    """
    problem = _problem(item)
    if problem:
        return CapacityRequest(item=item, problem=problem)
    sets = []
    for each in item.spec.pod_sets:
        name = (item.name[0], each.pod_template_ref.name)
        if name in templates.unreadable:
            why = f"PodTemplate {name[1]} cannot be read: {templates.unreadable[name]}"
            return CapacityRequest(item=item, problem=RequestProblem("FailedToCreatePods", why))
        found = templates.items.get(name)
        if found is None:
            return _without_template(item, name[1], now, template_wait_s)
        try:
            pod_requests(Pod(spec=found.spec))
        except ValueError as error:
            why = f"PodTemplate {name[1]}: {error}"
            return CapacityRequest(item=item, problem=RequestProblem("FailedToCreatePods", why))
        sets.append(RequestedPods(found, each.count))
    return CapacityRequest(item=item, sets=tuple(sets))


def _without_template(item: ProvisioningRequest, name: str, now: float, wait_s: float) -> CapacityRequest:
    until = item.created_at + wait_s
    if now < until:
        return CapacityRequest(item=item, waits=f"PodTemplate {name} is waited for until {rfc3339(until)}")
    why = f"PodTemplate {name} does not exist in namespace {item.name[0]}"
    return CapacityRequest(item=item, problem=RequestProblem("FailedToCreatePods", why))


def _problem(item: ProvisioningRequest) -> RequestProblem | None:
    """Return what is wrong with a request whatever its templates are."""
    sets, total = item.spec.pod_sets, 0
    if not 0 < len(sets) <= MOST_POD_SETS:
        return RequestProblem("FailedToCreatePods", f"it has {len(sets)} podSets: 1 to {MOST_POD_SETS} are possible")
    for place, each in enumerate(sets):
        if each.count < 1:
            why = f"spec.podSets[{place}].count is {each.count}: at least 1 is possible"
            return RequestProblem("FailedToCreatePods", why)
        total += each.count
    if total > BOUNDS.virtual_pods:
        why = f"its podSets have {total} pods together: at most {BOUNDS.virtual_pods} are possible"
        return RequestProblem("FailedToCreatePods", why)
    text = item.spec.parameters.get(_VALID_UNTIL)
    if text is not None and not _is_number(text):
        why = f"parameter {_VALID_UNTIL} is {text[:_DIGITS]!r}: it must be a number of seconds"
        return RequestProblem("InvalidParameter", why)
    return None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS


def _moment(text: str | None) -> float:
    try:
        return epoch(text or "")
    except ValueError:
        return 0.0


def state_of(item: ProvisioningRequest) -> RequestState:
    """Return what pods that consume a request meet.

    They take booked room, or wait for it. Once a booking of launched capacity has ended, they are pods like any others:
    a member that loses its node later would have none for ever.
    """
    namespace, name = item.name
    if item.holds(BOOKING_EXPIRED) and item.spec.provisioning_class_name == ATOMIC_SCALE_UP:
        return RequestState(namespace, name)
    ended = next((item.condition(kind) for kind in _OVER if item.holds(kind)), None)
    if ended is not None:
        return RequestState(
            namespace, name, f"for which nothing is launched: {ended.type} {ended.reason}", is_over=True
        )
    if item.holds(PROVISIONED):
        until = item.booked_until if item.is_ours else 0.0
        return RequestState(namespace, name, "whose capacity is booked", booked_until=until)
    return RequestState(namespace, name, "which is not provisioned yet")


def consumed_by(pod: Pod) -> str:
    """Return the name of the request whose capacity a pod takes, in its namespace; nothing if it takes none."""
    annotations = pod.metadata.annotations
    if not annotations or has_no_object(pod.metadata.name):
        return ""
    return next((annotations[key] for key in labels.ANNOTATIONS_OF_CONSUMERS if annotations.get(key)), "")
