"""Names under which an EC2NodeClass is left alone, and advice."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from shiplap.instances.offerings.remedies import with_remedy
from shiplap.instances.readiness import joins
from shiplap.kubernetes.objects import ObjectMeta
from shiplap.manifests.custom_resources import EC2NodeClass, EC2NodeClassSpec
from shiplap.ports import OfferingFailure

NODE_CLASS = EC2NodeClass(ObjectMeta(name="default"), EC2NodeClassSpec())


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("Client.InternalError", "volumeKeys"),
        ("Client.InvalidKMSKey.InvalidState", "volumeKeys"),
        ("Client.InvalidSnapshot.NotFound", "snapshot"),
        ("Client.VolumeLimitExceeded", "Service Quotas"),
    ],
)
def test_people_are_told_what_helps(code: str, says: str) -> None:
    assert says in with_remedy(code, "it ended")


@pytest.mark.parametrize("code", ["", "Server.InternalError", "Client.InternalErrors", "Client"])
def test_where_nothing_is_known_to_help_nothing_is_said(code: str) -> None:
    assert with_remedy(code, "it ended") == "it ended"


def test_a_changed_node_class_has_another_name_and_is_still_recognised() -> None:
    scope = joins.node_class_scope("demo", NODE_CLASS)
    changed = joins.node_class_scope("demo", replace(NODE_CLASS, spec=EC2NodeClassSpec(role="other")))
    assert scope != changed
    for each in (scope, changed):
        assert joins.is_left_alone("demo", "default", ["m5.large", each])
        assert not joins.is_left_alone("demo", "default-2", [each])
        assert not joins.is_left_alone("demo-2", "default", [each])
        assert joins.scope_text(each) == "EC2NodeClass default of demo"
    assert joins.scope_text("m5.large") == "m5.large"


def test_a_failure_that_a_node_class_is_to_blame_for_concerns_no_offering() -> None:
    scope = joins.node_class_scope("demo", NODE_CLASS)
    failure = OfferingFailure("m5.large", "a", "spot", "Client.InternalError", "configuration", node_class=scope)
    assert failure.scope == (scope, "*", "*")
    assert replace(failure, node_class="").scope == ("m5.large", "a", "spot")
