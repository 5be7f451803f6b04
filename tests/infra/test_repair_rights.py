"""Functions may reboot instances of the install where a repair policy asks for it, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("tests.nodejs")  # before the CDK's binding is imported

from tests.infra.roles_of_options import PLAIN, roles_of, written
from tests.infra.synthesised import FUNCTIONS
from tests.infra.tagged_requests import OURS, ec2, without
from tests.permissions.evaluator import allowed, of

pytestmark = pytest.mark.thorough

POLICY = """\
    repairPolicies:
      - {condition: AcceleratedHardwareReady, reason: '.*XID48.*', action: %s}
"""


@pytest.mark.parametrize("action", ["Reboot", "Replace"])
def test_only_lifecycle_reboots_instances_and_only_ours(tmp_path: Path, action: str) -> None:
    roles = roles_of(written(tmp_path, PLAIN + POLICY % action))
    ours = of("ec2:RebootInstances", ec2("instance/i-1"), OURS)
    may = [name for name in FUNCTIONS if allowed(roles.statements(name), ours)]
    assert may == (["lifecycle"] if action == "Reboot" else [])
    for theirs in ({}, without(OURS, "install"), without(OURS, "install", "theirs")):
        request = of("ec2:RebootInstances", ec2("instance/i-1"), theirs)
        assert not any(allowed(roles.statements(name), request) for name in FUNCTIONS)
