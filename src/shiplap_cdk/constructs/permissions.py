"""Decides what each function may do, and on what. Only `schedule` may launch; only `lifecycle` may end an instance.

The conditions follow Karpenter's controller policies, with tags of our own (`shiplap.aws.tags`) in the place of theirs,
so that neither touches what the other launched. A test finds every call of the adapters in one of these lists.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from aws_cdk import Aws
from aws_cdk import aws_iam as iam

from shiplap.aws import tags
from shiplap.aws.bucket import (
    CATALOG_PREFIX,
    CHUNKS_PREFIX,
    CLUSTERS_PREFIX,
    IDENTITIES_PREFIX,
    MANIFESTS_PREFIX,
    MEMORY_PREFIX,
    RECORDS_PREFIX,
    REHEARSALS_PREFIX,
    STATUS_KEY,
)
from shiplap.aws.dynamodb import tables
from shiplap.aws.instance_profiles import parameters_path
from shiplap_cdk.constructs.events import WorkQueue
from shiplap_cdk.constructs.storage import InstallStorage
from shiplap_cdk.policy_document import documents

_EC2 = f"arn:{Aws.PARTITION}:ec2:{Aws.REGION}"
_OURS = f"{_EC2}:{Aws.ACCOUNT_ID}"
# What a launch makes. All of it is tagged in the launch itself.
_MADE_BY_FLEET = ("fleet", "instance", "volume", "network-interface", "spot-instances-request")
# What a launch only refers to. All of it may belong to other accounts: the last four are shared by AWS RAM.
_REFERRED = (
    f"{_EC2}::image/*",
    f"{_EC2}::snapshot/*",
    *(f"{_EC2}:*:{kind}/*" for kind in ("security-group", "subnet", "capacity-reservation", "placement-group")),
)


class PolicyTargets(NamedTuple):
    """The resources that the statements refer to.

    `timers` are ARNs of the lifecycle queues, `feeds` the queues that feed functions, by the function. `clusters` are
    those that EKS describes, `shifting` those whose zonal shifts are heeded. `identity_path` is the path in IAM of what
    the stack makes for nodes. `own_node_roles` is a pattern for the ARNs
    of node roles that the stack makes, if any; `node_roles` are ARNs of others. Parameters, by name or ARN, are those
    that name images; keys, by id, ARN or alias, those of KMS that encrypt nodes' volumes; secrets, by ARN, those with
    kubeconfigs; `metrics_secret` is that with the headers for a collector of metrics, if any. `has_live_manifests` says
    that some cluster's manifests are read from its API server, `policies` names the optional features that a
    cluster has on, `of_install` the keys that features have beside those of clusters. `ec2_principals` are EC2's names
    as a service. With `reboots` some cluster has sick nodes rebooted.
    """

    storage: InstallStorage
    bus_arn: str
    install: str
    timers: tuple[str, ...]
    feeds: Mapping[str, WorkQueue]
    clusters: tuple[str, ...]
    shifting: tuple[str, ...]
    identity_path: str
    own_node_roles: str
    node_roles: tuple[str, ...]
    image_parameters: tuple[str, ...]
    volume_keys: tuple[str, ...]
    kubeconfig_secrets: tuple[str, ...]
    metrics_secret: str
    has_live_manifests: bool
    policies: tuple[str, ...]
    of_install: Mapping[str, Any]
    ec2_principals: tuple[str, ...]
    reboots: bool = False


class ItemizedStatement(NamedTuple):
    """A statement about items that grow in number with the clusters; `about` makes it for some of the items."""

    items: tuple[str, ...]
    about: Callable[[Sequence[str]], iam.PolicyStatement]


Statements = list[iam.PolicyStatement | ItemizedStatement]

_BY_STAGE_AND_INSTANCE = (tables.STAGE_INDEX, tables.INSTANCE_ID_INDEX)


def schedule(targets: PolicyTargets) -> Statements:
    """Reads cluster and state, commits decisions, launches."""
    return [
        *consume(targets.feeds["schedule"]),
        _allow("Remind", ["sqs:SendMessage"], targets.timers),
        *_launch(targets),
        *_state(targets, "GetItem", "BatchGetItem", "Query", "PutItem", "UpdateItem", "BatchWriteItem"),
        _capacity(targets, "GetItem", "Query", "PutItem", "DeleteItem"),
        # Before the first refresh of a new install, the first decision asks for the catalogue itself.
        *_market(targets),
        _notice_absence(targets),
        _allow("ReadStatus", ["s3:GetObject"], [targets.storage.bucket.arn_for_objects(STATUS_KEY)]),
        _read_snapshots(targets),
        *_manifests(targets, "s3:GetObject", "s3:PutObject"),
        *_recall(targets),
        _allow("KeepRehearsals", ["s3:GetObject", "s3:PutObject"], [_objects(targets, REHEARSALS_PREFIX)]),
        _allow("Record", ["s3:PutObject"], [_objects(targets, RECORDS_PREFIX), _objects(targets, CHUNKS_PREFIX)]),
        _publish(targets),
        *_metrics_headers(targets),
        *_clusters(targets),
        *_zonal_shifts(targets),
        *_policies(targets, "schedule"),
    ]


def lifecycle(targets: PolicyTargets) -> Statements:
    """Follows instances until they are nodes, learns from them, and ends what did not join."""
    return [
        *consume(targets.feeds["lifecycle"]),
        _allow("Remind", ["sqs:SendMessage"], targets.timers),
        _allow(
            "EndOurInstances",
            ["ec2:TerminateInstances", *(["ec2:RebootInstances"] if targets.reboots else [])],
            [f"{_OURS}:instance/*"],
            _found(targets),
        ),
        _describe("LookAtInstances", "DescribeInstances"),
        *_state(
            targets, "GetItem", "BatchGetItem", "Query", "PutItem", "BatchWriteItem", indexes=_BY_STAGE_AND_INSTANCE
        ),
        _capacity(targets, "GetItem", "Query", "PutItem", "DeleteItem"),
        *_read_manifests(targets),
        _publish(targets),
        *_clusters(targets),
        *_policies(targets, "lifecycle"),
    ]


def interrupt(targets: PolicyTargets) -> Statements:
    """Marks claims whose instances AWS takes away, and reminds `lifecycle`; neither EC2 nor a cluster is asked."""
    return [
        *consume(targets.feeds["interrupt"]),
        _allow("Remind", ["sqs:SendMessage"], targets.timers),
        *_state(targets, "GetItem", "PutItem", indexes=(tables.INSTANCE_ID_INDEX,)),
        *_read_manifests(targets),
        _publish(targets),
        *_policies(targets, "interrupt"),
    ]


def catalog(targets: PolicyTargets) -> Statements:
    """Asks EC2 what it sells and at what price, tries out what EC2NodeClasses say, and writes both down."""
    profiles = f"arn:{Aws.PARTITION}:iam::{Aws.ACCOUNT_ID}:instance-profile/*"
    return [
        *_market(targets),
        _notice_absence(targets),
        *_selectors(targets),
        _allow("FindProfiles", ["iam:GetInstanceProfile"], [profiles]),
        *_identities(targets),
        _allow("ReadRehearsals", ["s3:GetObject"], [_objects(targets, REHEARSALS_PREFIX)]),
        *_manifests(targets, "s3:GetObject"),
        _allow("KeepStatus", ["s3:GetObject", "s3:PutObject"], [targets.storage.bucket.arn_for_objects(STATUS_KEY)]),
        _publish(targets),
        *_policies(targets, "catalog"),
        *_clusters(targets),
    ]


def _identities(targets: PolicyTargets) -> Statements:
    """Looks for instance profiles and node roles that are no longer used, and ends those of the install alone.

    IAM lists by path, but bounds no list by one. The access entries of functions and people lack the tag.
    """
    iam_ = f"arn:{Aws.PARTITION}:iam::{Aws.ACCOUNT_ID}"
    profiles, roles = f"{iam_}:instance-profile{targets.identity_path}*", f"{iam_}:role{targets.identity_path}*"
    parameters = _arn("ssm", f"parameter{parameters_path(targets.install)}")
    of_profile = ("RemoveRoleFromInstanceProfile", "DeleteInstanceProfile")
    of_role = (
        "ListInstanceProfilesForRole",
        "ListAttachedRolePolicies",
        "DetachRolePolicy",
        "ListRolePolicies",
        "DeleteRolePolicy",
        "DeleteRole",
    )
    return [
        _allow("EndInstanceProfiles", [f"iam:{action}" for action in of_profile], [profiles]),
        _allow("ListIdentities", ["iam:ListInstanceProfiles", "iam:ListRoles"], ["*"]),
        _allow("EndNodeRoles", [f"iam:{action}" for action in of_role], [roles]),
        _allow("ListProfilesInUse", ["ssm:GetParametersByPath"], [parameters.rstrip("/"), f"{parameters}*"]),
        _describe("LookForCarriers", "DescribeInstances"),
        _allow(
            "EndNodesEntries",
            ["eks:DeleteAccessEntry"],
            [_arn("eks", f"access-entry/*/role/{Aws.ACCOUNT_ID}/*")],
            {"StringEquals": _ours(targets, "aws:ResourceTag")},
        ),
        _allow("KeepIdentities", ["s3:GetObject", "s3:PutObject"], [_objects(targets, IDENTITIES_PREFIX)]),
    ]


def disrupt(targets: PolicyTargets) -> Statements:
    """Decides which nodes go and writes it down: it neither launches nor ends anything."""
    return [
        _allow("Remind", ["sqs:SendMessage"], targets.timers),
        *_state(targets, "BatchGetItem", "Query", "PutItem", "UpdateItem", "BatchWriteItem"),
        # It learns from nodes that have joined before `lifecycle` hears of them.
        _capacity(targets, "GetItem", "Query", "PutItem"),
        *_market(targets),
        *_selectors(targets),
        _notice_absence(targets),
        _allow("ReadStatus", ["s3:GetObject"], [targets.storage.bucket.arn_for_objects(STATUS_KEY)]),
        _read_snapshots(targets),
        *_manifests(targets, "s3:GetObject"),
        _allow("Remember", ["s3:GetObject", "s3:PutObject"], [_objects(targets, MEMORY_PREFIX)]),
        _allow("Record", ["s3:PutObject"], [_objects(targets, RECORDS_PREFIX), _objects(targets, CHUNKS_PREFIX)]),
        _publish(targets),
        *_metrics_headers(targets),
        *_clusters(targets),
        *_zonal_shifts(targets),
    ]


def _market(targets: PolicyTargets) -> Statements:
    return [
        _describe(
            "LookAtTheMarket",
            "DescribeAvailabilityZones",
            "DescribeInstanceTypeOfferings",
            "DescribeInstanceTypes",
            "DescribeSpotPriceHistory",
        ),
        _allow("ReadPrices", ["pricing:GetProducts"], ["*"]),
        _allow("KeepCatalog", ["s3:GetObject", "s3:PutObject"], [_objects(targets, CATALOG_PREFIX)]),
    ]


def _notice_absence(targets: PolicyTargets) -> iam.PolicyStatement:
    """S3 says that an object does not exist only to those who may list; to others, that access is denied.

    Without conditions: a request for an object carries no prefix that one could ask for.
    """
    return _allow("NoticeAbsence", ["s3:ListBucket"], [targets.storage.bucket.bucket_arn])


def watch(targets: PolicyTargets) -> Statements:
    """Watches the clusters, tells the bus, and keeps the clusters' snapshots."""
    return [
        _publish(targets),
        _notice_absence(targets),
        _allow("KeepSnapshots", ["s3:GetObject", "s3:PutObject"], [_objects(targets, CLUSTERS_PREFIX)]),
        *_clusters(targets),
    ]


