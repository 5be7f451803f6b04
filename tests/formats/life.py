"""A short life of one node, with the functions as deployed: what they ask of AWS, log, and write to objects."""

from __future__ import annotations

import contextlib
import copy
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import msgspec

from shiplap.aws.bucket import BucketCatalog
from shiplap.aws.instance_profiles import profile_parameter
from shiplap_cdk.install_document import read
from shiplap_lab.catalogue import embedded
from tests.infra.synthesised import FUNCTIONS, INSTALL
from tests.permissions import story as stories
from tests.permissions.recording import Recording
from tests.permissions.story import PRICES, REGION, Story

NOON = 1_767_268_800.0


class Life(NamedTuple):
    """Calls as (function, service, operation, parameters); lines of the log; objects of the cluster by resource."""

    calls: list[tuple[str, str, str, dict[str, Any]]]
    lines: list[dict[str, Any]]
    objects: dict[str, list[dict[str, Any]]]


_PROFILE = "shiplap-eu-west-1-production-shiplap-node-production"


class Roles:
    """In the place of the template's: names of resources, and no roles."""

    def environment(self, function: str) -> dict[str, str]:
        return {
            "SHIPLAP_STATE_TABLE": "State",
            "SHIPLAP_CAPACITY_TABLE": "Capacity",
            "SHIPLAP_BUCKET": "bucket",
            "SHIPLAP_BUS": "shiplap",
            "SHIPLAP_INSTALL": "shiplap",
            "SHIPLAP_LIFECYCLE_QUEUE_URL": "https://sqs.eu-west-1.amazonaws.com/123456789012/lifecycle",
            "SHIPLAP_LIFECYCLE_QUEUE_URLS": '{"": "https://sqs.eu-west-1.amazonaws.com/123456789012/lifecycle"}',
            "SHIPLAP_DEAD_LETTER_QUEUE_URL": "https://sqs.eu-west-1.amazonaws.com/123456789012/letters",
        }

    def role_of_profile(self) -> dict[str, str]:
        return {_PROFILE: "arn:aws:iam::123456789012:role/nodes"}

    def parameters(self) -> dict[str, str]:
        return {profile_parameter("shiplap", "production", "shiplap-node-production"): _PROFILE}


class Calls(Recording):
    """A recording of whole calls."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.calls: list[tuple[str, str, str, dict[str, Any]]] = []
        self.objects: dict[str, list[dict[str, Any]]] = {}

    def _note(self, params: Any, model: Any, **_: Any) -> None:
        if self._function:
            service = model.service_model.service_name
            self.calls.append((self._function, service, model.name, copy.deepcopy(dict(params))))


def _tell(self: Story) -> None:
    """A pod comes, its node is launched, joins, is ready, is warned, and ends."""
    self._setting()
    sold = embedded.load(REGION)
    few = tuple(item for item in sold.types if item.instance_type in PRICES)
    stored = msgspec.structs.replace(sold, types=few, refreshed_at=self.clock.now())
    BucketCatalog(self.recording.client("s3"), "bucket", REGION).save(stored)
    self.pod("plain-1")
    self.live(5, functions=False, step_s=5)
    self.schedule()
    self.live(60, step_s=5)
    self.schedule()
    self.recording.objects = {kind: list(self.server.list(kind).items) for kind in ("nodes", "pods", "events")}  # type: ignore[attr-defined]
    self._a_warning()


@contextlib.contextmanager
def _one_story() -> Iterator[None]:
    with (
        patch.object(stories, "Recording", Calls),
        patch.object(stories, "now", lambda: NOON),
    ):
        yield


def lived(folder: Path) -> Life:
    """Tell the story and say what was seen."""
    out = io.StringIO()
    told = stories.told(read(INSTALL), Roles(), FUNCTIONS, folder, tell=_tell)  # type: ignore[arg-type]
    with _one_story(), contextlib.redirect_stdout(out), told as recording:
        calls, objects = recording.calls, recording.objects  # type: ignore[attr-defined]
    return Life(calls, [json.loads(line) for line in out.getvalue().splitlines()], objects)
