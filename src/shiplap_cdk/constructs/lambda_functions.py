"""The Lambda functions: code, layers, limits, and what feeds them.

A function's own package is its folder under `functions/`, and nothing else; everything shared comes from the layers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

from aws_cdk import Annotations, CfnResource, Duration, RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_lambda_event_sources as sources
from aws_cdk import aws_logs as logs
from constructs import Construct

import shiplap
from shiplap.manifests.nodeclaim import SCHEMA
from shiplap.settings import LAYER_DESCRIPTION
from shiplap_cdk.artifacts import layers
from shiplap_cdk.constructs.acknowledged import acknowledge
from shiplap_cdk.constructs.events import WorkQueue
from shiplap_cdk.install_document import in_group
from shiplap_cdk.install_keys import WATCH_MEMORY_MIB, VpcConfig
from shiplap_cdk.region_differences import Feature, gap
from shiplap_cdk.shipped_files import shipped
from shiplap_cdk.stack_values import WITHOUT_MAPPING

RUNTIME = lambda_.Runtime.PYTHON_3_13
CODE = shipped("functions")
_MAPPING = "AWS::Lambda::EventSourceMapping"

ALIAS = "live"
"""Names the version of each function that is in service."""


class FunctionSpec(NamedTuple):
    """Limits of one function. 1,769 MiB buy one whole processor.

    What a schedule starts, Lambda keeps for hours while it has no room, and repeats when it fails: `stale_s` says after
    how many seconds it is worth nothing any more, `repeats` how often it is tried again; None leaves both to Lambda.
    """

    name: str
    description: str
    memory_mib: int
    timeout_s: int
    stale_s: int | None = None
    repeats: int | None = None


SCHEDULE = FunctionSpec("schedule", "Packs pending pods onto new nodes and launches them", 1769, 300)
LIFECYCLE = FunctionSpec("lifecycle", "Follows instances until they are nodes and learns from them", 512, 60)
# Short, so that a message that failed comes again while there is still time: EC2 warns two minutes ahead.
INTERRUPT = FunctionSpec("interrupt", "Notes which instances AWS takes away", 512, 10)
# It mostly waits for AWS, and needs 150 MiB with two catalogues and a page of answers.
CATALOG = FunctionSpec("catalog", "Refreshes what EC2 sells and its prices", 512, 300)
DISRUPT = FunctionSpec(
    "disrupt", "Removes and replaces nodes that are empty, drifted, expired or dear", 1769, 300, 60, 0
)
# It runs all the time, so its memory is most of the bill at rest; it needs 55 MiB and what it has just read.
WATCH = FunctionSpec("watch", "Watches pods and nodes and tells the bus", WATCH_MEMORY_MIB, 900, 600, 2)

# Minutes late already when it is started; what is an hour late the sweep has long seen.
AUDIT = FunctionSpec("audit", "Hears of pending pods from audit logs", 256, 60, 3600, 2)

# Nobody waits longer for a dashboard; drawing a thousand nodes takes a second.
WIDGET = FunctionSpec("widget", "Draws the clusters on the dashboard", 512, 20)

OF_NETWORK = (SCHEDULE, LIFECYCLE, DISRUPT, WATCH)
"""What talks to the Kubernetes API: each network group has these."""

OF_INSTALL = (INTERRUPT, CATALOG, WIDGET)
"""What every install has once, outside of all networks."""


class QueueTrigger(NamedTuple):
    """Feeds a function from a queue. A window collects a burst into one invocation."""

    queue: WorkQueue
    batch_size: int
    window_s: int
    most_at_once: int


class RuntimeSettings(NamedTuple):
    """The settings of running functions: where, started from snapshots, traced by X-Ray, how long their logs are kept.

    `region` says what AWS lacks. `network` is the VPC that they are put into, if any.
    `watch_memory_mib` is for the watch function alone, whose need depends on the largest cluster. `group` names the
    network group, which is part of the functions' names.
    """

    region: str
    network: VpcConfig | None
    log_retention_days: int
    snap_start: bool
    tracing: bool
    watch_memory_mib: int = WATCH_MEMORY_MIB
    group: str = ""


LIBRARY_DESCRIPTION = f"The package shiplap {shiplap.__version__}, reads items up to schema {SCHEMA}"
"""`shiplap install rollback` reads it, to know which stored items the code of an earlier version reads."""


class Layers(Construct):
    """The layers of all functions, in `versions`."""

    def __init__(self, scope: Construct, id_: str, artifacts: layers.Artifacts) -> None:
        super().__init__(scope, id_)
        self.versions = [
            self._layer("Dependencies", artifacts.dependencies, "Third-party packages"),
            self._layer("Library", artifacts.library, LIBRARY_DESCRIPTION),
            self._layer("Settings", artifacts.settings, LAYER_DESCRIPTION),
        ]

    def _layer(self, id_: str, layer: layers.Layer, description: str) -> lambda_.LayerVersion:
        return lambda_.LayerVersion(
            self,
            id_,
            code=lambda_.Code.from_asset(str(layer.path), asset_hash=layer.digest),
            compatible_runtimes=[RUNTIME],
            compatible_architectures=[lambda_.Architecture.ARM_64],
            description=description,
            # An earlier version of a function keeps working as long as its layers exist.
            removal_policy=RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE,
        )


class LambdaFunctions(Construct):
    """The functions by name, in `functions`, and the aliases of their versions in service, in `live`.

    `fed` are the names in Lambda of those that a queue feeds, also of one whose mapping is left out.

    Queues and schedules start the alias, never the newest code: rolling back is moving the alias to an earlier version.
    """

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        install: str,
        specifications: Sequence[FunctionSpec],
        roles: Mapping[str, iam.Role],
        layer_versions: Sequence[lambda_.LayerVersion],
        environment: Mapping[str, Mapping[str, str]],
        feeds: Mapping[str, QueueTrigger],
        running: RuntimeSettings,
    ) -> None:
        """`environment` is by function, and added to what all are given."""
        super().__init__(scope, id_)
        self._install = install
        self._environment = environment
        self._running = running
        self._layers = list(layer_versions)
        self.live: dict[str, lambda_.Alias] = {}
        self.fed = {f"{install}-{in_group(name, running.group)}" for name in feeds}
        self.functions = {
            specification.name: self._function(specification, roles[specification.name], feeds.get(specification.name))
            for specification in specifications
        }

    def _function(self, specification: FunctionSpec, role: iam.Role, feed: QueueTrigger | None) -> lambda_.Function:
        id_, name = specification.name.capitalize(), in_group(specification.name, self._running.group)
        log_group = logs.LogGroup(
            self,
            f"{id_}Log",
            log_group_name=f"/{self._install}/{name}",
            retention=_retention(self._running.log_retention_days),
            removal_policy=RemovalPolicy.DESTROY,
        )
        log_group.grant_write(role)
        function = lambda_.Function(
            self,
            id_,
            function_name=f"{self._install}-{name}",
            description=specification.description,
            runtime=RUNTIME,
            architecture=lambda_.Architecture.ARM_64,
            handler="handler.handle",
            code=lambda_.Code.from_asset(str(CODE / specification.name), exclude=["__pycache__", "*.pyc"]),
            layers=self._layers,
            role=role.without_policy_updates(),
            environment=layers.ENVIRONMENT | dict(self._environment[specification.name]) | _dead_letters(feed),
            memory_size=self._running.watch_memory_mib if specification == WATCH else specification.memory_mib,
            timeout=Duration.seconds(specification.timeout_s),
            log_group=log_group,
            snap_start=lambda_.SnapStartConf.ON_PUBLISHED_VERSIONS if self._running.snap_start else None,
            tracing=lambda_.Tracing.ACTIVE if self._running.tracing else None,
            # Its timers are messages to itself, which Lambda would take for a loop and drop after some 16 turns.
            recursive_loop=lambda_.RecursiveLoop.ALLOW if specification == LIFECYCLE and self._knows_loops() else None,
            current_version_options=lambda_.VersionOptions(removal_policy=RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE),
        )
        if self._running.network:
            # By id, so that nothing about the VPC is looked up or described twice.
            cast("CfnResource", function.node.default_child).add_property_override(
                "VpcConfig",
                {
                    "SubnetIds": list(self._running.network.subnets),
                    "SecurityGroupIds": list(self._running.network.security_groups),
                },
            )
        # It says to ignore it where versions are published; `cdk deploy --strict` fails for every other warning.
        Annotations.of(function).acknowledge_warning(
            "@aws-cdk/aws-lambda:snapStartRequirePublish", "The alias names a published version."
        )
        acknowledge(
            function, "AwsSolutions-L1", "Python 3.13 is the version all locked wheels are built and tested for."
        )
        # The policy must be there before the first message is received.
        function.node.add_dependency(role)
        alias = self.live[specification.name] = function.add_alias(
            ALIAS,
            max_event_age=Duration.seconds(specification.stale_s) if specification.stale_s else None,
            retry_attempts=specification.repeats,
        )
        if feed and self.node.try_get_context(WITHOUT_MAPPING) != f"{self._install}-{name}":
            self._feed(alias, feed)
        return function

    def _knows_loops(self) -> bool:
        return gap(self._running.region, Feature.RECURSIVE_LOOP) is None

    def _feed(self, alias: lambda_.Alias, feed: QueueTrigger) -> None:
        source = sources.SqsEventSource(
            feed.queue.queue,
            batch_size=feed.batch_size,
            max_batching_window=Duration.seconds(feed.window_s) if feed.window_s else None,
            max_concurrency=feed.most_at_once,
            report_batch_item_failures=True,
        )
        alias.add_event_source(source)
        if gap(self._running.region, Feature.MAPPING_TAGS):
            # Whoever tags the stack, or an app around it, tags its mappings, too: CDK knows no partition.
            for node in alias.node.find_all():
                if CfnResource.is_cfn_resource(node) and node.cfn_resource_type == _MAPPING:  # type: ignore[attr-defined]
                    node.add_property_deletion_override("Tags")  # type: ignore[attr-defined]


def _dead_letters(feed: QueueTrigger | None) -> dict[str, str]:
    return {"SHIPLAP_DEAD_LETTER_QUEUE_URL": feed.queue.dead_letters.queue_url} if feed else {}


def _retention(days: int) -> logs.RetentionDays:
    """The CDK names each number of days by hand."""
    names = {1: "ONE_DAY", 3: "THREE_DAYS", 5: "FIVE_DAYS", 7: "ONE_WEEK", 14: "TWO_WEEKS", 30: "ONE_MONTH"}
    names |= {60: "TWO_MONTHS", 90: "THREE_MONTHS", 120: "FOUR_MONTHS", 150: "FIVE_MONTHS", 180: "SIX_MONTHS"}
    names |= {365: "ONE_YEAR", 400: "THIRTEEN_MONTHS", 545: "EIGHTEEN_MONTHS", 731: "TWO_YEARS"}
    return logs.RetentionDays[names[days]]