def _read_snapshots(targets: PolicyTargets) -> iam.PolicyStatement:
    return _allow("ReadSnapshots", ["s3:GetObject"], [_objects(targets, CLUSTERS_PREFIX)])


def _manifests(targets: PolicyTargets, *actions: str) -> Statements:
    """The manifests last read from API servers."""
    return [_allow("Manifests", actions, [_objects(targets, MANIFESTS_PREFIX)])] if targets.has_live_manifests else []


def _recall(targets: PolicyTargets) -> Statements:
    """Allow reads of disruption's memory of nodes, for the statuses of NodeClaims."""
    found = _allow("Recall", ["s3:GetObject"], [_objects(targets, MEMORY_PREFIX)])
    return [found] if targets.has_live_manifests else []


def _read_manifests(targets: PolicyTargets) -> Statements:
    """For functions that read nothing else in the bucket."""
    found = _manifests(targets, "s3:GetObject")
    return [_notice_absence(targets), *found] if found else []


def audit(targets: PolicyTargets) -> Statements:
    """Tells the bus which pods wait, and asks nobody anything."""
    return [_publish(targets)]


def widget(targets: PolicyTargets) -> Statements:
    """Reads claims and the snapshot of the pods, to draw them."""
    index = f"{targets.storage.state.table_arn}/index/{tables.STAGE_INDEX.name}"
    return [
        _allow("ReadClaims", ["dynamodb:Query"], [index]),
        _read_snapshots(targets),
        _notice_absence(targets),
    ]


