"""The control API of the emulated EC2: what a scenario sets and what it may look at. JSON over HTTP under /_shiplap.

| request | effect |
|---|---|
| `POST /capacity` {instanceType, zone, capacityType, available} | a rule; names may hold `*`, null means plenty |
| `POST /reservations` {id, instanceType, zone, total, state, startsAt, endsAt, …} | a capacity reservation or block |
| `POST /faults` {action, code, times, after} | the next calls of an action fail, before or after their effect |
| `POST /deaths` {code, message, times} | the next instances end while they start, for a reason of EC2 |
| `POST /silence` {fleets} | the next fleets are answered with neither instances nor errors |
| `POST /timing` {pendingS, terminatingS, describeLagS} | delays |
| `POST /clock` {advanceS} | time passes |
| `POST /prices` {instanceType, price} | an on-demand price in USD per hour |
| `POST /subnets` {subnetId, freeIps} | how many addresses a subnet has left |
| `POST /images` {imageId, name, architecture, …} | an AMI under a given id |
| `POST /parameters` {name: value, …} | SSM parameters, public ones included |
| `GET /instances` | all instances with AMI, type, tags, user data, launch time |
| `GET /calls` | how often each EC2 action was called |
| `POST /reset` | an empty region |
"""

from __future__ import annotations

from typing import Any

import msgspec
import urllib3

from shiplap.errors import AwsError
from shiplap_lab.emulated_ec2.emulated_reservations import EmulatedReservation

PREFIX = "/_shiplap"


class EmulatedImage(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """An AMI to register. `architecture` as EC2 writes it (x86_64, arm64); times RFC 3339."""

    image_id: str
    name: str
    architecture: str = "x86_64"
    creation_date: str = "2024-01-01T00:00:00Z"
    deprecation_time: str = ""
    owner_alias: str = "amazon"
    tags: dict[str, str] = {}


class EmulatedInstance(msgspec.Struct, frozen=True, rename="camel"):
    """One instance as the region knows it; `launched_at` in epoch seconds, `user_data` decoded.

    `reboots` counts how often it was rebooted.
    """

    id: str
    instance_type: str
    zone: str
    capacity_type: str
    ami: str
    state: str
    launched_at: float
    private_dns: str
    private_ip: str
    subnet_id: str
    instance_profile: str
    tags: dict[str, str]
    user_data: str
    reboots: int = 0


_INSTANCES = msgspec.json.Decoder(tuple[EmulatedInstance, ...])
"""Made with the module: msgspec crashes when two threads learn about a type at the same time."""


class Ec2Control:
    """Client of the control API."""

    def __init__(self, url: str, region: str) -> None:
        self._url = url
        self._region = region
        self._http = urllib3.PoolManager(retries=False)

    def capacity(
        self, instance_type: str = "*", zone: str = "*", capacity_type: str = "*", *, available: int | None
    ) -> None:
        """From now on the matching pools give `available` more instances together; None means plenty."""
        self._post(
            "/capacity",
            {"instanceType": instance_type, "zone": zone, "capacityType": capacity_type, "available": available},
        )

    def reservation(self, reservation: EmulatedReservation) -> None:
        """Make a capacity reservation or block, or replace the one with this id."""
        self._post("/reservations", reservation)

    def fault(self, action: str, code: str, *, times: int = 1, after: bool = False) -> None:
        """Fail the next calls of an EC2 action; `after` lets the effect happen and loses the answer."""
        self._post("/faults", {"action": action, "code": code, "times": times, "after": after})

    def death(self, code: str, message: str = "", *, times: int = 1) -> None:
        """Have the next instances end while they start; DescribeInstances tells why."""
        self._post("/deaths", {"code": code, "message": message, "times": times})

    def silence(self, fleets: int = 1) -> None:
        """Answer the next fleets with their ids alone: what they gave is found by describing."""
        self._post("/silence", {"fleets": fleets})

    def timing(self, *, pending_s: float = 0, terminating_s: float = 0, describe_lag_s: float = 0) -> None:
        """Set all three delays."""
        self._post("/timing", {"pendingS": pending_s, "terminatingS": terminating_s, "describeLagS": describe_lag_s})

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._post("/clock", {"advanceS": seconds})

    def price(self, instance_type: str, price: float) -> None:
        """Set an on-demand price, USD per hour."""
        self._post("/prices", {"instanceType": instance_type, "price": price})

    def free_ips(self, subnet_id: str, free: int) -> None:
        """Set how many addresses a subnet has left."""
        self._post("/subnets", {"subnetId": subnet_id, "freeIps": free})

    def image(self, image: EmulatedImage) -> None:
        """Register an AMI, or replace the one with this id."""
        self._post("/images", image)

    def parameters(self, values: dict[str, str]) -> None:
        """Write SSM parameters, those under /aws/service included."""
        self._post("/parameters", values)

    def instances(self) -> tuple[EmulatedInstance, ...]:
        """Every instance ever launched, terminated ones included, oldest first."""
        return _INSTANCES.decode(self._request("GET", "/instances"))

    def calls(self) -> dict[str, int]:
        """Return the number of calls of each EC2 action since the last reset."""
        return msgspec.json.decode(self._request("GET", "/calls"), type=dict[str, int])

    def reset(self) -> None:
        """Empty the region: resources, rules, faults, delays, tokens."""
        self._post("/reset", {})

    def _post(self, path: str, body: Any) -> None:
        self._request("POST", path, msgspec.json.encode(body))

    def _request(self, method: str, path: str, body: bytes | None = None) -> bytes:
        try:
            answer = self._http.request(
                method,
                f"{self._url}{PREFIX}{path}",
                body=body,
                headers={"Content-Type": "application/json", "X-Region": self._region},
            )
        except urllib3.exceptions.HTTPError as error:
            raise AwsError(f"emulated EC2 at {self._url} does not answer: {error}") from error
        if answer.status != 200:
            raise AwsError(f"emulated EC2 refused {method} {path}: {answer.data.decode('utf-8', 'replace')}")
        return answer.data
