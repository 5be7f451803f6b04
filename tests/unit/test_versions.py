"""Two versions work on the same table, bucket and queues while an alias is moved, and longer if it is moved back.

What is stored or sent may therefore hold fields that its reader does not know, and lack those that its reader knows.
So none of these structs may forbid unknown fields, and a field that is new needs a default. The required fields are
written down here: one more of them is an upgrade that breaks what is under way.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from shiplap.disruption.commands import Method, Reason
from shiplap.disruption.decision_memory import DecisionMemory
from shiplap.disruption.progress import DisruptionCommand
from shiplap.flows import claim_events, messages
from shiplap.flows.messages import decode, for_lifecycle, for_schedule
from shiplap.instances.catalog.ec2_catalog import Catalog
from shiplap.instances.catalog.type_catalog import LearnedCapacity
from shiplap.instances.readiness.joins import AmiJoins, PoolJoins
from shiplap.instances.readiness.nodeclass_status import InstallStatus
from shiplap.manifests.custom_resources import RequirementSpec
from shiplap.manifests.nodeclaim import NodeClaim
from shiplap.ports import CLAIM_FORM, COMMAND_FORM
from shiplap_lab.faults.functions.versions import NEW_FIELDS, as_previous_version, message_of_previous_version
from tests.builders.claims import node_claim, with_fields
from tests.formats.previous_release import PreviousDisruptionCommand, PreviousNodeClaim

STORED: dict[type[msgspec.Struct], set[str]] = {
    NodeClaim: {"cluster", "name", "node_pool", "node_class"},
    DisruptionCommand: {"cluster", "name", "reason", "method", "targets", "nodes"},
    DecisionMemory: set(),
    LearnedCapacity: {"ami", "instance_type", "kubelet_hash"},
    PoolJoins: {"pool"},
    AmiJoins: {"ami"},
    InstallStatus: set(),
    Catalog: {"region", "types"},
    messages._Envelope: {"detail_type", "detail"},
    messages._Body: set(),
    messages._PodPendingDetail: {"cluster"},
    messages._NodeDetail: {"cluster", "node"},
}
"""What is read that another version may have written, and which fields of it there must be."""

FORMS: dict[type[msgspec.Struct], type[msgspec.Struct]] = {
    NodeClaim: CLAIM_FORM.flat_type,
    DisruptionCommand: COMMAND_FORM.flat_type,
}
"""What is read in place of a record that is stored in another form."""

STRICT = {RequirementSpec}
"""Of the API of Karpenter's v1, whose manifests must not hold what nobody reads: it gets no new fields."""


def structs(kind: inspect.Type) -> Iterator[inspect.StructType]:
    """A struct and all that it is made of."""
    seen: set[type] = set()
    waiting: list[Any] = [kind]
    while waiting:
        item = waiting.pop()
        if isinstance(item, inspect.StructType):
            if item.cls in seen:
                continue
            seen.add(item.cls)
            yield item
            waiting += (field.type for field in item.fields)
        waiting += (getattr(item, name) for name in ("item_type", "key_type", "value_type") if hasattr(item, name))
        waiting += (part for name in ("types", "item_types") for part in getattr(item, name, ()))


@pytest.mark.parametrize("stored", STORED, ids=lambda kind: kind.__name__)
def test_unknown_fields_are_ignored_at_any_depth(stored: type[msgspec.Struct]) -> None:
    form = FORMS.get(stored, stored)
    found = list(structs(inspect.type_info(form)))
    assert found[0].cls is form
    strict = {item.cls for item in found if item.forbid_unknown_fields}
    assert strict <= STRICT
    assert not [item.cls for item in found if item.array_like]


@pytest.mark.parametrize("stored", STORED, ids=lambda kind: kind.__name__)
def test_no_field_is_required_that_was_not_always(stored: type[msgspec.Struct]) -> None:
    required = {field.name for field in msgspec.structs.fields(FORMS.get(stored, stored)) if field.required}
    assert required == STORED[stored]


def test_what_is_new_has_a_default_and_is_lost_in_the_hands_of_the_version_before() -> None:
    for kind, names in NEW_FIELDS.items():
        assert not STORED[kind] & set(names)
    new = {"requested_from": "spot", "most_hourly": 0.5}
    claim = node_claim(cluster="demo", name="a", node_pool="p", node_class="c", token="t", **new)
    assert as_previous_version(claim) == with_fields(claim, requested_from="", most_hourly=0.0)
    command = DisruptionCommand(
        cluster="demo",
        name="x",
        reason=Reason.EMPTY,
        method=Method.EMPTINESS,
        targets=("a",),
        nodes=("n",),
        detail="words",
    )
    assert as_previous_version(command) == command


@pytest.mark.parametrize(
    ("stored", "previous"), [(NodeClaim, PreviousNodeClaim), (DisruptionCommand, PreviousDisruptionCommand)]
)
def test_what_the_simulation_takes_for_new_is_what_the_previous_release_does_not_know(
    stored: type[NodeClaim | DisruptionCommand], previous: type[msgspec.Struct]
) -> None:
    now, then = ({field.encode_name for field in msgspec.structs.fields(kind)} for kind in (FORMS[stored], previous))
    assert set(NEW_FIELDS[stored]) == now - then
    assert then <= now


@pytest.mark.parametrize(
    "body",
    [
        {"kind": "sweep", "cluster": "demo", "time": "2026-01-01T00:00:00Z"},
        {"cluster": "demo", "claim": "a", "step": "join"},
        {
            "detail-type": messages.NODE_READY,
            "source": "s",
            "detail": {"cluster": "demo", "node": "n", "providerID": "p"},
        },
        {
            "detail-type": messages.POD_PENDING,
            "source": "s",
            "detail": {"cluster": "demo", "id": "1", "pods": [["ns", "web", "u"]], "reason": "x"},
        },
    ],
    ids=["sweep", "timer", "node", "pods"],
)
def test_messages_of_another_version_are_read(body: dict[str, Any]) -> None:
    known, other = json.dumps(body), message_of_previous_version(json.dumps(body))
    assert other != known
    assert type(decode(other, "queue")) is type(decode(known, "queue"))
    assert decode(other, "queue").cluster == "demo"
    read = for_lifecycle if body.get("claim") or body.get("detail", {}).get("node") else for_schedule
    assert read(other, "queue") == decode(other, "queue")


def test_every_event_that_is_sent_can_be_read_by_the_version_before() -> None:
    sent = claim_events.pods_pending("demo", (), "why", 0.0, event_id="x")
    body = json.dumps({"detail-type": sent.detail_type, "source": sent.source, "detail": sent.detail})
    assert decode(message_of_previous_version(body), "queue") == messages.PodsPending("demo")
