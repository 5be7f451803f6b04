"""`installs:`: what a description says of each install, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from shiplap.errors import InvalidInput, InvalidManifests
from shiplap.manifests.files.described_installs import is_description, read_installs


def written(folder: Path, text: str) -> Path:
    path = folder / "installs.yaml"
    path.write_text(text)
    return path


def test_region_and_account_come_from_the_settings_unless_they_are_given(tmp_path: Path) -> None:
    (tmp_path / "staging").mkdir()
    (tmp_path / "staging" / "shiplap.yaml").write_text("region: eu-west-1\naccount: '111122223333'\nclusters: []\n")
    path = written(
        tmp_path,
        """
installs:
  - {name: production, region: eu-central-1, profile: prod, stack: Nodes, wave: 2}
  - {name: staging, settings: staging/shiplap.yaml, profile: stage}
  - {name: elsewhere, settings: staging/shiplap.yaml, region: us-east-1}
""",
    )
    staging, elsewhere, production = read_installs(path)
    assert (staging.region, staging.account, staging.stack) == ("eu-west-1", "111122223333", "Shiplap")
    assert (elsewhere.region, elsewhere.profile) == ("us-east-1", "")
    assert (production.name, production.stack, production.wave) == ("production", "Nodes", 2)
    assert is_description(path)
    assert not is_description(tmp_path / "staging" / "shiplap.yaml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("installs: []", "names no install"),
        ("installs: [{name: a}]", "there are no settings that say it"),
        ("installs: [{name: a, region: r}, {name: a, region: q}]", "a is there twice"),
        ("installs: [{name: a, region: r}, {name: b, region: r}]", "is that of a: same profile"),
        ("installs: [{name: a, region: r, wave: 0}]", "must be 1 or more"),
        ("installs: [{name: '', region: r}]", "must be there once"),
        ("installs: [{name: a, region: r, regoin: r}]", "regoin"),
        ("installs: [{name: a, region: 1}]", "region"),
        ("clusters: []", "installs"),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InvalidManifests, match=said):
        read_installs(written(tmp_path, text))


def test_a_settings_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"nowhere.yaml.*install a names it"):
        read_installs(written(tmp_path, "installs: [{name: a, settings: nowhere.yaml}]"))
    with pytest.raises(InvalidInput, match="expected one document, found 2"):
        read_installs(written(tmp_path, "installs: []\n---\nregion: x\n"))


def test_the_example_is_read() -> None:
    installs = read_installs(Path(__file__).parents[3] / "examples" / "fleet" / "installs.yaml")
    assert [(item.name, item.region, item.wave) for item in installs] == [
        ("sandbox", "eu-west-1", 1),
        ("platform", "eu-west-1", 2),
        ("platform-us", "us-east-1", 3),
    ]
