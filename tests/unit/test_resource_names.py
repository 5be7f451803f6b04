"""Tests the settings in a function's environment, and the clusters that the function serves."""

from __future__ import annotations

import pytest

from shiplap.errors import InvalidInput
from shiplap.settings import ClusterSettings, ResourceNames, Settings

GIVEN = {
    "SHIPLAP_STATE_TABLE": "state",
    "SHIPLAP_LIFECYCLE_QUEUE_URL": "https://sqs/lifecycle",
    "SHIPLAP_NETWORK": "blue",
}


def test_names_come_from_the_environment_and_what_is_not_given_is_empty() -> None:
    names = ResourceNames.of(GIVEN)

    assert (names.state_table, names.network, names.bus) == ("state", "blue", "")
    assert names.lifecycle_queue_urls == {}


def test_timers_go_to_the_queue_of_the_clusters_network() -> None:
    urls = '{"": "https://sqs/lifecycle", "blue": "https://sqs/lifecycle-blue"}'
    outside = ResourceNames.of({"SHIPLAP_LIFECYCLE_QUEUE_URLS": urls})
    inside = ResourceNames.of(GIVEN)

    assert outside.lifecycle_queue_of("") == "https://sqs/lifecycle"
    assert outside.lifecycle_queue_of("blue") == "https://sqs/lifecycle-blue"
    assert inside.lifecycle_queue_of("blue") == "https://sqs/lifecycle"


@pytest.mark.parametrize("text", ["[]", "{", '{"blue": 1}'])
def test_addresses_that_are_no_json_object_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="SHIPLAP_LIFECYCLE_QUEUE_URLS"):
        ResourceNames.of({"SHIPLAP_LIFECYCLE_QUEUE_URLS": text})


def test_a_function_serves_the_clusters_of_its_network() -> None:
    edge = ClusterSettings(name="edge", region="eu-west-1")
    inner = ClusterSettings(name="inner", region="eu-west-1", network="blue")
    settings = Settings((edge, inner))

    assert settings.of_network("") == (edge,)
    assert settings.of_network("blue") == (inner,)
    assert settings.of_network("green") == ()
