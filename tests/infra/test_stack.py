"""The synthesised template: what keeps messages, data and permissions safe."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

import shiplap
from shiplap.aws import tags
from shiplap.aws.dynamodb import tables
from shiplap.aws.instance_profiles import profile_parameter
from shiplap.flows.claim_events import disruption_due
from shiplap.flows.messages import Sweep, decode
from shiplap.manifests.nodeclaim import SCHEMA
from shiplap.settings import ResourceNames
from shiplap_cli.installs.releases import LibraryLayer, library_layer
from shiplap_lab.virtual_time.functions import FEEDS, SCHEDULES, WATCH_EVERY_S
from shiplap_lab.virtual_time.functions import FUNCTIONS as FUNCTIONS_SIMULATED

pytest.importorskip("tests.nodejs")  # before the CDK's binding is imported

from aws_cdk import App, Duration, Stack
from aws_cdk import aws_scheduler as scheduler
from aws_cdk import aws_scheduler_targets as scheduler_targets
from aws_cdk import aws_sqs as sqs
from aws_cdk.assertions import Match, Template

from shiplap_cdk.artifacts.service_models import called
from shiplap_cdk.install_document import read
from shiplap_cdk.stack_values import AUDIT_PATTERN
from shiplap_cdk.synthesis import build
from tests import audit_log
from tests.aws_rules.cloud_assembly import Resource as Made
from tests.aws_rules.cloud_assembly import Template as Assembled
from tests.infra.synthesised import (
    FUNCTIONS,
    INSTALL,
    QUEUES,
    Resource,
    actions,
    allowing,
    functions,
    resources,
    started,
    statements,
    template_with,
)


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Template:
    app = build(
        read(INSTALL),
        local=True,
        endpoints={"EC2": "http://127.0.0.1:1"},
        outdir=str(tmp_path_factory.mktemp("local.out")),
    )
    return Template.from_stack(app.node.find_child("Shiplap"))


# Messages


def queues(template: Template) -> Iterator[tuple[str, Resource]]:
    for item in resources(template, "AWS::SQS::Queue").values():
        yield item["Properties"]["QueueName"], item["Properties"]


def test_every_queue_has_dead_letters_that_are_kept_for_two_weeks(template: Template) -> None:
    by_name = dict(queues(template))

    assert set(by_name) == {f"shiplap-{name}{suffix}" for name in QUEUES for suffix in ("", "-dead-letters")}
    for name, queue in by_name.items():
        if name.endswith("-dead-letters"):
            assert queue["MessageRetentionPeriod"] == 14 * 24 * 3600
        else:
            assert queue["RedrivePolicy"]["maxReceiveCount"] == 5


def test_every_queue_is_encrypted_and_refuses_plain_connections(template: Template) -> None:
    for _, queue in queues(template):
        assert queue["SqsManagedSseEnabled"] is True
    refused = [
        statement
        for policy in resources(template, "AWS::SQS::QueuePolicy").values()
        for statement in policy["Properties"]["PolicyDocument"]["Statement"]
        if statement["Effect"] == "Deny"
    ]
    assert len(refused) == 2 * len(QUEUES)
    assert all(statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}} for statement in refused)


@pytest.mark.parametrize(
    ("function", "batch", "window"),
    [("schedule", 1000, 1), ("lifecycle", 10, None), ("interrupt", 10, None)],
    ids=["schedule", "lifecycle", "interrupt"],
)
def test_queues_feed_their_functions_and_only_failed_messages_come_again(
    template: Template, function: str, batch: int, window: int | None
) -> None:
    mappings = [item["Properties"] for item in resources(template, "AWS::Lambda::EventSourceMapping").values()]
    (mapping,) = [mapping for mapping in mappings if started(template, _alias_of(mapping)) == function]

    assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert mapping["BatchSize"] == batch
    assert mapping.get("MaximumBatchingWindowInSeconds") == window
    assert mapping["ScalingConfig"]["MaximumConcurrency"] >= 2


def _alias_of(mapping: Resource) -> str:
    """The logical id of the alias that a queue feeds."""
    found: list[str] = re.findall(r'"Ref": "(\w+)"', json.dumps(mapping["FunctionName"]))
    (alias,) = found
    return alias


def test_a_message_stays_hidden_for_six_times_its_functions_timeout(template: Template) -> None:
    by_name, lambdas = dict(queues(template)), functions(template)

    for queue, function in QUEUES.items():
        assert by_name[f"shiplap-{queue}"]["VisibilityTimeout"] == 6 * lambdas[function]["Timeout"]


@pytest.mark.parametrize(
    ("detail_types", "queue"),
    [(["PodPending"], "shiplap-provisioning"), (["NodeJoined", "NodeReady"], "shiplap-lifecycle")],
    ids=["pods", "nodes"],
)
def test_rules_send_whole_events_of_any_origin_of_ours(template: Template, detail_types: list[str], queue: str) -> None:
    rules = [item["Properties"] for item in resources(template, "AWS::Events::Rule").values()]
    (rule,) = [rule for rule in rules if rule["EventPattern"]["detail-type"] == detail_types]
    (target,) = rule["Targets"]

    assert rule["EventPattern"]["source"] == [{"prefix": "shiplap."}]
    arn = target["Arn"]["Fn::GetAtt"][0]
    assert resources(template, "AWS::SQS::Queue")[arn]["Properties"]["QueueName"] == queue
    assert "DeadLetterConfig" in target
    assert not {"Input", "InputPath", "InputTransformer"} & set(target)


@pytest.mark.parametrize(
    ("source", "detail_type"),
    [
        ("aws.ec2", "EC2 Spot Instance Interruption Warning"),
        ("aws.ec2", "EC2 Instance Rebalance Recommendation"),
        ("aws.ec2", "EC2 Instance State-change Notification"),
        ("aws.ec2", "EC2 Capacity Reservation Instance Interruption Warning"),
        ("aws.health", "AWS Health Event"),
    ],
)
def test_what_aws_says_on_the_default_bus_reaches_interrupt(template: Template, source: str, detail_type: str) -> None:
    rules = [item["Properties"] for item in resources(template, "AWS::Events::Rule").values()]
    (rule,) = [rule for rule in rules if rule["EventPattern"]["detail-type"] == [detail_type]]
    (target,) = rule["Targets"]

    assert rule["EventPattern"]["source"] == [source]
    assert "EventBusName" not in rule
    queue = resources(template, "AWS::SQS::Queue")[target["Arn"]["Fn::GetAtt"][0]]
    assert queue["Properties"]["QueueName"] == "shiplap-interruption"
    assert "DeadLetterConfig" in target
    assert not {"Input", "InputPath", "InputTransformer"} & set(target)


def test_the_simulation_has_the_limits_the_queues_and_the_schedules_of_the_stack(template: Template) -> None:
    lambdas = functions(template)
    mappings = [item["Properties"] for item in resources(template, "AWS::Lambda::EventSourceMapping").values()]
    by_function = {started(template, _alias_of(mapping)): mapping for mapping in mappings}
    units = {"minute": 60, "minutes": 60, "hour": 3600}
    starts = []
    for item in resources(template, "AWS::Scheduler::Schedule").values():
        amount, unit = item["Properties"]["ScheduleExpression"].removeprefix("rate(").rstrip(")").split()
        starts.append((json.loads(item["Properties"]["Target"]["Input"]), int(amount) * units[unit]))

    assert {name: made.timeout_s for name, made in FUNCTIONS_SIMULATED.items()} == {
        name: lambdas[name]["Timeout"] for name in FUNCTIONS_SIMULATED
    }
    assert {name: feed.function for name, feed in FEEDS.items()} == QUEUES
    for feed in FEEDS.values():
        mapping = by_function[feed.function]
        assert (feed.batch_size, feed.window_s) == (
            mapping["BatchSize"],
            mapping.get("MaximumBatchingWindowInSeconds", 0),
        )
        assert feed.max_concurrency == mapping["ScalingConfig"]["MaximumConcurrency"]
    assert sorted(starts, key=str) == sorted(
        [({"clusters": ["edge", "production"]}, WATCH_EVERY_S), *((item.message, item.every_s) for item in SCHEDULES)],
        key=str,
    )


def test_time_starts_each_function_once_for_all_clusters(template: Template) -> None:
    found = [item["Properties"] for item in resources(template, "AWS::Scheduler::Schedule").values()]
    started = sorted((item["Target"]["Input"], item["ScheduleExpression"]) for item in found)

    assert started == [
        ('{"clusters": ["edge", "production"]}', "rate(13 minutes)"),
        ('{"kind": "inspect"}', "rate(5 minutes)"),
        ('{"kind": "sweep"}', "rate(1 minute)"),
        ("{}", "rate(1 hour)"),
        ("{}", "rate(1 minute)"),
    ]
    assert {item["FlexibleTimeWindow"]["Mode"] for item in found} == {"OFF"}


def test_what_the_sweep_sends_is_what_schedule_reads() -> None:
    assert decode(json.dumps({"kind": "sweep"}), "provisioning") == Sweep("")


def test_a_cluster_whose_turn_did_not_come_is_disrupted_by_an_invocation_of_its_own(template: Template) -> None:
    rules = [item["Properties"] for item in resources(template, "AWS::Events::Rule").values()]
    (rule,) = [rule for rule in rules if rule["EventPattern"]["detail-type"] == ["DisruptionDue"]]
    (target,) = rule["Targets"]
    due = disruption_due("edge", "", 0.0)

    assert rule["EventPattern"]["detail"] == {"network": [due.detail["network"]]}
    assert due.source.startswith(rule["EventPattern"]["source"][0]["prefix"])
    assert started(template, target["Arn"]["Ref"]) == "disrupt"
    assert target["RetryPolicy"]["MaximumRetryAttempts"] == 0


def test_what_every_minute_starts_anew_is_neither_repeated_nor_kept_for_later(template: Template) -> None:
    names = {
        id_: item["Properties"]["FunctionName"] for id_, item in resources(template, "AWS::Lambda::Function").items()
    }
    kept = {
        names[item["Properties"]["FunctionName"]["Ref"]]: item["Properties"]
        for item in resources(template, "AWS::Lambda::EventInvokeConfig").values()
    }
    assert kept["shiplap-disrupt"]["MaximumRetryAttempts"] == 0
    assert kept["shiplap-disrupt"]["MaximumEventAgeInSeconds"] == 60
    assert kept["shiplap-watch"]["MaximumEventAgeInSeconds"] < 13 * 60


def test_only_this_stacks_schedules_may_use_the_schedules_role(template: Template) -> None:
    """CreateSchedule refuses a role whose trust names anything but a schedule group."""
    (group,) = resources(template, "AWS::Scheduler::ScheduleGroup")
    assert resources(template, "AWS::Scheduler::ScheduleGroup")[group]["Properties"]["Name"] == "shiplap"

    own = {
        "StringEquals": {
            "aws:SourceAccount": {"Ref": "AWS::AccountId"},
            "aws:SourceArn": {"Fn::GetAtt": [group, "Arn"]},
        }
    }
    assert _scheduler_trust(template) == [own, own]  # of the install's own schedules, and of its clusters'
    assert [_outline(own)] == [_outline(condition) for condition in _scheduler_trust(_scheduled_by_cdk())]


def _scheduler_trust(template: Template) -> list[Any]:
    """The conditions under which EventBridge Scheduler may assume roles that trust it."""
    return [
        statement["Condition"]
        for item in resources(template, "AWS::IAM::Role").values()
        for statement in item["Properties"]["AssumeRolePolicyDocument"]["Statement"]
        if statement["Principal"] == {"Service": "scheduler.amazonaws.com"}
    ]


def _outline(condition: Any) -> str:
    """A condition without logical ids."""
    return re.sub(r'"Fn::GetAtt": \["\w+"', '"Fn::GetAtt": ["X"', json.dumps(condition, sort_keys=True))


def _scheduled_by_cdk() -> Template:
    stack = Stack(App(), "Reference")
    queue = sqs.Queue(stack, "Queue")
    scheduler.Schedule(
        stack,
        "Schedule",
        schedule=scheduler.ScheduleExpression.rate(Duration.minutes(1)),
        schedule_group=scheduler.ScheduleGroup(stack, "Group"),
        target=scheduler_targets.SqsSendMessage(queue),
    )
    return Template.from_stack(stack)


# Data


def test_tables_have_the_keys_the_adapters_use(template: Template) -> None:
    found = [item["Properties"] for item in resources(template, "AWS::DynamoDB::GlobalTable").values()]
    by_key = {table["KeySchema"][0]["AttributeName"]: table for table in found}

    for wanted in (tables.STATE, tables.CAPACITY):
        table = by_key[wanted.partition_key]
        assert [key["AttributeName"] for key in table["KeySchema"]] == [wanted.partition_key, wanted.sort_key]
        assert table["TimeToLiveSpecification"] == {"AttributeName": wanted.expiry, "Enabled": True}
        made = {
            (
                index["IndexName"],
                index["KeySchema"][-1]["AttributeName"],
                index["Projection"]["ProjectionType"],
                tuple(index["Projection"].get("NonKeyAttributes", ())),
            )
            for index in (*table.get("LocalSecondaryIndexes", ()), *table.get("GlobalSecondaryIndexes", ()))
        }
        assert made == {
            (
                index.name,
                index.sort_key or index.partition_key,
                "INCLUDE" if index.with_ else "KEYS_ONLY" if index.keys_only else "ALL",
                index.with_,
            )
            for index in wanted.indexes
        }
        assert {index["IndexName"] for index in table.get("LocalSecondaryIndexes", ())} == {
            index.name for index in wanted.indexes if index.local
        }


RETAINED = ("RetainExceptOnCreate", "Retain")
"""Policies of deletion and replacement: it outlives the stack, unless the deployment that makes it is rolled back."""

_OUTLIVE = {
    "AWS::DynamoDB::GlobalTable": "learned capacity took real nodes to learn",
    "AWS::S3::Bucket": "records explain what was done",
    "AWS::Lambda::LayerVersion": "earlier versions of functions need them",
    "AWS::Lambda::Version": "`shiplap install rollback` goes back to them; one of a failed deployment blocks the next",
    "AWS::IAM::InstanceProfile": "running instances carry it",
}


def test_what_outlives_the_stack_goes_when_its_first_deployment_fails(templates: list[Assembled]) -> None:
    bodies = [json.loads(assembled.path.read_text()) for assembled in templates]
    declared = [resource for body in bodies for resource in body["Resources"].values()]
    kinds: dict[str, set[tuple[str, str]]] = {}
    for resource in declared:
        policies = (resource.get("DeletionPolicy", "Delete"), resource.get("UpdateReplacePolicy", "Delete"))
        kinds.setdefault(resource["Type"], set()).add(policies)

    assert {kind for kind, found in kinds.items() if found == {RETAINED}} == set(_OUTLIVE)
    # Of roles and access entries only those of nodes: the others are of functions, which end with the stack.
    assert kinds["AWS::IAM::Role"] == kinds["AWS::EKS::AccessEntry"] == {RETAINED, ("Delete", "Delete")}
    assert {policy for found in kinds.values() for policy in found} == {RETAINED, ("Delete", "Delete")}


def test_tables_can_be_restored_and_outlive_the_stack(template: Template) -> None:
    found = resources(template, "AWS::DynamoDB::GlobalTable")

    assert len(found) == 2
    for table in found.values():
        assert (table["DeletionPolicy"], table["UpdateReplacePolicy"]) == RETAINED
        assert table["Properties"]["BillingMode"] == "PAY_PER_REQUEST"
        (replica,) = table["Properties"]["Replicas"]
        assert replica["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}


def test_the_bucket_is_private_encrypted_and_forgets_what_is_old(template: Template) -> None:
    template.has_resource(
        "AWS::S3::Bucket",
        {
            "DeletionPolicy": RETAINED[0],
            "Properties": {
                "BucketEncryption": Match.any_value(),
                "VersioningConfiguration": {"Status": "Enabled"},
                "PublicAccessBlockConfiguration": {
                    "BlockPublicAcls": True,
                    "BlockPublicPolicy": True,
                    "IgnorePublicAcls": True,
                    "RestrictPublicBuckets": True,
                },
                "LifecycleConfiguration": {
                    "Rules": Match.array_with(
                        [
                            Match.object_like({"Prefix": "records/", "ExpirationInDays": 14, "Status": "Enabled"}),
                            Match.object_like({"Prefix": "chunks/", "ExpirationInDays": 15, "Status": "Enabled"}),
                            Match.object_like({"Prefix": "catalog/", "ExpirationInDays": 30, "Status": "Enabled"}),
                        ]
                    )
                },
            },
        },
    )
    template.has_resource_properties(
        "AWS::S3::BucketPolicy",
        {
            "PolicyDocument": Match.object_like(
                {
                    "Statement": Match.array_with(
                        [Match.object_like({"Effect": "Deny", "Condition": {"Bool": {"aws:SecureTransport": "false"}}})]
                    )
                }
            )
        },
    )


# Functions


def test_functions_run_on_the_processor_their_layers_are_built_for(template: Template) -> None:
    for function in functions(template).values():
        assert function["Architectures"] == ["arm64"]
        assert function["Runtime"] == "python3.13"
        assert function["Handler"] == "handler.handle"
        assert len(function["Layers"]) == 3


def test_functions_know_their_resources_by_the_names_the_library_reads(template: Template) -> None:
    for name, function in functions(template).items():
        given = function["Environment"]["Variables"]
        unread = {variable for variable in given if variable.startswith("SHIPLAP_")}
        ResourceNames.of(_Reads(unread))
        assert not unread, f"{name} is given {unread}, which nothing reads"
        fed = name in QUEUES.values()
        assert ("SHIPLAP_DEAD_LETTER_QUEUE_URL" in given) == fed


class _Reads(dict[str, str]):
    """An environment that removes from a set what it is asked for."""

    def __init__(self, names: set[str]) -> None:
        super().__init__()
        self._names = names

    def get(self, key: str, default: Any = None) -> Any:
        self._names.discard(key)
        return default


def test_logs_are_kept_for_a_limited_time(template: Template) -> None:
    groups = [item["Properties"] for item in resources(template, "AWS::Logs::LogGroup").values()]

    assert {group["LogGroupName"] for group in groups} == {f"/shiplap/{name}" for name in FUNCTIONS}
    assert {group["RetentionInDays"] for group in groups} == {7}


def test_only_functions_that_talk_to_clusters_sit_in_the_network(template: Template) -> None:
    inside = {name for name, function in functions(template).items() if "VpcConfig" in function}

    assert inside == {"schedule", "lifecycle", "disrupt", "watch"}
    for name in inside:
        assert functions(template)[name]["VpcConfig"] == {
            "SubnetIds": ["subnet-00000001", "subnet-00000002"],
            "SecurityGroupIds": ["sg-00000001"],
        }
    assert set(allowing(template, "ec2:CreateNetworkInterface")) == inside


def test_every_function_is_started_by_the_version_in_service(template: Template) -> None:
    aliases = resources(template, "AWS::Lambda::Alias")
    assert {started(template, alias) for alias in aliases} == set(FUNCTIONS)
    for alias in aliases.values():
        version = alias["Properties"]["FunctionVersion"]["Fn::GetAtt"][0]
        assert resources(template, "AWS::Lambda::Version")[version]["DeletionPolicy"] == RETAINED[0]
    targets = [
        item["Properties"]["Target"]["Arn"].get("Ref")
        for item in resources(template, "AWS::Scheduler::Schedule").values()
    ]
    assert {started(template, target) for target in targets if target} == {"catalog", "disrupt", "watch"}


def test_the_library_layer_says_which_items_it_reads(template: Template) -> None:
    """`shiplap install rollback` knows an earlier release's code by this text alone."""
    descriptions = [
        item["Properties"]["Description"] for item in template.find_resources("AWS::Lambda::LayerVersion").values()
    ]
    found = [layer for layer in (library_layer("arn", text) for text in descriptions) if layer is not None]
    assert found == [LibraryLayer("arn", shiplap.__version__, SCHEMA)]


