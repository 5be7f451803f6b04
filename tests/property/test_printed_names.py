"""No control character of anybody's text leaves a command, whichever object it names and whatever prints it.

Each example gives fifty drawn names to objects and runs one command about them, as its user would.
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shiplap_cli.main import run
from tests.builders.nodes import node_object
from tests.builders.pods import pod_object
from tests.odd_input import NAMES, NAMES_OF_AN_EXAMPLE, controls, fuzzed
from tests.property.printed_names import inside
from tests.unit.manifests.manifest_samples import EC2_NODE_CLASS, NODE_POOL


def objects_named(names: Iterator[str], *, sound_manifests: bool) -> list[Any]:
    """Nodes, pods and manifests with these names; of sound manifests only free text is drawn."""
    pool, node_class = copy.deepcopy(NODE_POOL), copy.deepcopy(EC2_NODE_CLASS)
    if not sound_manifests:
        spec: Any = pool["spec"]
        pool["metadata"] = {"name": next(names), "labels": {next(names): next(names)}}
        rule = {"key": next(names), "operator": next(names), "values": [next(names)]}
        spec["template"]["spec"]["requirements"] = [rule]
        spec["limits"] = {next(names): next(names)}
        node_class["metadata"] = {"name": next(names)}
        node_class["spec"] = {**EC2_NODE_CLASS["spec"], next(names): next(names)}
    found: list[Any] = [pool, node_class]
    for number in range(3):
        labels = {next(names): next(names)}
        found.append(
            node_object(f"{next(names)}{number}", labels=labels, ready=number > 0, pool="default" if number else "")
        )
    for number in range(4):
        pod = pod_object(f"{next(names)}{number}", "64" if number else "1", namespace=next(names), waits=number < 3)
        pod["metadata"] |= {"labels": {next(names): next(names)}, "uid": str(number)}
        pod["spec"]["nodeSelector"] = {next(names): next(names)} if number == 2 else {}
        if number == 1:
            pod["spec"]["containers"][0]["resources"]["requests"][next(names)] = "1" if sound_manifests else next(names)
        if number == 3:
            pod["spec"]["schedulingGates"] = [{"name": next(names)}]
        found.append(pod)
    return found


COMMANDS: list[list[str]] = [
    *(["plan", "-f", "state.json", "-o", output] for output in ("table", "json", "yaml")),
    ["plan", "-f", "state.json", "--details", "--html", "page.html"],
    ["disrupt", "-f", "state.json"],
    ["disrupt", "-f", "state.json", "-o", "yaml"],
    ["explain", "pod", "NAME", "-f", "state.json"],
    ["explain", "node", "NAME", "-f", "state.json"],
    ["explain", "pool", "NAME", "-f", "state.json"],
    ["validate", "state.json"],
    ["validate", "state.json", "-o", "json"],
    ["migrate", "convert", "state.json"],
    ["plan", "-f", "NAME"],
    ["plan", "--context", "NAME"],
    ["plan", "-f", "broken.yaml"],
    ["explain", "decision", "broken.yaml"],
    ["NAME"],
    ["plan", "--NAME"],
]


def _name_for(command: list[str], objects: list[Any]) -> str:
    """The name of an object that a command is asked to explain."""
    if command[0] != "explain" or command[1] == "decision":
        return ""
    kind = {"pod": "Pod", "node": "Node", "pool": "NodePool"}[command[1]]
    metadata = next(item["metadata"] for item in objects if item["kind"] == kind)
    name: str = metadata["name"]
    return f"{metadata['namespace']}/{name}" if kind == "Pod" else name


def printed(command: list[str], names: list[str], *, sound_manifests: bool) -> dict[str, str]:
    """All that a command prints and writes about objects of these names."""
    out, err = io.StringIO(), io.StringIO()
    with tempfile.TemporaryDirectory() as folder, inside(folder), pytest.MonkeyPatch.context() as patched:
        drawn = iter(names * 3)
        objects = objects_named(drawn, sound_manifests=sound_manifests)
        state = {"kind": "List", "apiVersion": "v1", "items": objects}
        Path("state.json").write_text(json.dumps(state), encoding="utf-8")
        contexts = [{"name": name, "context": {"cluster": name, "user": name}} for name in names[:5]]
        Path("kubeconfig").write_text(json.dumps({"contexts": contexts, "clusters": [], "users": []}), encoding="utf-8")
        Path("broken.yaml").write_bytes(("{" + names[0]).encode())
        patched.setenv("KUBECONFIG", "kubeconfig")
        name = _name_for(command, objects) or names[1].replace("\0", "")
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            run([part.replace("NAME", name) for part in command])
        page = Path("page.html")
        written = page.read_text(encoding="utf-8") if page.exists() else ""
    return {"out": out.getvalue(), "err": err.getvalue(), "page": written}


@fuzzed(0.6 / NAMES_OF_AN_EXAMPLE, usual=40, is_slow=True)
@given(
    st.sampled_from(COMMANDS),
    st.lists(NAMES, min_size=NAMES_OF_AN_EXAMPLE, max_size=NAMES_OF_AN_EXAMPLE),
    st.booleans(),
)
def test_no_control_character_of_a_name_leaves_a_command(command: list[str], names: list[str], sound: bool) -> None:
    for where, text in printed(command, names, sound_manifests=sound).items():
        assert controls(text) == [], (where, text)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_each_command_says_something_about_hostile_names(command: list[str]) -> None:
    """Or the property above would hold for commands that print nothing."""
    found = printed(command, ["a\x1b[2Jb"] * NAMES_OF_AN_EXAMPLE, sound_manifests=True)
    assert any(found.values())
    if "state.json" in command:
        assert found["out"], found["err"]
    assert controls("".join(found.values())) == []
