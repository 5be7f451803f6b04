"""The key `sleep` of shiplap.yaml."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from shiplap.policies.sleep.sleep_settings import SleepSettings, WindowSettings
from shiplap.settings import Settings
from tests.infra.written_installs import WRITTEN, refusal, written


@pytest.mark.parametrize(
    ("line", "field", "reason"),
    [
        (
            "    sleep: {nodePools: [general], mostNodes: 0, windows: [{when: 'daily 19:00-07:00 UTC'}]}",
            "sleep.mostNodes",
            "must be 1 or more",
        ),
        (
            "    sleep: {nodePools: [general], mostNodes: 1, windows: [{when: at night}]}",
            "sleep.windows[0].when",
            "is not a window, such as 'Mon-Fri 19:00-07:00 Europe/Berlin'",
        ),
        (
            "    sleep: {nodePools: [nights], mostNodes: 1, windows: [{when: 'daily 19:00-07:00 UTC'}]}",
            "sleep.nodePools[0]",
            "NodePool 'nights' is not in the manifests; there are ",
        ),
        ("    sleep: {nodePools: [general], mostNodes: 1}", "sleep.windows", "required field is missing"),
    ],
)
def test_wrong_sleep(folder: Path, line: str, field: str, reason: str) -> None:
    error = refusal(folder, WRITTEN + line + "\n")

    assert error.field == f"clusters[0].{field}"
    assert error.line == 5
    assert reason in error.reason


def test_sleep_is_compiled_and_read_by_functions(folder: Path) -> None:
    pool = written(folder, WRITTEN).clusters[0].settings.manifests.node_pools[0].metadata.name
    line = f"    sleep: {{nodePools: [{pool}], mostNodes: 3, windows: [{{when: 'daily 19:00-07:00 UTC'}}]}}\n"
    asleep = written(folder, WRITTEN + line).settings()

    assert asleep.clusters[0].policy(SleepSettings) == SleepSettings(
        (pool,), 3, (WindowSettings("daily 19:00-07:00 UTC"),)
    )
    assert msgspec.json.decode(msgspec.json.encode(asleep), type=Settings) == asleep
    assert b"sleep" not in msgspec.json.encode(written(folder, WRITTEN).settings())


def test_an_annotation_of_sleep_that_cannot_be_read_is_refused_in_files(folder: Path) -> None:
    manifest = folder / "manifests" / "nodes.yaml"
    pool = written(folder, WRITTEN).clusters[0].settings.manifests.node_pools[0].metadata.name
    text = manifest.read_text()
    manifest.write_text(
        text.replace(f"name: {pool}\n", f"name: {pool}\n  annotations: {{shiplap.dev/sleep: at night}}\n", 1)
    )
    line = f"    sleep: {{nodePools: [{pool}], mostNodes: 3, windows: [{{when: 'daily 19:00-07:00 UTC'}}]}}\n"

    error = refusal(folder, WRITTEN + line)

    assert error.field == "clusters[0].sleep.nodePools[0]"
    assert "annotation shiplap.dev/sleep: 'at night' is not a window" in str(error)