def test_only_lifecycle_may_go_on_answering_itself(template: Template) -> None:
    """Lambda ends chains of about 16 messages from a function to itself, unless it is told that they are meant."""
    allowed = {name for name, function in functions(template).items() if function.get("RecursiveLoop") == "Allow"}

    assert allowed == {"lifecycle"}


def test_snapshots_and_traces_are_off_until_they_are_asked_for(template: Template, tmp_path: Path) -> None:
    assert not [item for item in functions(template).values() if "SnapStart" in item or "TracingConfig" in item]
    settings = tmp_path / "shiplap.yaml"
    text = INSTALL.read_text().replace("manifests/", f"{INSTALL.parent}/manifests/")
    settings.write_text(f"snapStart: true\ntracing: true\n{text}")

    app = build(read(settings), outdir=str(tmp_path / "cdk.out"))
    asked = Template.from_stack(app.node.find_child("Shiplap"))

    for function in functions(asked).values():
        assert function["SnapStart"] == {"ApplyOn": "PublishedVersions"}
        assert function["TracingConfig"] == {"Mode": "Active"}
    assert set(allowing(asked, "xray:PutTraceSegments")) == set(FUNCTIONS)
    assert set(allowing(template, "xray:PutTraceSegments")) == set()
    app.synth()  # cdk-nag finds nothing


