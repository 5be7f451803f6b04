"""Names of instance profiles and node roles: within IAM's limits, and different where their parts are."""

from __future__ import annotations

import re

from shiplap.aws.instance_profiles import node_role_name, profile_name, shortened


def test_a_name_is_cut_only_where_it_is_too_long_and_then_ends_in_a_digest_of_the_whole() -> None:
    assert shortened("x" * 64, 64) == "x" * 64
    cut = shortened("x" * 65, 64)
    assert re.fullmatch(r"x{53}-[0-9a-f]{10}", cut)
    assert len(cut) == 64
    assert cut != shortened("x" * 66, 64)


def test_names_say_whose_they_are() -> None:
    assert profile_name("own", "eu-west-1", "demo", "path/to/nodes") == "own-eu-west-1-demo-nodes"
    assert profile_name("", "eu-west-1", "demo", "nodes") == "shiplap-eu-west-1-demo-nodes"
    assert node_role_name("", "eu-west-1", "demo") == "shiplap-node-eu-west-1-demo"
    assert len(profile_name("own", "eu-west-1", "demo", "n" * 200)) == 128
    assert len(node_role_name("own", "eu-west-1", "d" * 100)) == 64
