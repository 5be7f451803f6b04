"""The port Compute on EC2: selectors answered, fleets launched, instances found and ended, for one cluster."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from shiplap.aws import tags
from shiplap.aws.ec2 import fleet_requests
from shiplap.aws.ec2.fleet_requests import FleetConfigs, first_answer
from shiplap.aws.ec2.launch_dry_run import dry_run_launch
from shiplap.aws.ec2.launch_templates import LaunchTemplates, sweep_templates
from shiplap.aws.ec2_errors import (
    CAPACITY,
    CONFIGURATION,
    INSTANCE_GONE,
    NO_ADDRESSES,
    QUOTA,
    SUBNET,
    TEMPLATE_GONE,
    TOKEN_REUSED,
    TOKEN_SPENT,
    TRANSIENT,
    aws_error,
    aws_errors,
    classify,
    classify_end,
    readable,
)
from shiplap.aws.failures import NO_ANSWER, Sleep, code_of
from shiplap.aws.instance_profiles import InstanceProfileClient
from shiplap.aws.selectors.node_classes import NodeClassResolver
from shiplap.errors import AwsError, AwsThrottled, AwsUnavailable, NodeClassNotReady
from shiplap.instances.catalog.resolved_nodeclass import NodeClassProblem, ResolvedNodeClass
from shiplap.instances.offerings.remedies import with_remedy
from shiplap.kubernetes import labels
from shiplap.manifests.custom_resources import EC2NodeClass
from shiplap.manifests.nodeclaim import NodeClaim
from shiplap.ports import FleetRequest, FleetResult, Instance, OfferingFailure
from shiplap.settings import ClusterSettings

if TYPE_CHECKING:
    from types_boto3_ec2 import EC2Client
    from types_boto3_ec2.type_defs import CreateFleetResultTypeDef, FilterTypeDef, InstanceTypeDef
    from types_boto3_eks import EKSClient
    from types_boto3_ssm import SSMClient

_VALUES = 200
"""Values one filter takes."""


def images(ec2: EC2Client, instance_ids: Sequence[str], known: dict[str, str]) -> dict[str, str]:
    """The AMI of each instance that EC2 knows.

    An instance keeps its AMI for life, so what was once answered is kept in `known` and not asked again; neither are
    instances that EC2 did not know, which are kept as empty.

    Raises:
        AwsThrottled, AwsError: EC2 refused.
    """
    unknown = [instance_id for instance_id in instance_ids if instance_id not in known]
    for start in range(0, len(unknown), _VALUES):
        asked = unknown[start : start + _VALUES]
        pages = ec2.get_paginator("describe_instances").paginate(Filters=[{"Name": "instance-id", "Values": asked}])
        with aws_errors("describe instances"):
            seen = {
                instance["InstanceId"]: instance.get("ImageId", "")
                for page in pages
                for reservation in page["Reservations"]
                for instance in reservation["Instances"]
            }
        known.update({instance_id: seen.get(instance_id, "") for instance_id in asked})
    return {instance_id: known[instance_id] for instance_id in instance_ids if known[instance_id]}


ALIVE = ("pending", "running", "shutting-down", "stopping", "stopped")
"""Every state but terminated."""

_ENDING = ("shutting-down", "terminated", "stopping", "stopped")

_TEMPLATE_SWEEP_S = 3600.0

_TEMPLATE_PAUSES_S = (1.0, 2.0, 4.0)
"""Before the same launch is asked for again, in seconds: EC2 may not find a launch template that was made just now."""

_MOST_ENDED_TOGETHER = 100
"""EC2 refuses to end any of some when one of them does not exist; a filter takes at most 200 ids."""

_FLEET_PAUSES_S = (0.5, 1.0, 2.0)
"""Before each question for a fleet that was answered with neither instances nor errors, in seconds."""


class Ec2Compute:
    """EC2 for one cluster. `clock` gives epoch seconds; the other clients are made when they are first needed.

    `once` is a client that sends each request once.
    """

    def __init__(
        self,
        settings: ClusterSettings,
        *,
        ec2: EC2Client,
        ssm: Callable[[], SSMClient],
        eks: Callable[[], EKSClient],
        clock: Callable[[], float],
        iam: Callable[[], InstanceProfileClient] | None = None,
        once: Callable[[], EC2Client] | None = None,
        sleep: Sleep = time.sleep,
    ) -> None:
        self._ec2 = ec2
        self._once = once
        self._clock = clock
        self._sleep = sleep
        self._install = settings.install
        self._neighbours: dict[str, dict[str, int]] = {}
        self._templates = LaunchTemplates(ec2)
        self._sweep_at = 0.0
        self._images: dict[str, str] = {}
        self._node_classes = NodeClassResolver(settings, ec2=ec2, ssm=ssm, eks=eks, iam=iam, clock=clock)

    @readable
    def resolve(self, node_class: EC2NodeClass, *, fresh: bool = False) -> ResolvedNodeClass:
        """Answer the selectors, from memory when they were answered within the last minute, unless `fresh`.

        Raises:
            NodeClassNotReady: a selector matches nothing, or the node class contradicts itself.
            AwsThrottled, AwsError: AWS refused.
        """
        return self._node_classes.resolve(node_class, fresh=fresh)

    @readable
    def inspect(self, node_class: EC2NodeClass) -> ResolvedNodeClass:
        """The same, but with a problem for each part that cannot be answered.

        Raises:
            AwsThrottled, AwsError: AWS refused.
        """
        return self._node_classes.inspect(node_class)

    @readable
    def dry_run(self, request: FleetRequest) -> NodeClassProblem | None:
        """Return why EC2 would not launch the request, or None. Sends dry runs, and makes the launch template.

        Raises:
            NodeClassNotReady: user data or volumes cannot be made of what is written.
            AwsThrottled, AwsError: EC2 did not answer the question.
        """
        return dry_run_launch(self._ec2, self._templates, request, self._install)

    @readable
    def launch(self, request: FleetRequest) -> FleetResult:
        """One instant fleet; the same token gives the same instances again.

        EC2 refuses a token that comes back with other parameters, which happens when a launch is resumed after subnets
        or templates changed. The first answer is looked for then; while it cannot be found, nor all instances be seen,
        the outcome stays unknown and the error says so by its code.

        Raises:
            NodeClassNotReady: EC2 refuses what the EC2NodeClass asks for.
            AwsThrottled: worth another try later.
            AwsError: EC2 refused, or the outcome is unknown.
        """
        configs = fleet_requests.fleet_configs(request, self._install)
        if not configs:
            reason = "no subnet with free addresses in the zones asked for"
            failures = fleet_requests.all_failed(request, configs, NO_ADDRESSES, SUBNET, reason)
            return FleetResult((), failures, was_sent=False)
        try:
            answer = self._create_fleet(request, configs)
        except ClientError as error:
            return self._refused(request, configs, error)
        except NO_ANSWER as error:
            raise aws_error("create a fleet", error) from error
        result = FleetResult(
            fleet_requests.instances_of(request, configs, answer, self._clock(), self._install),
            fleet_requests.failures_of(request, configs, answer),
        )
        if len(result.instances) < request.wanted and not result.failures:
            return self._asked_for(request, configs, answer.get("FleetId", ""), result)
        return result

    def _create_fleet(self, request: FleetRequest, configs: FleetConfigs) -> CreateFleetResultTypeDef:
        """Ask again, after a pause, when EC2 does not find a launch template: it was deleted, or made a moment ago.

        Raises what botocore raises, as it comes.
        """
        token, templates = request.token, [config.template for config in configs]
        for pause_s in _TEMPLATE_PAUSES_S:
            self._templates.ensure(templates)
            try:
                answer = self._ec2.create_fleet(**fleet_requests.parameters(request, configs, token, self._install))
            except ClientError as error:
                if code_of(error) not in TEMPLATE_GONE:
                    raise
            else:
                if not fleet_requests.template_is_gone(answer):
                    return answer
                token = f"{token}-again"  # the answer proves that nothing was launched, and keeps its token for itself
            self._templates.forget(template.name for template in templates)
            self._sleep(pause_s)
        self._templates.ensure(templates)
        return self._ec2.create_fleet(**fleet_requests.parameters(request, configs, token, self._install))

    def _asked_for(
        self, request: FleetRequest, configs: FleetConfigs, fleet_id: str, answered: FleetResult
    ) -> FleetResult:
        """The result of a fleet that was answered with fewer instances than were wanted, and without errors.

        EC2 may know more a moment later: by the launch's tag, or of the fleet itself.

        Raises:
            AwsError: it does not tell; the outcome is unknown.
        """
        best = answered
        for pause_s in _FLEET_PAUSES_S:
            self._sleep(pause_s)
            shown = FleetResult(self.launched(request.claim.cluster, request.token))
            told = self._first_answer(request, configs, fleet_id) or answered
            best = max(best, shown, told, key=lambda result: (len(result.instances), len(result.failures)))
            if len(best.instances) >= request.wanted or best.failures:
                return best
        if best.instances:
            return best
        raise AwsError(f"fleet {fleet_id} of launch {request.token} shows neither instances nor errors")

    def _refused(self, request: FleetRequest, configs: FleetConfigs, error: ClientError) -> FleetResult:
        """Return the result of a refusal of the whole fleet where another offering may do; else raise an error."""
        code = code_of(error)
        if code in (TOKEN_REUSED, TOKEN_SPENT):
            found = self.launched(request.claim.cluster, request.token)
            if len(found) >= request.wanted:
                return FleetResult(found)
            answered = self._first_answer(request, configs)
            if answered is not None:
                return answered
            if code == TOKEN_SPENT:  # an instance of the launch has ended: another try needs another token
                message = f"an instance of launch {request.token} has ended"
                return FleetResult(found, fleet_requests.all_failed(request, configs, code, TRANSIENT, message))
        translated = aws_error(f"create a fleet for claim {request.claim.name}", error)
        kind = classify(translated.code, str(translated), (override.instance_type for override in request.overrides))
        if kind in (CAPACITY, SUBNET, QUOTA):
            return FleetResult((), fleet_requests.all_failed(request, configs, code, kind, str(translated)))
        if kind == CONFIGURATION:
            raise NodeClassNotReady(str(translated), code=code) from error
        raise translated from error

    def _first_answer(self, request: FleetRequest, configs: FleetConfigs, fleet_id: str = "") -> FleetResult | None:
        return first_answer(self._ec2, request, configs, self._clock(), install=self._install, fleet_id=fleet_id)

    @readable
    def instances(self, cluster: str) -> tuple[Instance, ...]:
        """Instances tagged as this cluster's that are not terminated, oldest first; not those of other installs.

        Raises:
            AwsThrottled, AwsError: EC2 refused.
        """
        tagged = list(self._tagged(cluster, []))
        others = Counter(instance.install for instance in tagged if self._is_foreign(instance))
        self._neighbours[cluster] = dict(sorted(others.items()))
        ours = (instance for instance in tagged if not self._is_foreign(instance))
        return tuple(sorted(ours, key=lambda instance: (instance.launched_at, instance.id)))

    def other_installs(self, cluster: str) -> dict[str, int]:
        """Return the number of instances of the cluster by name of other install, as `instances` saw it last."""
        return self._neighbours.get(cluster, {})

    @readable
    def launched(self, cluster: str, token: str) -> tuple[Instance, ...]:
        """The instances that carry a launch's tag, by id.

        EC2 shows new instances with a delay, so what is not among them may exist all the same.

        Raises:
            AwsThrottled, AwsError: EC2 refused.
        """
        described = self._described(cluster, [{"Name": f"tag:{tags.LAUNCH}", "Values": [token]}])
        return tuple(sorted(described, key=lambda instance: instance.id))

    @readable
    def instance(self, cluster: str, instance_id: str) -> Instance | None:
        """An instance with this cluster's tags that is not terminated.

        Raises:
            AwsThrottled, AwsError: EC2 refused.
        """
        # The id is a filter, not a parameter: an id that does not exist then is an empty answer and no error.
        return next(self._described(cluster, [{"Name": "instance-id", "Values": [instance_id]}]), None)

    @readable
    def ended(self, cluster: str, instance_id: str) -> OfferingFailure | None:
        """Return why an instance of a claim has ended, or is ending; None while it runs, or when EC2 shows it no more.

        EC2 takes the tags off an instance that has ended, so that one without tags counts as the claim's.

        Raises:
            AwsThrottled, AwsError: EC2 refused.
        """
        with aws_errors(f"describe {instance_id}"):
            filters: list[FilterTypeDef] = [
                {"Name": "instance-id", "Values": [instance_id]},
                {"Name": "instance-state-name", "Values": list(_ENDING)},
            ]
            reservations = self._ec2.describe_instances(Filters=filters)["Reservations"]
        shown = (seen for item in reservations for seen in item["Instances"])
        return next((_failure(seen) for seen in shown if run_instances_parameters(seen).cluster in ("", cluster)), None)

    @readable
    def images(self, instance_ids: Sequence[str]) -> dict[str, str]:
        """The AMI of each instance that exists, foreign ones included; each is asked for once.

        Raises:
            AwsThrottled, AwsError: EC2 refused.
        """
        return images(self._ec2, instance_ids, self._images)

    @readable
    def sweep_templates(self, cluster: str) -> int:
        """Delete launch templates of this cluster that nothing uses; at most once an hour in this process.

        Raises:
            AwsThrottled, AwsError: EC2 refused.
        """
        now = self._clock()
        if now < self._sweep_at:
            return 0
        self._sweep_at = now + _TEMPLATE_SWEEP_S
        return sweep_templates(self._ec2, cluster, now, self._install)

    @readable
    def name(self, claim: NodeClaim, *, keeps_name: bool = False) -> None:
        """Tag a claim's instance as its own; one that is gone by now is no error. A Name that it has may be kept.

        Raises:
            AwsThrottled, AwsError: EC2 refused.
        """
        own = {tags.NODE_CLAIM: claim.name}
        if not keeps_name:
            own[tags.NAME] = claim.name
        try:
            self._ec2.create_tags(Resources=[claim.instance_id], Tags=tags.written(own))
        except ClientError as error:
            if code_of(error) not in INSTANCE_GONE:
                raise aws_error(f"name {claim.instance_id}", error) from error
        except NO_ANSWER as error:
            raise aws_error(f"name {claim.instance_id}", error) from error

    @readable
    def terminate(self, cluster: str, *instance_ids: str) -> None:
        """End instances that carry this cluster's tags, up to a hundred by one request.

        Others, and those that are gone, are left alone. Where EC2 refuses some together, each is ended by itself.

        Raises:
            AwsThrottled, AwsError: EC2 refused; the first refusal, after all have been tried.
        """
        refusals: list[AwsError] = []
        for start in range(0, len(instance_ids), _MOST_ENDED_TOGETHER):
            chosen = list(instance_ids[start : start + _MOST_ENDED_TOGETHER])
            shown = self._described(cluster, [{"Name": "instance-id", "Values": chosen}])
            ours = sorted(instance.id for instance in shown)
            refused = self._end(ours) if ours else []
            if refused and len(ours) > 1:
                refused = [error for instance_id in ours for error in self._end([instance_id])]
            refusals += refused
        if refusals:
            raise refusals[0]

    def _end(self, ids: list[str]) -> list[AwsError]:
        """The refusal, if it is about these instances. Raises AwsThrottled, and AwsError without an answer."""
        what = f"terminate {ids[0]}" if len(ids) == 1 else f"terminate {ids[0]} and {len(ids) - 1} more"
        try:
            self._ec2.terminate_instances(InstanceIds=ids)
        except ClientError as error:
            translated = aws_error(what, error)
            if isinstance(translated, AwsThrottled | AwsUnavailable):
                raise translated from error
            gone = len(ids) == 1 and translated.code in INSTANCE_GONE
            return [] if gone else [AwsError(with_remedy(translated.code, str(translated)), code=translated.code)]
        except NO_ANSWER as error:
            raise aws_error(what, error) from error
        return []

    @readable
    def reboot(self, cluster: str, instance_id: str) -> None:
        """Restart an instance that carries this cluster's tags, by a request that is never repeated.

        Raises:
            AwsThrottled, AwsError: EC2 refused, or it is not known whether it did.
        """
        what = f"reboot {instance_id}"
        try:
            is_ours = self.instance(cluster, instance_id) is not None
        except AwsError as error:  # nothing was asked, whatever EC2 answered
            raise AwsUnavailable(f"could not {what}: {error}", code=error.code) from error
        if not is_ours:
            raise AwsError(f"could not {what}: it is gone", code="InvalidInstanceID.NotFound")
        ec2 = self._once() if self._once is not None else self._ec2
        try:
            ec2.reboot_instances(InstanceIds=[instance_id])
        except (ClientError, *NO_ANSWER) as error:
            raise aws_error(what, error) from error

    def _described(self, cluster: str, filters: list[FilterTypeDef]) -> Iterator[Instance]:
        """Instances of the cluster that are not those of another install."""
        return (instance for instance in self._tagged(cluster, filters) if not self._is_foreign(instance))

    def _is_foreign(self, instance: Instance) -> bool:
        return instance.install not in ("", self._install)

    def _tagged(self, cluster: str, filters: list[FilterTypeDef]) -> Iterator[Instance]:
        """Instances with the cluster's tags, whichever install launched them."""
        states: FilterTypeDef = {"Name": "instance-state-name", "Values": list(ALIVE)}
        pages = self._ec2.get_paginator("describe_instances").paginate(
            Filters=[*tags.owned_by(cluster), states, *filters], PaginationConfig={"PageSize": 1000}
        )
        with aws_errors("describe instances"):
            for page in pages:
                for reservation in page["Reservations"]:
                    yield from (run_instances_parameters(seen) for seen in reservation["Instances"])