# Permissions


def test_only_schedule_launches_and_only_with_our_tag(template: Template) -> None:
    for action in ("ec2:RunInstances", "ec2:CreateFleet", "ec2:CreateLaunchTemplate"):
        assert set(allowing(template, action)) == {"schedule"}
    for statement in allowing(template, "ec2:CreateFleet")["schedule"]:
        arns = json.dumps(statement["Resource"])
        condition = statement.get("Condition")
        if "launch-template/" in arns:
            assert condition == _of_install("ResourceTag")
        elif any(f"{kind}/" in arns for kind in ("instance", "volume", "fleet", "network-interface")):
            assert condition == _of_install("RequestTag")
        else:
            assert "image/" in arns
            assert "instance/" not in arns


def _of_install(context: str) -> Resource:
    """The condition that binds to the install; its clusters are not listed, for the list would outgrow a policy."""
    present = {f"aws:{context}/{tag}": "*" for tag in (tags.CLUSTER, tags.NODE_POOL)}
    return {"StringEquals": {f"aws:{context}/{tags.INSTALL}": "shiplap"}, "StringLike": present}


def test_what_other_accounts_share_may_be_launched_with_and_nothing_else_of_theirs(template: Template) -> None:
    """As in upstream's policy; AWS RAM shares these four, and images and snapshots have no account in their ARN."""
    shared = {"security-group", "subnet", "capacity-reservation", "placement-group", "image", "snapshot"}
    of_any_account = {
        found
        for name in FUNCTIONS
        for statement in statements(template, name)
        if any(action.startswith("ec2:") for action in actions(statement))
        for found in re.findall(r'"(?::[^:"]*)?:[*]?:([a-z-]+)/', json.dumps(statement["Resource"]))
    }

    assert of_any_account == shared


