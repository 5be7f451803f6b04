"""Requests to EC2 that change something, no faster than EC2 takes them from a whole account, whoever sends them.

EC2 gives every account and region a bucket of tokens per action, and refuses requests for which none is left; those of
people and other tools are refused with ours. So all functions draw from a bucket of their own first, an item in table
`state`: smaller than EC2's, it leaves some to others. Who finds it empty waits a little, or leaves the rest for later.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import msgspec
from botocore.exceptions import ClientError

from shiplap.aws.dynamodb import Item, Value, expiry, float_of, get, number, put_if, text
from shiplap.aws.ec2_errors import THROTTLED, classify
from shiplap.aws.failures import code_of
from shiplap.aws.retries import Sleep
from shiplap.aws.tables import EXPIRY
from shiplap.errors import AwsThrottled, StoreError

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBClient
    from types_boto3_ec2 import EC2Client

_LOG = logging.getLogger(__name__)

PARTITION = "@requests"
"""The partition of table `state`, which no cluster can have."""

LONGEST_WAIT_S = 5.0
"""How long one request waits for its token, in seconds."""

_RACES = 8
_FORGOTTEN_AFTER_S = 3600


class Limit(msgspec.Struct, frozen=True):
    """Requests that may be sent at once, and per second in the long run."""

    burst: float
    per_second: float


LIMITS = {
    "create_fleet": Limit(20, 2),
    "create_launch_template": Limit(25, 2.5),
    "create_tags": Limit(50, 5),
    "delete_launch_template": Limit(10, 1),
    "terminate_instances": Limit(50, 2.5),
}
"""About half of what EC2 allows an account by default, by method of the client."""


class Bucket(msgspec.Struct, frozen=True):
    """Tokens that were left at a moment, epoch seconds. Below zero, so many requests are to wait first."""

    tokens: float
    at: float

    def after(self, limit: Limit, now: float) -> Bucket:
        """The same bucket, refilled until now; the clocks of two machines may disagree."""
        passed = max(now - self.at, 0.0)
        return Bucket(min(self.tokens + passed * limit.per_second, limit.burst), max(now, self.at))


class Pace:
    """The buckets of one region. `clock` gives epoch seconds, `chance` numbers from 0 to 1."""

    def __init__(
        self,
        dynamodb: DynamoDBClient,
        table: str,
        region: str,
        *,
        clock: Callable[[], float],
        sleep: Sleep = time.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._dynamodb = dynamodb
        self._table = table
        self._region = region
        self._clock = clock
        self._sleep = sleep
        self._chance = chance

    def wait(self, action: str) -> None:
        """Return when a request may be sent. A store that cannot be asked stops nobody.

        Raises:
            AwsThrottled: that would take too long.
        """
        limit = LIMITS[action]
        try:
            delay_s = self._draw(action, limit)
        except StoreError as error:
            _LOG.warning("the pace of %s is not known: %s", action, error)
            return
        if delay_s > LONGEST_WAIT_S:
            raise AwsThrottled(f"too many requests to {action} in {self._region}", code="RequestLimitExceeded")
        if delay_s > 0:
            self._sleep(delay_s + self._chance() / limit.per_second)

    def throttled(self, action: str) -> None:
        """EC2 has less to give than was thought: the bucket is empty for everybody."""
        try:
            self._write(action, lambda bucket: Bucket(min(bucket.tokens, 0.0), bucket.at), LIMITS[action])
        except StoreError as error:
            _LOG.warning("the pace of %s is not known: %s", action, error)

    def _draw(self, action: str, limit: Limit) -> float:
        """Take a token that is there or will be; seconds until it is. One that takes too long is not taken."""

        def take(bucket: Bucket) -> Bucket | None:
            least = 1 - LONGEST_WAIT_S * limit.per_second
            return Bucket(bucket.tokens - 1, bucket.at) if bucket.tokens >= least else None

        taken = self._write(action, take, limit)
        return LONGEST_WAIT_S + 1 if taken is None else max(-taken.tokens / limit.per_second, 0.0)

    def _write(self, action: str, change: Callable[[Bucket], Bucket | None], limit: Limit) -> Bucket | None:
        """Replace a bucket; None when `change` refuses, or too many others are at it."""
        key: dict[str, Value] = {"cluster": text(PARTITION), "item": text(f"{self._region}#{action}")}
        for _ in range(_RACES):
            now = self._clock()
            stored = get(self._dynamodb, self._table, key)
            known = Bucket(limit.burst, now) if stored is None else _bucket(stored).after(limit, now)
            changed = change(known)
            if changed is None:
                return None
            item = {
                **key,
                "tokens": number(changed.tokens),
                "at": number(changed.at),
                EXPIRY: expiry(changed.at + _FORGOTTEN_AFTER_S),
            }
            if self._replace(item, stored):
                return changed
        return None

    def _replace(self, item: Item, stored: Item | None) -> bool:
        if stored is None:
            return put_if(self._dynamodb, self._table, item, "attribute_not_exists(#item)", ["item"])
        past = {":tokens": stored["tokens"], ":at": stored["at"]}
        return put_if(self._dynamodb, self._table, item, "#tokens = :tokens AND #at = :at", ["tokens", "at"], past)


def _bucket(item: Item) -> Bucket:
    return Bucket(float_of(item, "tokens"), float_of(item, "at"))


def paced(ec2: EC2Client, pace: Pace) -> EC2Client:
    """The client, whose changing requests wait for their token."""
    return cast("EC2Client", _Paced(ec2, pace))


class _Paced:
    def __init__(self, ec2: EC2Client, pace: Pace) -> None:
        self._ec2 = ec2
        self._pace = pace

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._ec2, name)
        if name not in LIMITS:
            return method

        def call(**parameters: Any) -> Any:
            self._pace.wait(name)
            try:
                return method(**parameters)
            except ClientError as error:
                if classify(code_of(error)) == THROTTLED:
                    self._pace.throttled(name)
                raise

        return call
