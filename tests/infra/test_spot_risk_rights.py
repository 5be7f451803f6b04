"""Evidence about spot is written by three functions, to one partition, and only where it is switched on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

CAPACITY = "arn:aws:dynamodb:eu-west-1:123456789012:table/capacity"


def rights(function: str, *, learns: bool) -> list[dict[str, Any]]:
    """Return the policy statements of a function; plain words stand for the resources in the statements."""
    from shiplap_cdk.constructs import permissions  # noqa: PLC0415 - the CDK's binding starts Node.js when it is imported

    table = SimpleNamespace(table_arn=CAPACITY)
    bucket = SimpleNamespace(bucket_arn="arn:aws:s3:::bucket", arn_for_objects=lambda key: f"arn:aws:s3:::bucket/{key}")
    queue = SimpleNamespace(queue_arn="arn:aws:sqs:eu-west-1:123456789012:queue")
    targets = permissions.PolicyTargets(
        storage=SimpleNamespace(state=table, capacity=table, bucket=bucket),  # type: ignore[arg-type]
        bus_arn="arn:aws:events:eu-west-1:123456789012:event-bus/bus",
        install="shiplap",
        timers=(queue.queue_arn,),
        feeds=dict.fromkeys(("schedule", "lifecycle", "interrupt"), SimpleNamespace(queue=queue, dead_letters=queue)),  # type: ignore[arg-type]
        clusters=(),
        shifting=(),
        own_node_roles="",
        identity_path="/shiplap/eu-west-1/shiplap/",
        node_roles=(),
        image_parameters=(),
        volume_keys=(),
        kubeconfig_secrets=(),
        metrics_secret="",
        has_live_manifests=False,
        of_install={},
        policies=("spot_risk",) if learns else (),
        ec2_principals=("ec2.amazonaws.com",),
    )
    return [statement.to_statement_json() for statement in getattr(permissions, function)(targets)]


@pytest.mark.parametrize("function", ["schedule", "lifecycle", "interrupt", "disrupt", "catalog", "watch"])
def test_evidence_is_written_to_its_partition_where_it_arises(function: str) -> None:
    off, on = rights(function, learns=False), rights(function, learns=True)

    added = [statement for statement in on if statement not in off]
    arises = function in ("schedule", "lifecycle", "interrupt")
    assert [statement["Sid"] for statement in added] == ["NoteSpotEvidence"] * arises
    for statement in added:
        assert (statement["Action"], statement["Resource"]) == ("dynamodb:UpdateItem", CAPACITY)
        assert statement["Condition"] == {"ForAllValues:StringEquals": {"dynamodb:LeadingKeys": ["@spot"]}}
    assert all(statement in on for statement in off)