def test_tags_are_written_while_something_is_made_and_later_only_names_of_our_instances(template: Template) -> None:
    making, naming = (statement["Condition"] for statement in allowing(template, "ec2:CreateTags")["schedule"])

    assert set(allowing(template, "ec2:CreateTags")) == {"schedule"}
    assert making["StringEquals"]["ec2:CreateAction"] == ["RunInstances", "CreateFleet", "CreateLaunchTemplate"]
    assert naming["ForAllValues:StringEquals"] == {"aws:TagKeys": ["Name", "shiplap.dev/nodeclaim"]}
    assert any(key.startswith("aws:ResourceTag/") for key in naming["StringEquals"])


def test_the_widget_may_read_claims_and_nothing_else(template: Template) -> None:
    asked = [item for item in statements(template, "widget") if not all(a.startswith("logs:") for a in actions(item))]
    assert [actions(item) for item in asked] == [{"dynamodb:Query"}, {"s3:GetObject"}, {"s3:ListBucket"}]
    assert "/index/stage-index" in str(asked[0]["Resource"])
    assert "/clusters/*" in str(asked[1]["Resource"])
    assert "VpcConfig" not in functions(template)["widget"]


def test_interrupt_asks_neither_ec2_nor_a_cluster(template: Template) -> None:
    allowed = {action for statement in statements(template, "interrupt") for action in actions(statement)}

    assert {action.partition(":")[0] for action in allowed} == {"sqs", "dynamodb", "events", "logs"}
    assert {action for action in allowed if action.startswith("dynamodb:")} == {
        "dynamodb:GetItem",
        "dynamodb:PutItem",
        "dynamodb:Query",
    }