def consume(queue: WorkQueue) -> Statements:
    """Allow what an event source mapping needs, and moving what cannot be read to the dead letters at once."""
    return [
        _allow(
            "Consume",
            ["sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes", "sqs:ChangeMessageVisibility"],
            [queue.queue.queue_arn],
        ),
        _allow("SetAside", ["sqs:SendMessage"], [queue.dead_letters.queue_arn]),
    ]


def kubeconfigs(targets: PolicyTargets) -> Statements:
    """The way into clusters outside EKS. Where a secret has a key of its own, the key's policy must let the role in."""
    return _listed(targets.kubeconfig_secrets, partial(_allow, "ReadKubeconfigs", ["secretsmanager:GetSecretValue"]))


def _metrics_headers(targets: PolicyTargets) -> Statements:
    """The headers with which metrics are sent to a collector."""
    if not targets.metrics_secret:
        return []
    return [_allow("ReadMetricsHeaders", ["secretsmanager:GetSecretValue"], [targets.metrics_secret])]


_INTERFACES = (
    "ec2:CreateNetworkInterface",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DeleteNetworkInterface",
    "ec2:AssignPrivateIpAddresses",
    "ec2:UnassignPrivateIpAddresses",
)


def inside_network(function: str) -> Statements:
    """Allow Lambda to put a function, by its name, into a VPC; EC2 can name no resources.

    Lambda calls EC2 with the function's role. The code has the same role and needs no interfaces, so they are denied to
    it, as the Lambda Developer Guide advises: requests of the code, and only those, carry the function's ARN. Subnets
    are not denied, because the code looks at those that EC2NodeClasses select.
    """
    code = {"ArnEquals": {"lambda:SourceFunctionArn": _arn("lambda", f"function:{function}")}}
    return [
        _allow("JoinNetwork", [*_INTERFACES, "ec2:DescribeSubnets"], ["*"]),
        iam.PolicyStatement(
            sid="LeaveNetworkToLambda",
            effect=iam.Effect.DENY,
            actions=list(_INTERFACES),
            resources=["*"],
            conditions=code,
        ),
    ]