_ALWAYS_RESERVED = ("capacity-block", "interruptible-capacity-reservation")
"""Lifecycles of instances that EC2 ends with their reservation: they are never anything else."""


def _capacity_type(seen: InstanceTypeDef) -> str:
    """Return the capacity type that an instance has now: one whose reservation has ended goes on as on-demand."""
    if seen.get("CapacityReservationId") or seen.get("InstanceLifecycle") in _ALWAYS_RESERVED:
        return labels.RESERVED
    return labels.SPOT if seen.get("InstanceLifecycle") == "spot" else labels.ON_DEMAND


def run_instances_parameters(seen: InstanceTypeDef) -> Instance:
    """Raises LookupError, AttributeError, ValueError: it lacks what EC2 always tells of an instance."""
    if not seen["InstanceId"]:
        raise ValueError("an instance without an id")
    own = tags.read(seen.get("Tags", []))
    return Instance(
        id=seen["InstanceId"],
        instance_type=seen["InstanceType"],
        zone=seen.get("Placement", {}).get("AvailabilityZone", ""),
        capacity_type=_capacity_type(seen),
        ami=seen.get("ImageId", ""),
        state=seen["State"]["Name"],
        launched_at=seen["LaunchTime"].timestamp(),
        cluster=own.get(tags.CLUSTER, ""),
        claim=own.get(tags.NODE_CLAIM, ""),
        node_pool=own.get(tags.NODE_POOL, ""),
        private_dns=seen.get("PrivateDnsName", ""),
        launch=own.get(tags.LAUNCH, ""),
        install=own.get(tags.INSTALL, ""),
        subnet=seen.get("SubnetId", ""),
        security_groups=tuple(sorted(group["GroupId"] for group in seen.get("SecurityGroups", []))),
        reservation=seen.get("CapacityReservationId", ""),
        partition=str(seen.get("Placement", {}).get("PartitionNumber", "")),
    )


def _failure(seen: InstanceTypeDef) -> OfferingFailure:
    """The end of an instance as a failure of its launch."""
    known = run_instances_parameters(seen)
    reason = seen.get("StateReason", {})
    text = reason.get("Message", "") or seen.get("StateTransitionReason", "")
    code = reason.get("Code", "") or text.partition(":")[0]
    return OfferingFailure(
        known.instance_type,
        known.zone,
        known.capacity_type,
        code,
        classify_end(code, text),
        text or code or "EC2 gave no reason",
        group=seen.get("Placement", {}).get("GroupId", ""),
        reservation=known.reservation,
    )