def test_only_lifecycle_ends_instances_and_only_ours(template: Template) -> None:
    (statement,) = allowing(template, "ec2:TerminateInstances")["lifecycle"]

    assert set(allowing(template, "ec2:TerminateInstances")) == {"lifecycle"}
    assert "instance/*" in json.dumps(statement["Resource"])
    assert statement["Condition"] == _of_install("ResourceTag")


def test_only_node_roles_are_passed_and_only_to_ec2(template: Template) -> None:
    own, others = allowing(template, "iam:PassRole")["schedule"]

    assert set(allowing(template, "iam:PassRole")) == {"schedule"}
    for statement in (own, others):
        assert statement["Condition"]["StringEquals"]["iam:PassedToService"] == ["ec2.amazonaws.com"]
    named = json.dumps(others["Resource"])
    assert "role/edge-nodes" in named
    assert "role/path/windows-nodes" in named
    assert len(others["Resource"]) == 2
    assert own["Resource"]["Fn::Join"][1][-1] == ":role/shiplap/eu-west-1/shiplap/*"


def test_the_stacks_node_role_is_apart_from_other_installs_and_regions(templates: list[Assembled]) -> None:
    (role,) = [item.properties for item in _of(templates, "AWS::IAM::Role") if "Path" in item.properties]

    assert role["Path"] == "/shiplap/eu-west-1/shiplap/production/"


