"""The resource types of the template, and their counterparts in Terraform's providers.

The provider hashicorp/awscc asks Cloud Control for the resources that CloudFormation describes, so a conversion is a
change of names. The provider hashicorp/aws has structures of its own for each type; it would need a converter for
each. It is used where Cloud Control has no type: inline policies of roles, and the objects with the functions' code.
Wrapping the whole template in one resource would hide every resource from a plan.

A property is listed here once somebody has looked at how awscc takes it: some are JSON texts, some are maps whose keys
are the user's. A property that is not listed is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

ROLE_POLICY = "AWS::IAM::Policy"
NESTED_STACK = "AWS::CloudFormation::Stack"


class ResourceType(Struct, frozen=True):
    """One type of the template: its properties, and what a reference to it means."""

    properties: frozenset[str]
    ref: str = ""
    """The attribute that `Ref` yields; a type without one cannot be referred to."""
    documents: frozenset[str] = frozenset()
    """The properties that awscc takes as JSON text."""
    maps: frozenset[str] = frozenset()
    """The paths of maps whose keys are kept as they are."""
    code: str = ""
    """The property that names an archive in the bucket of the assets."""


def _type(properties: str, ref: str = "", *, documents: str = "", maps: str = "", code: str = "") -> ResourceType:
    return ResourceType(frozenset(properties.split()), ref, frozenset(documents.split()), frozenset(maps.split()), code)


TYPES: Mapping[str, ResourceType] = {
    "AWS::CloudWatch::Alarm": _type(
        "ActionsEnabled AlarmActions AlarmDescription AlarmName ComparisonOperator Dimensions EvaluationPeriods"
        " DatapointsToAlarm ExtendedStatistic MetricName Metrics Namespace OKActions Period Statistic Tags Threshold"
        " TreatMissingData Unit"
    ),
    "AWS::CloudWatch::Dashboard": _type("DashboardBody DashboardName Tags"),
    "AWS::DynamoDB::GlobalTable": _type(
        "AttributeDefinitions BillingMode GlobalSecondaryIndexes KeySchema LocalSecondaryIndexes Replicas"
        " SSESpecification TimeToLiveSpecification",
        "table_name",
    ),
    "AWS::EKS::AccessEntry": _type("ClusterName KubernetesGroups PrincipalArn Tags Type"),
    "AWS::Events::EventBus": _type("Name Tags", "name"),
    "AWS::Events::Rule": _type(
        "Description EventBusName EventPattern State Tags Targets",
        documents="EventPattern",
        maps="Targets.InputTransformer.InputPathsMap",
    ),
    "AWS::IAM::InstanceProfile": _type("Path Roles", "instance_profile_name"),
    "AWS::IAM::ManagedPolicy": _type("Description Path PolicyDocument Roles", documents="PolicyDocument"),
    ROLE_POLICY: _type("PolicyDocument PolicyName Roles", documents="PolicyDocument"),
    "AWS::IAM::Role": _type(
        "AssumeRolePolicyDocument Description ManagedPolicyArns Path PermissionsBoundary Tags",
        "role_name",
        documents="AssumeRolePolicyDocument",
    ),
    "AWS::Lambda::Alias": _type("FunctionName FunctionVersion Name", "alias_arn"),
    "AWS::Lambda::EventInvokeConfig": _type(
        "FunctionName MaximumEventAgeInSeconds MaximumRetryAttempts Qualifier DestinationConfig"
    ),
    "AWS::Lambda::EventSourceMapping": _type(
        "BatchSize EventSourceArn FunctionName FunctionResponseTypes MaximumBatchingWindowInSeconds ScalingConfig Tags"
    ),
    "AWS::Lambda::Function": _type(
        "Architectures Code Description Environment FunctionName Handler Layers LoggingConfig MemorySize RecursiveLoop"
        " Role Runtime SnapStart Tags Timeout TracingConfig VpcConfig",
        "function_name",
        maps="Environment.Variables",
        code="Code",
    ),
    "AWS::Lambda::LayerVersion": _type(
        "CompatibleArchitectures CompatibleRuntimes Content Description", "layer_version_arn", code="Content"
    ),
    "AWS::Lambda::Permission": _type("Action FunctionName Principal SourceAccount SourceArn"),
    "AWS::Lambda::Version": _type("FunctionName", "function_arn"),
    "AWS::Logs::LogGroup": _type("LogGroupName RetentionInDays Tags", "log_group_name"),
    "AWS::Logs::SubscriptionFilter": _type("DestinationArn FilterName FilterPattern LogGroupName"),
    "AWS::S3::Bucket": _type(
        "BucketEncryption LifecycleConfiguration OwnershipControls PublicAccessBlockConfiguration Tags"
        " VersioningConfiguration",
        "bucket_name",
    ),
    "AWS::S3::BucketPolicy": _type("Bucket PolicyDocument", documents="PolicyDocument"),
    "AWS::SQS::Queue": _type(
        "MessageRetentionPeriod QueueName RedrivePolicy SqsManagedSseEnabled Tags VisibilityTimeout",
        "queue_url",
        documents="RedrivePolicy",
    ),
    "AWS::SQS::QueuePolicy": _type("PolicyDocument Queues", documents="PolicyDocument"),
    "AWS::SSM::Parameter": _type("Description Name Tags Type Value", "name", maps="Tags"),
    "AWS::Scheduler::Schedule": _type("FlexibleTimeWindow GroupName ScheduleExpression Target"),
    "AWS::Scheduler::ScheduleGroup": _type("Name Tags", "name"),
}
"""All resource types that the template has with any optional feature, but for nested stacks, which are dissolved."""

_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[a-z])(?=[0-9])|(?<=[0-9])(?=[a-z])")


def attribute_name(property_name: str) -> str:
    """Return the name of a property in awscc: `SSESpecification` is `sse_specification`."""
    return _WORDS.sub("_", property_name).lower()


def terraform_type(resource_type: str) -> str:
    """Return the counterpart of a type: `AWS::SQS::QueuePolicy` is `awscc_sqs_queue_policy`."""
    if resource_type == ROLE_POLICY:
        return "aws_iam_role_policy"
    _, service, name = resource_type.split("::")
    return f"awscc_{service.lower()}_{attribute_name(name)}"
