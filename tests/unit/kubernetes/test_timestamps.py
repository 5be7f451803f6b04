"""Timestamps as Kubernetes writes them."""

from __future__ import annotations

import msgspec
import pytest

from shiplap.kubernetes.objects import DaemonSet, Event, Node
from shiplap.kubernetes.timestamps import epoch, rfc3339


def test_moments_are_written_in_utc_and_whole_seconds() -> None:
    assert rfc3339(0.0) == "1970-01-01T00:00:00Z"
    assert rfc3339(1_700_000_000.999) == "2023-11-14T22:13:20Z"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2023-11-14T22:13:20Z", 1_700_000_000.0),
        ("2023-11-14T22:13:20.500000Z", 1_700_000_000.5),
        ("2023-11-14T23:13:20+01:00", 1_700_000_000.0),
    ],
)
def test_moments_are_read_with_their_zone(text: str, expected: float) -> None:
    assert epoch(text) == expected


@pytest.mark.parametrize("text", ["", "yesterday", "2023-11-14T22:13:20"])
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"zone|isoformat"):
        epoch(text)


@pytest.mark.parametrize(
    "text", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "9999-12-31T23:59:59.999999Z"]
)
def test_a_moment_that_cannot_be_written_in_utc_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not within the years 1 to 9999 of UTC"):
        epoch(text)


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"])
def test_the_first_and_the_last_moment_are_written_as_they_are_read(text: str) -> None:
    assert rfc3339(epoch(text)) == text


def test_null_timestamps_decode() -> None:
    template = b'{"spec":{"template":{"metadata":{"creationTimestamp":null},"spec":{"containers":[]}}}}'
    assert msgspec.json.decode(template, type=DaemonSet).spec.template.metadata.creation_timestamp is None
    assert msgspec.json.decode(b'{"lastTimestamp":null,"eventTime":null}', type=Event).last_timestamp is None
    condition = b'{"status":{"conditions":[{"type":"Ready","lastTransitionTime":null}]}}'
    assert msgspec.json.decode(condition, type=Node).status.conditions[0].last_transition_time is None
