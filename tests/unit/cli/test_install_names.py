"""The name of an install, by the functions that its stack names: other installs' names may begin or end alike."""

from __future__ import annotations

import pytest

from shiplap_cli.commands.doctor.check_results import Deployment
from shiplap_cli.installs.find_install import install_name


@pytest.mark.parametrize(
    ("outputs", "name"),
    [
        ({"ScheduleFunction": "shiplap-schedule"}, "shiplap"),
        ({"ScheduleFunction": "shiplap-eu-schedule"}, "shiplap-eu"),
        ({"ScheduleFunction": "my-schedule-of-nodes-schedule"}, "my-schedule-of-nodes"),
        ({"ScheduleAmberFunction": "shiplap-schedule-amber"}, "shiplap"),
        ({"ScheduleAmberFunction": "amber-schedule-amber", "ScheduleBlueFunction": "amber-schedule-blue"}, "amber"),
        ({"ScheduleScheduleFunction": "my-schedule-schedule-schedule"}, "my-schedule"),
        ({"ScheduleAmberFunction": "shiplap-schedule-amber", "ScheduleFunction": "shiplap-schedule"}, "shiplap"),
        ({"WatchFunction": "shiplap-watch", "Bucket": "bucket"}, ""),
    ],
)
def test_an_install_is_named_by_its_functions(outputs: dict[str, str], name: str) -> None:
    assert install_name(outputs) == name
    assert Deployment("Shiplap", "eu-west-1", outputs, ()).install == name
