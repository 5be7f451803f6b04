"""Requests hold as much as AWS takes, and no more: by the bounds of botocore's models, or else of the documentation."""

from __future__ import annotations

from botocore.session import get_session

from shiplap.aws import bus
from shiplap.aws.dynamodb import items, shared_state, state_table
from shiplap.aws.ec2 import ec2_compute, fleet_requests, launch_templates
from shiplap.aws.selectors import parameters
from shiplap.cluster import eks_token
from shiplap.ports import COMMIT_GROUP


def most(service: str, shape: str) -> int:
    """The most that the model of a service allows of a list, a text or a number."""
    return int(get_session().get_service_model(service).shape_for(shape).metadata["max"])


def test_dynamodb() -> None:
    assert items.BATCH_OF_KEYS == most("dynamodb", "KeyList") == 100
    assert state_table._BATCH == most("dynamodb", "WriteRequests") == 25
    assert shared_state._BATCH == most("dynamodb", "TransactWriteItemList") == 100
    assert most("dynamodb", "TransactWriteItemList") == 1 + COMMIT_GROUP


def test_ec2() -> None:
    configs = get_session().get_service_model("ec2").operation_model("CreateFleet").input_shape
    assert fleet_requests.MAX_TEMPLATES == configs.members["LaunchTemplateConfigs"].metadata["max"] == 50
    assert launch_templates._NAMES_PER_CALL == most("ec2", "DescribeLaunchTemplatesMaxResults") == 200
    assert fleet_requests.MAX_OVERRIDES == 300, "launch template overrides per fleet, by the quotas of EC2 Fleet"
    assert fleet_requests.MAX_TYPES == 60, "as many as upstream asks for: maxInstanceTypes"
    assert fleet_requests._MAX_TOKEN == 64, "ASCII characters of a client token"
    assert ec2_compute._VALUES == 200, "values of the filters of one request"


def test_others() -> None:
    assert parameters._PER_CALL == most("ssm", "ParameterNameList") == 10
    assert bus._ENTRIES == most("events", "PutEventsRequestEntryList") == 10
    assert bus._BYTES == 256 * 1024, "of all entries of one PutEvents"
    assert eks_token._URL_EXPIRES_S == 60, "as `aws eks get-token` signs it"
    assert eks_token._VALID_S == 15 * 60, "as long as the control plane accepts it"
