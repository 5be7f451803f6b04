"""Tests the remedies for errors of AWS, in texts and in docs/how-to/operations.md."""

from __future__ import annotations

import pytest

from shiplap.instances.offerings.remedies import ENCODED, REMEDIES, remedy, with_remedy
from tools.remedy_table import PAGE, written

DENIED = "You are not authorized to perform this operation. Encoded authorization failure message: 0l-KPWQJ8q5z"


@pytest.mark.parametrize(
    ("code", "message", "says"),
    [
        ("VcpuLimitExceeded", "", "Service Quotas"),
        ("PendingVerification", "", "AWS Support"),
        ("AuthFailure.ServiceLinkedRoleCreationNotPermitted", "", "create-service-linked-role"),
        ("AuthFailure", "Not authorized for images: [ami-1]", "share the AMI"),
        ("AuthFailure", "AWS was not able to validate the provided access credentials", ""),
        ("OptInRequired", "In order to use this product you need to accept terms and subscribe.", "Marketplace"),
        ("OptInRequired", "You are not subscribed to this service", ""),
        ("InvalidAMIID.NotFound", "", "Region"),
        ("InvalidSubnetID.NotFound", "", "subnetSelectorTerms"),
        ("InvalidGroup.NotFound", "", "securityGroupSelectorTerms"),
        ("TagPolicyViolation", "", "tag policy"),
        ("OperationNotPermitted", "The instance 'i-1' may not be terminated.", "termination protection"),
        ("InvalidParameterValue", "Invalid IAM Instance Profile name", "instanceProfile"),
        ("InvalidParameterValue", "User data is limited to 16384 bytes", "16 KB"),
        ("InvalidParameterValue", "AllocationStrategy must be something else", ""),
        ("InsufficientInstanceCapacity", "", ""),
        ("RequestLimitExceeded", "", ""),
        ("", "", ""),
    ],
)
def test_only_what_people_can_end_has_a_remedy(code: str, message: str, says: str) -> None:
    assert says in remedy(code, message)
    assert bool(remedy(code, message)) == bool(says)


def test_a_remedy_stands_before_the_encoded_part_that_is_cut_first() -> None:
    text = with_remedy("UnauthorizedOperation", DENIED)
    begin, _, end = text.partition(ENCODED)
    assert begin.startswith("You are not authorized to perform this operation; ")
    assert "aws sts decode-authorization-message --encoded-message" in begin
    assert end == ": 0l-KPWQJ8q5z"


def test_a_text_without_a_remedy_stays_as_it_is() -> None:
    assert with_remedy("Server.InternalError", DENIED) == DENIED


def test_the_message_decides_where_the_text_lacks_it() -> None:
    assert with_remedy("AuthFailure", "AuthFailure on 2 offerings") == "AuthFailure on 2 offerings"
    text = with_remedy("AuthFailure", "AuthFailure on 2 offerings", "Not authorized for images: [ami-1]")
    assert text.startswith("AuthFailure on 2 offerings; share the AMI")


def test_the_table_of_the_documentation_is_the_list_of_the_texts() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert written(page) == page, "run make docs"
    assert all(known.action in page for known in REMEDIES)