def traced() -> Statements:
    """Allow Lambda to send a function's traces to X-Ray, which knows no resources."""
    return [_allow("Trace", ["xray:PutTraceSegments", "xray:PutTelemetryRecords"], ["*"])]


def _launch(targets: PolicyTargets) -> Statements:
    launch = ["ec2:RunInstances", "ec2:CreateFleet"]
    requested = _made(targets)
    template = f"{_OURS}:launch-template/*"
    made = [f"{_OURS}:{kind}/*" for kind in _MADE_BY_FLEET]
    statements: Statements = [
        _allow("LaunchFrom", launch, _REFERRED),
        _allow("LaunchFromOurTemplates", launch, [template], _found(targets)),
        _allow("LaunchWithOurTags", launch, made, requested),
        _allow(
            "MakeOurTemplates",
            ["ec2:CreateLaunchTemplate"],
            [template],
            {"StringEquals": _ours(targets, "aws:RequestTag"), "StringLike": {f"aws:RequestTag/{tags.CLUSTER}": "*"}},
        ),
        _allow(
            "TagWhatIsMade",
            ["ec2:CreateTags"],
            [*made, template],
            {
                "StringEquals": {
                    **_ours(targets, "aws:RequestTag"),
                    "ec2:CreateAction": ["RunInstances", "CreateFleet", "CreateLaunchTemplate"],
                },
                "StringLike": {f"aws:RequestTag/{tags.CLUSTER}": "*"},
            },
        ),
        _allow(
            "SweepOurTemplates",
            ["ec2:DeleteLaunchTemplate"],
            [template],
            _found(targets),
        ),
        _allow(
            "NameOurInstances",
            ["ec2:CreateTags"],
            [f"{_OURS}:instance/*"],
            {
                **_found(targets),
                "ForAllValues:StringEquals": {"aws:TagKeys": [tags.NAME, tags.NODE_CLAIM]},
            },
        ),
        _describe(
            "LookBeforeLaunch",
            "DescribeFleets",
            "DescribeInstances",
            "DescribeInstanceStatus",
            "DescribeLaunchTemplates",
            "DescribeTags",
        ),
        *_selectors(targets),
    ]
    passed = {"StringEquals": {"iam:PassedToService": list(targets.ec2_principals)}}
    if targets.own_node_roles:
        statements.append(_allow("GiveNodesOurRoles", ["iam:PassRole"], [targets.own_node_roles], passed))
    give = partial(_allow, "GiveNodesTheirRole", ["iam:PassRole"], conditions=passed)
    return statements + _listed(targets.node_roles, give) + _volume_keys(targets.volume_keys)