def _of(templates: list[Assembled], kind: str) -> list[Made]:
    return [item for template in templates for item in template.resources() if item.type == kind]


def test_everything_the_adapters_call_is_allowed_to_some_function(template: Template) -> None:
    adapters = Path(tables.__file__).parents[1]
    wanted = {
        f"{service}:{operation}"
        for service, operations in called(sorted(adapters.rglob("*.py"))).items()
        for operation in operations
    }
    # A transaction is allowed by what it does to items, an object's head like the object; only the command line reads a
    # whole table or lists records. A secret is read only where a cluster is entered by a kubeconfig.
    wanted -= {"dynamodb:TransactWriteItems", "dynamodb:Scan", "s3:ListObjectsV2", "s3:HeadObject"}
    wanted -= {"secretsmanager:GetSecretValue"}
    # Commitments are described only by an install that counts on a share of them, which has a test of its own.
    wanted -= {"ec2:DescribeReservedInstances"}
    # Nodes are rebooted only where a repair policy asks for it, which has a test of its own, too.
    wanted -= {"ec2:RebootInstances"}
    wanted -= {"savingsplans:DescribeSavingsPlans", "savingsplans:DescribeSavingsPlanRates"}
    allowed = {
        action for name in FUNCTIONS for statement in statements(template, name) for action in actions(statement)
    }

    assert len(wanted) > 20
    assert wanted - allowed == set()


def test_who_reads_objects_is_told_when_there_are_none(template: Template) -> None:
    readers = allowing(template, "s3:GetObject")

    assert set(readers) == {"schedule", "catalog", "disrupt", "watch", "widget"}
    assert set(allowing(template, "s3:ListBucket")) == set(readers)
    for (statement,) in allowing(template, "s3:ListBucket").values():
        assert "Condition" not in statement
        assert "/" not in json.dumps(statement["Resource"])


def test_statements_of_a_policy_have_names_of_their_own(template: Template) -> None:
    for function in FUNCTIONS:
        names = [statement["Sid"] for statement in statements(template, function) if "Sid" in statement]
        assert len(set(names)) == len(names)


def test_no_action_is_a_wildcard(template: Template) -> None:
    for policy in resources(template, "AWS::IAM::Policy").values():
        for statement in policy["Properties"]["PolicyDocument"]["Statement"]:
            assert statement["Effect"] == ("Deny" if statement.get("Sid") == "LeaveNetworkToLambda" else "Allow")
            assert not [action for action in actions(statement) if "*" in action]


def test_everything_is_allowed_only_for_what_knows_no_resources(template: Template) -> None:
    anywhere = {
        action
        for function in FUNCTIONS
        for statement in statements(template, function)
        if statement["Resource"] == "*"
        for action in actions(statement)
    }

    network = {
        "CreateNetworkInterface",
        "DeleteNetworkInterface",
        "AssignPrivateIpAddresses",
        "UnassignPrivateIpAddresses",
    }
    others = {action for action in anywhere if not action.startswith("ec2:Describe")}
    assert others == {
        "pricing:GetProducts",
        "arc-zonal-shift:GetManagedResource",
        "iam:ListInstanceProfiles",
        "iam:ListRoles",
        *(f"ec2:{action}" for action in network),
    }


def test_zonal_shifts_are_read_of_clusters_that_heed_them_named_by_a_condition(template: Template) -> None:
    """ARC takes no ARN of EKS for a resource."""
    allowed = allowing(template, "arc-zonal-shift:GetManagedResource")

    assert set(allowed) == {"schedule", "disrupt"}
    for (statement,) in allowed.values():
        named = statement["Condition"]["StringEquals"].pop("arc-zonal-shift:ResourceIdentifier")
        assert json.dumps(named).count("cluster/") == 1
        assert "cluster/production" in json.dumps(named)
        assert statement["Condition"] == {"StringEquals": {}}


def test_images_are_found_by_public_parameters_and_those_that_manifests_name(template: Template) -> None:
    public, profiles, own = allowing(template, "ssm:GetParameters")["schedule"]

    assert "::parameter/aws/service/*" in json.dumps(public["Resource"])
    assert profiles["Resource"]["Fn::Join"][1][-1] == ":parameter/shiplap/shiplap/*"
    assert ":parameter/images/golden" in json.dumps(own["Resource"])
    assert "arn:aws:ssm:eu-west-1:210987654321:parameter/shared/golden" in own["Resource"]
    assert len(own["Resource"]) == 2


