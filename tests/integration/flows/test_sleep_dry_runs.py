"""Permissions are found out at night, too."""

from __future__ import annotations

import msgspec

from shiplap.policies.policy_settings import chosen
from shiplap.policies.sleep.sleep_settings import SleepSettings, WindowSettings
from shiplap.policies.sleep.sleep_state import SleepNotes, sleep_digest
from tests.integration.flows.dry_run_ground import Ground
from tests.integration.flows.sleep_stage import sleep_of


def test_classes_of_node_pools_that_sleep_are_tried_as_well() -> None:
    ground = Ground()
    sleep = SleepSettings(("a", "b"), 5, (WindowSettings("daily 20:00-06:00 UTC"),))
    stage = ground.stage
    stage.settings = msgspec.structs.replace(stage.settings, policies=chosen(sleep))
    digest = sleep_digest(sleep, stage.settings.manifests.node_pools)
    sleep_of(stage).save(stage.name, SleepNotes(digest, {"0": 1}), stage.clock.now())
    stage.add_pods(1)
    assert ground.sweep() == ["first", "second"]
    assert stage.claims() == (), "it is night"