def _selectors(targets: PolicyTargets) -> Statements:
    """Allow the calls that answer the selectors of EC2NodeClasses."""
    return [
        _describe(
            "AnswerSelectors",
            "DescribeCapacityReservations",
            "DescribeImages",
            "DescribePlacementGroups",
            "DescribeSecurityGroups",
            "DescribeSubnets",
        ),
        _allow(
            "FindImages",
            ["ssm:GetParameters"],
            [f"arn:{Aws.PARTITION}:ssm:{Aws.REGION}::parameter/aws/service/*"],
        ),
        _allow(
            "FindInstanceProfiles",
            ["ssm:GetParameters"],
            [_arn("ssm", f"parameter{parameters_path(targets.install)}*")],
        ),
        *_listed(
            [_arn("ssm", f"parameter/{name}", name) for name in targets.image_parameters],
            partial(_allow, "FindOwnImages", ["ssm:GetParameters"]),
        ),
    ]


def _volume_keys(keys: Sequence[str]) -> Statements:
    """EC2 uses a customer's key in the name of who launches; without this, instances end as soon as they have begun.

    A key's own policy must leave it to IAM, as the default policy does. AWS's own key for EBS needs nothing.
    """
    aliases = [key.rpartition(":")[2] for key in keys if key.rpartition(":")[2].startswith("alias/")]
    named = [_arn("kms", f"key/{key}", key) for key in keys if not key.rpartition(":")[2].startswith("alias/")]
    return _use_keys("", named, lambda arns: (arns, {})) + _use_keys(
        "ByAlias",
        aliases,
        lambda some: ([_arn("kms", "key/*")], {"ForAnyValue:StringEquals": {"kms:ResourceAliases": list(some)}}),
    )


def _use_keys(
    suffix: str, keys: Sequence[str], which: Callable[[Sequence[str]], tuple[Sequence[str], dict[str, Any]]]
) -> Statements:
    """`which` says by what resources and conditions some of the keys are named."""
    via = {"StringEquals": {"kms:ViaService": f"ec2.{Aws.REGION}.{Aws.URL_SUFFIX}"}}
    actions = ("Decrypt", "DescribeKey", "GenerateDataKeyWithoutPlaintext", "ReEncryptFrom", "ReEncryptTo")
    granted = {"Bool": {"kms:GrantIsForAWSResource": "true"}}

    def use(some: Sequence[str]) -> iam.PolicyStatement:
        arns, condition = which(some)
        return _allow(f"EncryptVolumes{suffix}", [f"kms:{action}" for action in actions], arns, via | condition)

    def lend(some: Sequence[str]) -> iam.PolicyStatement:
        arns, condition = which(some)
        return _allow(f"LendKeysToVolumes{suffix}", ["kms:CreateGrant"], arns, via | condition | granted)

    return _listed(keys, use) + _listed(keys, lend)


def _listed(items: Sequence[str], about: Callable[[Sequence[str]], iam.PolicyStatement]) -> Statements:
    return [ItemizedStatement(tuple(items), about)] if items else []


def _arn(service: str, resource: str, given: str = "") -> str:
    """`given` when it is an ARN already, else that of a resource of this account and Region."""
    return (
        given if given.startswith("arn:") else f"arn:{Aws.PARTITION}:{service}:{Aws.REGION}:{Aws.ACCOUNT_ID}:{resource}"
    )