@pytest.mark.parametrize("action", ["kms:CreateGrant", "kms:GenerateDataKeyWithoutPlaintext"])
def test_schedule_may_have_ec2_use_the_keys_that_manifests_name(template: Template, action: str) -> None:
    allowed = allowing(template, action)
    assert set(allowed) == {"schedule"}
    by_id, by_alias = allowed["schedule"]
    for statement in (by_id, by_alias):
        assert "ec2." in json.dumps(statement["Condition"]["StringEquals"]["kms:ViaService"])
        assert (action == "kms:CreateGrant") == ("Bool" in statement["Condition"])
    assert "key/1234abcd-12ab-34cd-56ef-1234567890ab" in json.dumps(by_id["Resource"])
    assert by_alias["Condition"]["ForAnyValue:StringEquals"] == {"kms:ResourceAliases": ["alias/nodes"]}


def test_functions_enter_clusters_of_eks_as_a_group(templates: list[Assembled]) -> None:
    entries = [item.properties for item in _of(templates, "AWS::EKS::AccessEntry")]
    standard = [entry for entry in entries if entry["Type"] == "STANDARD"]

    assert len({entry["PrincipalArn"] for entry in standard}) == len(standard) == 4
    assert {entry["ClusterName"] for entry in entries} == {"production"}
    assert all(entry["KubernetesGroups"] == ["shiplap"] for entry in standard)
    assert all("AccessPolicies" not in entry for entry in entries), "RBAC alone says what the group may do"
    (nodes,) = [entry for entry in entries if entry["Type"] != "STANDARD"]
    assert nodes["Type"] == "EC2_LINUX"
    (role,) = [item for item in _of(templates, "AWS::IAM::Role") if "Path" in item.properties]
    assert nodes["PrincipalArn"] == role.template.arn(role.logical_id)
    assert nodes["Tags"] == [
        {"Key": "app.kubernetes.io/part-of", "Value": "shiplap"},
        {"Key": "shiplap.dev/install", "Value": "shiplap"},
    ]


def test_every_role_of_the_manifests_has_an_instance_profile(templates: list[Assembled]) -> None:
    profiles = {
        item.template.physical_name(item.logical_id): (item.properties["Path"], item.properties["Roles"])
        for item in _of(templates, "AWS::IAM::InstanceProfile")
    }
    (own,) = [item for item in _of(templates, "AWS::IAM::Role") if "Path" in item.properties]
    named = {item.properties["Name"]: item.properties["Value"] for item in _of(templates, "AWS::SSM::Parameter")}

    of_production = profile_parameter("shiplap", "production", "shiplap-node-production")
    of_edge = profile_parameter("shiplap", "edge", "edge-nodes")
    assert {name: profiles[profile] for name, profile in named.items()} == {
        of_edge: ("/shiplap/eu-west-1/shiplap/edge/edge-nodes/", ["edge-nodes"]),
        of_production: (
            "/shiplap/eu-west-1/shiplap/production/shiplap-node-production/",
            [own.template.physical_name(own.logical_id)],
        ),
    }


def test_cdk_nag_finds_nothing_that_is_not_explained(app: App) -> None:
    app.synth()  # a finding without an explanation fails it

    report = json.loads((Path(app.outdir) / "validation-report.json").read_text())
    packs = {pack["pluginName"]: pack for pack in report["pluginReports"]}
    assert all(pack["conclusion"] == "success" for pack in packs.values()), packs
    pack = packs["AwsSolutions"]
    assert pack["violations"] == []
    assert all(len(item["reason"]) > 40 for item in pack["suppressedViolations"])


# The local stage


def test_the_local_template_is_the_deployed_one_but_for_layers_and_endpoints(
    template: Template, local: Template
) -> None:
    deployed, here = template.to_json(), local.to_json()
    for resource in here["Resources"].values():
        variables = resource["Properties"].get("Environment", {}).get("Variables", {})
        if resource["Type"] == "AWS::Lambda::Function":
            assert variables.pop("AWS_ENDPOINT_URL_EC2") == "http://127.0.0.1:1"

    assert _without_assets(here) == _without_assets(deployed)


def _without_assets(template: dict[str, Any]) -> dict[str, Any]:
    """Without the names of the layers' contents and of what depends on them."""
    # The name of a version ends in what its function and layers come to.
    named = re.sub(r"(CurrentVersion[0-9A-F]{8})[0-9a-f]{32}", r"\1", json.dumps(template))
    copy: dict[str, Any] = json.loads(named)
    for resource in copy["Resources"].values():
        if resource["Type"] == "AWS::Lambda::LayerVersion":
            resource["Properties"].pop("Content")
    return copy


def test_kubeconfigs_are_read_by_functions_that_enter_clusters_and_only_those_named(tmp_path: Path) -> None:
    secret = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:edge-AbCdEf"
    settings = tmp_path / "shiplap.yaml"
    text = INSTALL.read_text().replace("manifests/", f"{INSTALL.parent}/manifests/")
    settings.write_text(text.replace("    endpoint:", f"    kubeconfigSecret: {secret}\n    endpoint:"))

    app = build(read(settings), outdir=str(tmp_path / "cdk.out"))
    made = Template.from_stack(app.node.find_child("Shiplap"))

    allowed = allowing(made, "secretsmanager:GetSecretValue")
    assert set(allowed) == {"schedule", "lifecycle", "disrupt", "watch"}
    assert {statement["Resource"] for found in allowed.values() for statement in found} == {secret}
    app.synth()  # cdk-nag finds nothing


