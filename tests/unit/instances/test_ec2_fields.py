"""Every field of EC2's instance types has a use that is written down, and is used that way."""

from __future__ import annotations

from collections import Counter

from tests.product_attributes import attributes_read
from tools.ec2_fields import FIELDS, PAGE, STORED, WITHOUT_EFFECT, covered, fields_decoded, fields_of_ec2, text


def test_the_table_has_the_fields_that_ec2_has_each_once() -> None:
    fields = fields_of_ec2()
    listed = Counter(field for entry in FIELDS for name in entry.names for field in covered(name, fields))
    assert set(listed) == fields, "new fields need a use"
    assert {field for field, times in listed.items() if times > 1} == set()
    assert [name for entry in FIELDS for name in entry.names if not covered(name, fields)] == [], "EC2 has them no more"


def test_fields_are_decoded_as_the_table_says() -> None:
    fields = fields_of_ec2()
    said = {
        field
        for entry in FIELDS
        if entry.use != WITHOUT_EFFECT
        for name in entry.names
        for field in covered(name, fields)
    }
    assert fields_decoded().keys() == said


def test_what_is_decoded_is_read() -> None:
    stored = {name for entry in FIELDS if entry.use == STORED for name in entry.names}
    unread = {path for path, attribute in fields_decoded().items() if attribute not in attributes_read()}
    assert unread == stored


def test_the_page_says_what_the_table_says() -> None:
    assert PAGE.read_text() == text(fields_of_ec2()), "`make docs` writes it anew"
