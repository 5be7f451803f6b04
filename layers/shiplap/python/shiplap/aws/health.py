"""The port HealthSource: EC2's status checks and scheduled events, and ARC's zonal shifts.

EventBridge has no event for a failed status check; a CloudWatch alarm would be needed for each instance. Asking EC2 for
all that fail, once per sweep, costs three calls whatever the number of instances.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from shiplap.aws.ec2_errors import aws_errors, readable
from shiplap.ports import InstanceProblem

if TYPE_CHECKING:
    from types_boto3_ec2 import EC2Client
    from types_boto3_ec2.type_defs import FilterTypeDef, InstanceStatusSummaryTypeDef, InstanceStatusTypeDef
    from types_boto3_eks import EKSClient

_EVENTS = ("instance-reboot", "system-reboot", "system-maintenance", "instance-retirement", "instance-stop")
# Filters of different names must all hold, so that one call cannot ask for either.
_FILTERS: tuple[FilterTypeDef, ...] = (
    {"Name": "instance-status.status", "Values": ["impaired"]},
    {"Name": "system-status.status", "Values": ["impaired"]},
    {"Name": "event.code", "Values": list(_EVENTS)},
)
_OVER = ("[Completed]", "[Canceled]")
"""EC2 goes on listing events that are over for a while; their description begins with one of these."""

_PAGE = 1000


class Ec2Health:
    """Reads the health of instances of the Region and of zones of one cluster from AWS. `clock` gives epoch seconds."""

    def __init__(
        self,
        cluster: str,
        *,
        ec2: EC2Client,
        eks: Callable[[], EKSClient],
        zonal_shift: Callable[[], Any],
        clock: Callable[[], float],
    ) -> None:
        self._cluster = cluster
        self._ec2 = ec2
        self._eks = eks
        self._zonal_shift = zonal_shift
        self._clock = clock
        self._arn = ""

    @readable
    def ailing(self) -> tuple[InstanceProblem, ...]:
        """Running instances with failed checks or events to come, sorted; three calls and a call per further page.

        Raises:
            AwsThrottled, AwsError: EC2 refused.
        """
        problems: set[InstanceProblem] = set()
        for wanted in _FILTERS:
            pages = self._ec2.get_paginator("describe_instance_status").paginate(
                Filters=[wanted], PaginationConfig={"PageSize": _PAGE}
            )
            with aws_errors("describe instance status"):
                for page in pages:
                    for status in page["InstanceStatuses"]:
                        problems.update(ailments(status))
        return tuple(sorted(problems))

    @readable
    def shifted_zones(self) -> frozenset[str]:
        """Ids of zones with a zonal shift or an autoshift that is applied to the cluster and has not expired.

        Raises:
            AwsThrottled, AwsError: EKS does not know the cluster, or ARC refused.
        """
        with aws_errors(f"look up zonal shifts of {self._cluster}"):
            if not self._arn:
                self._arn = self._eks().describe_cluster(name=self._cluster)["cluster"]["arn"]
            resource = self._zonal_shift().get_managed_resource(resourceIdentifier=self._arn)
        now = self._clock()
        started = [item for item in resource.get("zonalShifts", ()) if item["expiryTime"].timestamp() > now]
        shifts = [*started, *resource.get("autoshifts", ())]
        return frozenset(item["awayFrom"] for item in shifts if item["appliedStatus"] == "APPLIED")


def ailments(status: InstanceStatusTypeDef) -> Iterator[InstanceProblem]:
    """Yield the impairments and announced events of an instance."""
    instance_id = status["InstanceId"]
    for kind, summary in (("instance", status.get("InstanceStatus")), ("system", status.get("SystemStatus"))):
        if summary is not None and summary.get("Status") == "impaired":
            yield InstanceProblem(instance_id, kind, _impaired_since(summary))
    for event in status.get("Events", ()):
        if event.get("Code") in _EVENTS and not event.get("Description", "").startswith(_OVER):
            not_before = event.get("NotBefore")
            yield InstanceProblem(
                instance_id, "event", due_at=not_before.timestamp() if not_before is not None else 0.0
            )


def _impaired_since(summary: InstanceStatusSummaryTypeDef) -> float:
    times = [item["ImpairedSince"].timestamp() for item in summary.get("Details", ()) if "ImpairedSince" in item]
    return min(times, default=0.0)
