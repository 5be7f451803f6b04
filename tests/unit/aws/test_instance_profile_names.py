"""Paths of instance profiles and names of their parameters: within AWS's limits, different where their parts are."""

from __future__ import annotations

import re

from shiplap.aws.instance_profiles import identity_path, profile_parameter, shortened


def test_a_name_is_cut_only_where_it_is_too_long_and_then_ends_in_a_digest_of_the_whole() -> None:
    assert shortened("x" * 64, 64) == "x" * 64
    cut = shortened("x" * 65, 64)
    assert re.fullmatch(r"x{55}-[0-9a-f]{8}", cut)
    assert len(cut) == 64
    assert cut != shortened("x" * 66, 64)


def test_paths_say_whose_they_are() -> None:
    assert identity_path("own", "eu-west-1") == "/shiplap/eu-west-1/own/"
    assert identity_path("own", "eu-west-1", "demo", "nodes") == "/shiplap/eu-west-1/own/demo/nodes/"
    assert not identity_path("own-2", "eu-west-1", "demo").startswith(identity_path("own", "eu-west-1"))
    longest = identity_path("i" * 31, "ap-southeast-1", "c" * 100, "r" * 64)
    assert len(longest) <= 512, "IAM takes no longer paths"


def test_parameters_are_apart_by_install_cluster_and_role_in_characters_that_ssm_takes() -> None:
    roles = ("nodes", "team/nodes", "a+b", "a=b", "a,b", "a@b", "a-b", "a_b", "r" * 64)
    names = {role: profile_parameter("own", "demo", role) for role in roles}

    assert all(re.fullmatch(r"/shiplap/own/demo/[a-zA-Z0-9_.-]+", name) for name in names.values())
    assert names.pop("team/nodes") == names["nodes"], "IAM tells roles apart by their names, whatever their paths"
    assert len(set(names.values())) == len(names)
    places = [("own", "demo"), ("own", "demo-2"), ("own-2", "demo")]
    assert len({profile_parameter(*place, "nodes") for place in places}) == 3
