"""`shiplap status fleet` on 50 clusters of ten nodes, in one install and in 50: from the first client to the document.

AWS is played by moto behind botocore's own clients. Its answers are made in a first round and given again in the
second, which is measured, each after 15 ms.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from botocore.awsrequest import AWSResponse
from moto import mock_aws
from moto.core.botocore_stubber import BotocoreStubber, MockRawResponse

from shiplap.aws.bucket import BucketStatus
from shiplap.aws.dynamodb import tables
from shiplap.aws.dynamodb.state_table import DynamoState
from shiplap.instances.readiness.nodeclass_status import ClusterStatus, InstallStatus, NodeClassStatus, conditions
from shiplap.manifests.files.described_installs import DescribedInstall
from shiplap.manifests.nodeclaim import ClaimState
from shiplap_cli.commands.status.fleet_document import FleetDocument, fleet_document
from shiplap_cli.commands.status.fleet_reading import AwsClients, read_fleet
from tests.builders.claims import changes, node_claim
from tests.integration.contracts.in_process_aws import create_table, make_client

CLUSTERS, NODES, LATENCY_S, NOW = 50, 10, 0.015, time.time()
REGION = "eu-west-1"
_ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_REGION": REGION,
    "AWS_DEFAULT_REGION": REGION,
    "MOTO_EC2_LOAD_DEFAULT_AMIS": "false",
}


def deploy(stack: str, clusters: list[str]) -> None:
    dynamodb, s3 = make_client("dynamodb"), make_client("s3")
    create_table(dynamodb, f"{stack}-state", tables.STATE)
    s3.create_bucket(Bucket=stack, CreateBucketConfiguration={"LocationConstraint": REGION})
    classes = (NodeClassStatus("default", "0" * 12, conditions(()), "AL2023"),)
    BucketStatus(s3, stack).save(InstallStatus(tuple(ClusterStatus(name, REGION, NOW, classes) for name in clusters)))
    outputs = {"Bucket": stack, "StateTable": f"{stack}-state"}
    template = {
        "Resources": {"Topic": {"Type": "AWS::SNS::Topic"}},
        "Outputs": {name: {"Value": value} for name, value in outputs.items()},
    }
    make_client("cloudformation").create_stack(StackName=stack, TemplateBody=json.dumps(template))
    state = DynamoState(dynamodb, f"{stack}-state")
    for cluster in clusters:
        made = [
            node_claim(cluster=cluster, name=f"node-{n}", node_pool="default", node_class="default")
            for n in range(NODES)
        ]
        state.commit(cluster, 0, made)
        for claim in made:
            launching = state.advance(claim, ClaimState.LAUNCHING)
            fields = changes(launching, instance_id=f"i-{cluster}-{claim.name}", hourly=0.1)
            state.advance(launching, ClaimState.LAUNCHED, **fields)


def remembering() -> Callable[..., Any]:
    """Moto's answers, by request; those that are known come after a while, as AWS's do."""
    known: dict[Any, Any] = {}
    ask = BotocoreStubber.__call__

    def answer(stubber: BotocoreStubber, event_name: str, request: Any, **more: Any) -> Any:
        key = (request.method, request.url, request.headers.get("X-Amz-Target"), request.body)
        if key in known:
            time.sleep(LATENCY_S)
            given, body = known[key]
            return AWSResponse(given.url, given.status_code, given.headers, MockRawResponse(body))
        given = ask(stubber, event_name, request, **more)
        known[key] = given, given.content
        return AWSResponse(given.url, given.status_code, given.headers, MockRawResponse(given.content))

    return answer


def measured(installs: list[DescribedInstall]) -> tuple[FleetDocument, float]:
    cpu, begun = time.process_time(), time.monotonic()
    found = read_fleet(installs, AwsClients().of, NOW)
    return fleet_document(found, NOW, time.monotonic() - begun), time.process_time() - cpu


def main() -> None:
    with patch.dict(os.environ, _ENVIRONMENT), mock_aws():
        names = [f"cluster-{number}" for number in range(CLUSTERS)]
        deploy("whole", names)
        for name in names:
            deploy(f"of-{name}", [name])
        one = [DescribedInstall(name="whole", region=REGION, stack="whole")]
        many = [DescribedInstall(name=name, region=REGION, stack=f"of-{name}") for name in names]
        print(f"{CLUSTERS} clusters of {NODES} nodes; every request waits {LATENCY_S * 1000:.0f} ms")
        for label, installs in (("one install", one), (f"{CLUSTERS} installs", many)):
            with patch.object(BotocoreStubber, "__call__", remembering()):
                measured(installs)
                document, cpu = measured(installs)
            assert (document.clusters, document.nodes) == (CLUSTERS, CLUSTERS * NODES), document
            print(f"{label:<14} {document.seconds:6.2f} s, of which processor {cpu:5.2f} s")


if __name__ == "__main__":
    main()
