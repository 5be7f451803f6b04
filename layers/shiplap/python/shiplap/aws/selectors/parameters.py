"""Values of SSM parameters, kept for five minutes: the ids of AMIs, and the names of instance profiles."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from shiplap.aws.ec2_errors import aws_errors
from shiplap.aws.expiring import ExpiringCache

if TYPE_CHECKING:
    from collections.abc import Callable

    from types_boto3_ssm import SSMClient

_KEPT_S = 300.0
_PER_CALL = 10


class Parameters:
    """Parameters of a Region. `clock` gives epoch seconds; the client is made when it is first needed."""

    def __init__(self, ssm: Callable[[], SSMClient], clock: Callable[[], float]) -> None:
        self._ssm = ssm
        self._known: ExpiringCache[dict[str, str]] = ExpiringCache(_KEPT_S, clock)

    def values(self, names: Iterable[str]) -> dict[str, str]:
        """Values by parameter; parameters that do not exist are left out. Raises AwsThrottled, AwsError."""
        wanted = tuple(dict.fromkeys(names))
        return self._known.get(wanted, lambda: self._fetch(wanted)) if wanted else {}

    def value(self, name: str) -> str:
        """One value, empty if the parameter does not exist: then the next call asks again.

        Raises:
            AwsThrottled, AwsError: SSM refused.
        """
        found = self.values((name,)).get(name, "")
        if not found:  # a deployment may be about to make it
            self._known.forget((name,))
        return found

    def clear(self) -> None:
        """Ask again for every parameter."""
        self._known.clear()

    def _fetch(self, names: tuple[str, ...]) -> dict[str, str]:
        values: dict[str, str] = {}
        for start in range(0, len(names), _PER_CALL):
            with aws_errors("read SSM parameters"):
                answer = self._ssm().get_parameters(Names=list(names[start : start + _PER_CALL]))
            values |= {found["Name"]: found["Value"] for found in answer["Parameters"]}
        return values
