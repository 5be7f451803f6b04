"""Paces requests that change something, so that all functions together stay within EC2's limits of an account.

EC2 gives every account and region a bucket of tokens per action, and refuses requests when it is empty, also those of
people and other tools. Launching and ending draw from a second bucket, one token per instance. So
all functions draw from buckets of their own first, items in table `state`. A function that finds one empty waits a
little, or leaves the rest for later. The numbers are those of "Request throttling for the Amazon EC2 API".
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

import msgspec
from botocore.exceptions import ClientError

from shiplap.aws.dynamodb.items import Item, Value, expiry, float_of, get, number, put_if, text
from shiplap.aws.dynamodb.tables import EXPIRY
from shiplap.aws.ec2_errors import THROTTLED, classify
from shiplap.aws.failures import Sleep, code_of
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


class RateLimit(msgspec.Struct, frozen=True):
    """Requests that may be sent, or instances that may be asked for, at once, and per second in the long run."""

    burst: float
    per_second: float


LIMITS = {
    "create_fleet": RateLimit(20, 2),
    "create_launch_template": RateLimit(25, 2.5),
    "create_tags": RateLimit(50, 5),
    "delete_launch_template": RateLimit(10, 1),
    "terminate_instances": RateLimit(50, 2.5),
}
"""About half of the requests that EC2 allows an account by default, by method of the client."""

INSTANCE_LIMITS = {
    "create_fleet": RateLimit(1000, 2),
    "terminate_instances": RateLimit(1000, 20),
}
"""The instances that EC2 lets an account launch (RunInstances, which a fleet stands for) and end by default.

All of them: it takes minutes to refill the bucket, and others who drew from it are noticed by a refusal.
"""


class TokenBucket(msgspec.Struct, frozen=True):
    """Tokens that were left at a moment, epoch seconds. Below zero, so many requests are to wait first."""

    tokens: float
    at: float

    def after(self, limit: RateLimit, now: float) -> TokenBucket:
        """The same bucket, refilled until now; the clocks of two machines may disagree."""
        passed = max(now - self.at, 0.0)
        return TokenBucket(min(self.tokens + passed * limit.per_second, limit.burst), max(now, self.at))


class RequestPace:
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

    def wait(self, action: str, instances: int = 0) -> None:
        """Return when a request about so many instances may be sent. A store that cannot be asked stops no request.

        Raises:
            AwsThrottled: that would take too long.
        """
        self._wait(action, action, LIMITS[action], 1)
        if instances and action in INSTANCE_LIMITS:
            self._wait(action, _instances(action), INSTANCE_LIMITS[action], instances)

    def give_back(self, action: str, instances: int) -> None:
        """So many of the instances that were asked for were not launched."""
        limit = INSTANCE_LIMITS[action]
        self._change(
            _instances(action), limit, lambda held: TokenBucket(min(held.tokens + instances, limit.burst), held.at)
        )

    def throttled(self, action: str) -> None:
        """EC2 has fewer requests to give than was thought: the bucket is empty for everybody."""
        self._change(action, LIMITS[action], _emptied)

    def instances_throttled(self, action: str) -> None:
        """The same of instances."""
        self._change(_instances(action), INSTANCE_LIMITS[action], _emptied)

    def _wait(self, action: str, bucket: str, limit: RateLimit, cost: float) -> None:
        try:
            delay_s = self._draw(bucket, limit, min(cost, limit.burst))
        except StoreError as error:
            _LOG.warning("the pace of %s is not known: %s", bucket, error)
            return
        if delay_s > LONGEST_WAIT_S:
            what = "requests" if bucket == action else "instances"
            raise AwsThrottled(f"too many {what} for {action} in {self._region}", code="RequestLimitExceeded")
        if delay_s > 0:
            self._sleep(delay_s + self._chance() / limit.per_second)

    def _change(self, bucket: str, limit: RateLimit, change: Callable[[TokenBucket], TokenBucket]) -> None:
        try:
            self._write(bucket, change, limit)
        except StoreError as error:
            _LOG.warning("the pace of %s is not known: %s", bucket, error)

    def _draw(self, bucket: str, limit: RateLimit, cost: float) -> float:
        """Take tokens that are there or will be; seconds until they are. Those that take too long are not taken."""

        def take(held: TokenBucket) -> TokenBucket | None:
            least = cost - LONGEST_WAIT_S * limit.per_second
            return TokenBucket(held.tokens - cost, held.at) if held.tokens >= least else None

        taken = self._write(bucket, take, limit)
        return LONGEST_WAIT_S + 1 if taken is None else max(-taken.tokens / limit.per_second, 0.0)

    def _write(
        self, bucket: str, change: Callable[[TokenBucket], TokenBucket | None], limit: RateLimit
    ) -> TokenBucket | None:
        """Replace a bucket; None when `change` refuses, or too many others are at it."""
        key: dict[str, Value] = {"cluster": text(PARTITION), "item": text(f"{self._region}#{bucket}")}
        for _ in range(_RACES):
            now = self._clock()
            stored = get(self._dynamodb, self._table, key)
            known = TokenBucket(limit.burst, now) if stored is None else _bucket(stored).after(limit, now)
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


def _bucket(item: Item) -> TokenBucket:
    return TokenBucket(float_of(item, "tokens"), float_of(item, "at"))


def _instances(action: str) -> str:
    """The name of the bucket of an action's instances."""
    return f"{action}#instances"


def _emptied(held: TokenBucket) -> TokenBucket:
    return TokenBucket(min(held.tokens, 0.0), held.at)


def paced(ec2: EC2Client, pace: RequestPace) -> EC2Client:
    """The client, whose changing requests wait for their tokens."""
    return cast("EC2Client", _Paced(ec2, pace))


class _Paced:
    def __init__(self, ec2: EC2Client, pace: RequestPace) -> None:
        self._ec2 = ec2
        self._pace = pace

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._ec2, name)
        if name not in LIMITS:
            return method

        def call(**parameters: Any) -> Any:
            instances = _asked_for(name, parameters)
            self._pace.wait(name, instances)
            try:
                answer = method(**parameters)
            except ClientError as error:
                if classify(code_of(error)) == THROTTLED:
                    self._pace.throttled(name)
                if instances:
                    self._pace.give_back(name, instances)
                raise
            if name == "create_fleet" and instances:
                self._learn(name, answer, instances)
            return answer

        return call

    def _learn(self, action: str, answer: Mapping[str, Any], asked: int) -> None:
        """Take the instances that a fleet was refused back, unless EC2 refused them because there were too many."""
        errors = answer.get("Errors", ())
        if any(classify(error.get("ErrorCode", "")) == THROTTLED for error in errors):
            self._pace.instances_throttled(action)
        elif errors:  # without any, those that are missing may have been launched all the same
            launched = sum(len(group.get("InstanceIds", ())) for group in answer.get("Instances", ()))
            if launched < asked:
                self._pace.give_back(action, asked - launched)


def _asked_for(action: str, parameters: Mapping[str, Any]) -> int:
    """Return the number of instances that a request launches or ends."""
    if parameters.get("DryRun"):
        return 0
    if action == "create_fleet":
        return int(parameters["TargetCapacitySpecification"]["TotalTargetCapacity"])
    return len(parameters["InstanceIds"]) if action == "terminate_instances" else 0