# The audit log as a source


def test_audit_logs_reach_the_function_of_clusters_that_ask_for_it(templates: list[Assembled]) -> None:
    (subscription,) = _of(templates, "AWS::Logs::SubscriptionFilter")
    (permission,) = [
        item.properties
        for item in _of(templates, "AWS::Lambda::Permission")
        if item.properties["Principal"] == "logs.amazonaws.com"
    ]

    group = "/aws/eks/production/cluster"
    assert subscription.properties["LogGroupName"] == group
    assert subscription.properties["DestinationArn"] == permission["FunctionName"]
    assert permission["FunctionName"].endswith(":live")
    assert permission["SourceAccount"] == "123456789012"
    assert fnmatch(f"arn:aws:logs:eu-west-1:123456789012:log-group:{group}:*", permission["SourceArn"])
    assert permission["SourceArn"].startswith("arn:aws:logs:eu-west-1:123456789012:log-group:/aws/eks/")


def test_clusters_are_subscribed_after_cloudwatch_may_deliver(template: Template) -> None:
    (stack,) = [
        item for id_, item in resources(template, "AWS::CloudFormation::Stack").items() if "Clusterproduction" in id_
    ]
    (delivery,) = [id_ for id_ in resources(template, "AWS::Lambda::Permission") if "AuditDelivery" in id_]

    assert delivery in stack["DependsOn"]


def test_audit_may_put_events_on_our_bus_and_nothing_else(template: Template) -> None:
    allowed = {action for statement in statements(template, "audit") for action in actions(statement)}

    assert {action for action in allowed if not action.startswith("logs:")} == {"events:PutEvents"}


def test_without_a_cluster_that_asks_for_it_there_is_no_audit_function(tmp_path: Path) -> None:
    settings = tmp_path / "shiplap.yaml"
    text = INSTALL.read_text().replace("manifests/", f"{INSTALL.parent}/manifests/")
    settings.write_text(text.replace("    audit: true\n", ""))

    plain = Template.from_stack(build(read(settings), outdir=str(tmp_path / "cdk.out")).node.find_child("Shiplap"))

    assert set(functions(plain)) == set(FUNCTIONS) - {"audit"}
    assert not [id_ for id_ in resources(plain, "AWS::Lambda::Permission") if "AuditDelivery" in id_]


@pytest.mark.parametrize(
    ("record", "passes"),
    [
        (audit_log.record(), True),
        (audit_log.left_out(), True),
        (audit_log.record(user={"username": "system:serviceaccount:batch:my-scheduler"}), True),
        (audit_log.of_kubelet(), False),
        (audit_log.record(audit_log.pending_pod(nodeName="ip-10-0-1-2")), False),
        (audit_log.record(stage="RequestReceived"), False),
        (audit_log.record(objectRef={"resource": "pods", "name": "web", "subresource": "binding"}), False),
        (audit_log.record(objectRef={"resource": "nodes", "name": "ip-1", "subresource": "status"}), False),
        (audit_log.record(objectRef=None), False),
    ],
    ids=["pending", "objects left out", "own scheduler", "kubelet", "bound", "begun", "binding", "node", "no object"],
)
def test_cloudwatch_passes_on_only_what_can_be_a_pod_that_waits(record: Resource, passes: bool) -> None:
    assert _passes(AUDIT_PATTERN, record) is passes
    assert len(AUDIT_PATTERN) <= 1024


def _passes(pattern: str, record: Resource) -> bool:
    """CloudWatch's filter patterns, as far as ours uses them: all terms must hold."""
    terms = re.findall(r"\(([^()]+)\)", pattern)
    assert "{ " + " && ".join(f"({term})" for term in terms) + " }" == pattern
    return all(_holds(term, record) for term in terms)


def _holds(term: str, record: Resource) -> bool:
    path, operator = term.split(" ", 1)
    value: Any = record
    for key in path.removeprefix("$.").split("."):
        value = value.get(key) if isinstance(value, dict) else None
    if operator == "NOT EXISTS":
        return value is None
    sign, text = operator.split(" ", 1)
    same = value is not None and fnmatch(value, json.loads(text))
    return {"=": same, "!=": value is not None and not same}[sign]


def test_the_headers_for_a_collector_are_read_by_the_functions_that_send_metrics(tmp_path: Path) -> None:
    secret = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:otlp-a1b2c3"
    template = template_with(
        tmp_path, f"otlp: {{endpoint: 'https://otel.example.com/v1/metrics', headersSecret: '{secret}'}}"
    )

    readers = {
        name
        for name, policy in template.find_resources("AWS::IAM::Policy").items()
        for statement in policy["Properties"]["PolicyDocument"]["Statement"]
        if statement["Resource"] == secret and statement["Action"] == "secretsmanager:GetSecretValue"
    }
    assert len(readers) == 2
    assert {next(role for role in ("Schedule", "Disrupt") if role in name) for name in readers} == {
        "Schedule",
        "Disrupt",
    }
