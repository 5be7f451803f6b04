"""Tests the answers of the commands with `-o json` on one small cluster, and their exit codes.

Sentences inside of answers are held as well: whoever rewrites one sees it here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.commands import has_schema
from tests.formats.doors import shiplap
from tests.formats.golden import Golden

GIVEN = Path(__file__).parent / "given"
CLUSTER = "--cluster-state state.yaml --catalog catalog.json --now 2026-01-31T12:00:00Z --region eu-west-1"
HERE = f"{CLUSTER} --manifests pools.yaml --improve-seconds 0"

MASKED = {"solveSeconds": "SECONDS", "recordedBy": "VERSION", "replayedBy": "VERSION", "ageSeconds": "SECONDS"}
"""What differs from run to run, by field."""

CASES: Mapping[str, Mapping[str, str]] = {
    "plan": {
        "of a cluster": f"plan {HERE}",
        "from scratch": f"plan {HERE} --from-scratch",
        "of two sets of manifests": f"plan {CLUSTER} --improve-seconds 0 --diff pools.yaml cheaper.yaml",
    },
    "explain": {
        "a pod with a place": f"explain pod web/one {HERE}",
        "a pod without": f"explain pod web/huge {HERE}",
        "a pod on a node": f"explain pod web/running {HERE}",
        "a pod that is gated": f"explain pod web/gated {HERE}",
        "a claim": f"explain claim CLAIM {HERE}",
        "a node": f"explain node here {HERE}",
        "a node that is kept": f"explain node kept {HERE}",
        "a pool": f"explain pool general {HERE}",
    },
    "disrupt": {"a cluster": f"disrupt {HERE}"},
    "instance-types": {
        "one": "explain instance-types m5.large --region eu-west-1",
        "of a class and learned": "explain instance-types c7i-flex.large --nodeclass pools.yaml"
        " --capacity learned.json",
    },
    "validate": {"right": "validate pools.yaml", "wrong": "validate wrong.yaml"},
    "migrate": {"karpenter": "migrate convert pools.yaml", "groups": "migrate convert groups.json --cluster prod"},
    "replay": {
        "a decision": "explain decision schedule.record",
        "of other pools": "explain decision disrupt.record --with never.yaml",
    },
    "top": {"a recording": "top --recording recording.json --once"},
    "capacity": {
        "list": "capacity list --file learned.json",
        "show": "capacity show ami-1 c7i-flex.large --file learned.json",
        "export": "capacity export --file learned.json",
    },
}


def masked(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: MASKED.get(key) or masked(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [masked(entry) for entry in value]
    return value


@pytest.fixture(autouse=True)
def _nothing_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Run where the files are, without an account or a cluster."""
    monkeypatch.chdir(GIVEN)
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))


def answer(line: str) -> dict[str, Any]:
    found = shiplap(*line.split(), "-o", "json")
    assert found.code in (0, 1) or line.startswith("validate"), found.err
    whole = json.loads(found.out)
    has_schema(line.split(), whole)
    return {"exit code": found.code, "answer": masked(whole)}


@pytest.mark.parametrize("command", CASES)
def test_answers(command: str, golden: Golden) -> None:
    answers = {}
    for title, line in CASES[command].items():
        if "CLAIM" in line:
            name = json.loads(shiplap(*f"plan {HERE} -o json".split()).out)["nodeClaims"][0]["name"]
            line = line.replace("CLAIM", name)  # noqa: PLW2901
        answers[title] = answer(line)
    golden.holds(f"commands/{command}", answers)


def shape(value: Any) -> Any:
    """Return the types of which a value is made; of a list, the types of its first entry."""
    if isinstance(value, dict):
        return {key: shape(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [shape(entry) for entry in value[:1]]
    return type(value).__name__


def test_a_simulation(golden: Golden) -> None:
    """Its figures follow from chance, which changes with the code; their names do not."""
    found = json.loads(shiplap(*["lab", "simulate", "mixed", "--hours", "0.05", "-o", "json"]).out)
    has_schema(["lab", "simulate"], found)
    found["metrics"] = found["effects"] = {}
    golden.holds("commands/simulate", shape(found))


USAGE = (
    "plan --nosuch",
    "plan --cluster-state nowhere.yaml --manifests pools.yaml",
    "plan",
    "explain",
    f"explain pod web/nobody {HERE}",
    f"explain claim nobody {HERE}",
    f"explain node nobody {HERE}",
    f"explain pool nobody {HERE}",
    "disrupt --cluster-state nowhere.yaml",
    "explain instance-types m99.large",
    "validate",
    "validate nowhere.yaml",
    "validate wrong.yaml",
    "validate pools.yaml",
    "migrate convert nowhere.yaml",
    "capacity",
    "capacity learn",
    "capacity show ami-9 --file learned.json",
    "capacity list --file nowhere.json",
    "explain decision nowhere",
    "explain decision learned.json",
    "lab simulate nowhere",
    "lab simulate mixed --mutant nowhat",
    "status --nosuch",
    "status --dev --nosuch",
    "top --once",
    "doctor --nosuch",
    "lab dev --scenario nowhere",
    "lab",
    "status nosuch",
    "learn",
    "--version",
    "--help",
    "",
    "plan --help",
)


def test_exit_codes(golden: Golden) -> None:
    """0 is a positive answer, 1 a negative one, 2 bad input; what is not done is one line on stderr."""
    codes = {}
    for line in USAGE:
        found = shiplap(*line.split())
        codes[line] = found.code
        assert (found.err.count("\n") == 1) == (found.code != 0), f"{line}: {found.err}"
    golden.holds("commands/exit-codes", codes)