def _state(
    targets: PolicyTargets, *actions: str, indexes: Sequence[tables.Index] = (tables.STAGE_INDEX,)
) -> Statements:
    table = targets.storage.state.table_arn
    return [
        _allow("State", [f"dynamodb:{action}" for action in actions], [table]),
        _allow("StateIndexes", ["dynamodb:Query"], [f"{table}/index/{index.name}" for index in indexes]),
    ]


def _capacity(targets: PolicyTargets, *actions: str) -> iam.PolicyStatement:
    return _allow("Capacity", [f"dynamodb:{action}" for action in actions], [targets.storage.capacity.table_arn])


def _policies(targets: PolicyTargets, function: str) -> Statements:
    """Return what optional features let a function do beside."""
    tables_of = {"state": targets.storage.state, "capacity": targets.storage.capacity}
    found = [(name, item) for name, item in documents() if name in targets.policies and function in item.functions]
    written = [
        _allow(
            sid, actions, [tables_of[table].table_arn], {"ForAllValues:StringEquals": {"dynamodb:LeadingKeys": [only]}}
        )
        for _, document in found
        for sid, actions, table, only in document.grants()
    ]
    asked = [
        _ask(sid, actions) for name, document in found for sid, actions in document.asks(targets.of_install.get(name))
    ]
    return [*written, *asked]


def _ask(sid: str, actions: Sequence[str]) -> iam.PolicyStatement:
    """Allow actions that know no resources; those of EC2 can be bound to the Region."""
    of_ec2 = [action.removeprefix("ec2:") for action in actions if action.startswith("ec2:")]
    return _describe(sid, *of_ec2) if len(of_ec2) == len(actions) else _allow(sid, actions, ["*"])


def _publish(targets: PolicyTargets) -> iam.PolicyStatement:
    return _allow("Publish", ["events:PutEvents"], [targets.bus_arn])


def _clusters(targets: PolicyTargets) -> Statements:
    arns = [_arn("eks", f"cluster/{name}") for name in targets.clusters]
    return _listed(arns, partial(_allow, "FindApiServers", ["eks:DescribeCluster"]))


def _zonal_shifts(targets: PolicyTargets) -> Statements:
    """ARC takes no ARN of EKS for a resource; a condition names the clusters instead."""

    def read_shifts(arns: Sequence[str]) -> iam.PolicyStatement:
        which = {"StringEquals": {"arc-zonal-shift:ResourceIdentifier": list(arns)}}
        return _allow("HeedZonalShifts", ["arc-zonal-shift:GetManagedResource"], ["*"], which)

    return _listed([_arn("eks", f"cluster/{name}") for name in targets.shifting], read_shifts)


def _describe(sid: str, *actions: str) -> iam.PolicyStatement:
    """EC2 knows no resources for its Describe actions."""
    condition = {"StringEquals": {"aws:RequestedRegion": Aws.REGION}}
    return _allow(sid, [f"ec2:{action}" for action in actions], ["*"], condition)


def _objects(targets: PolicyTargets, prefix: str) -> str:
    return targets.storage.bucket.arn_for_objects(f"{prefix}*")


def _made(targets: PolicyTargets) -> dict[str, Any]:
    """Conditions on the tags that what is made must be given."""
    return {"StringEquals": _ours(targets, "aws:RequestTag"), "StringLike": _named("aws:RequestTag")}


def _found(targets: PolicyTargets) -> dict[str, Any]:
    """Conditions on what is there already."""
    return {"StringEquals": _ours(targets, "aws:ResourceTag"), "StringLike": _named("aws:ResourceTag")}


def _ours(targets: PolicyTargets, context: str) -> dict[str, Any]:
    """The install binds; its clusters are not listed, because a list would outgrow a policy."""
    return {f"{context}/{tags.INSTALL}": targets.install}


def _named(context: str) -> dict[str, Any]:
    return {f"{context}/{tags.CLUSTER}": "*", f"{context}/{tags.NODE_POOL}": "*"}


def _allow(
    sid: str, actions: Sequence[str], resources: Sequence[str], conditions: dict[str, Any] | None = None
) -> iam.PolicyStatement:
    return iam.PolicyStatement(sid=sid, actions=list(actions), resources=list(resources), conditions=conditions)
