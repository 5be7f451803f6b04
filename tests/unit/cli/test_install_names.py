"""The name of an install, by the functions that its stack names: other installs' names may begin or end alike."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from shiplap.errors import InvalidInput
from shiplap_cli.commands.doctor.check_results import Deployment
from shiplap_cli.installs.find_install import install_name, sole_cluster


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


def test_an_install_of_several_clusters_asks_for_the_argument() -> None:
    several = SimpleNamespace(clusters=[SimpleNamespace(cluster=name) for name in ("blue", "red")])
    install: Any = SimpleNamespace(inspected=lambda: several)
    with pytest.raises(InvalidInput, match="CLUSTER: the install serves blue, red; name one of them"):
        sole_cluster(install, "CLUSTER")
    with pytest.raises(InvalidInput, match="--cluster: the install serves blue, red"):
        sole_cluster(install)
