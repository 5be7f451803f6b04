"""Everything that the pages show can be done: every link leads somewhere, every command exists with its options."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from shiplap.manifests.files.loading import inspect_files
from shiplap.policies.registry import POLICIES
from shiplap.settings import ClusterSettings
from shiplap_cli.command_list import COMMANDS
from tools.command_reference import PAGE, commands, text
from tools.documentation_site import slug

ROOT = Path(__file__).parents[3]
_ELSEWHERE = tuple(ROOT / folder / "README.md" for folder in ("action", "examples", "tests/e2e", "tests/model"))
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")), *_ELSEWHERE]
ARCHITECTURE = ROOT / "docs" / "explanation" / "architecture.md"
FIGURES = ROOT / "docs" / "reference" / "figures.md"
LIBRARY = ROOT / "layers" / "shiplap" / "python" / "shiplap"
MOST_WORDS = 50_000
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`([^`\n]+)`")
_ENDS = re.compile(r"\s#|[|>;…)]|&&")


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    heads = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return set(map(slug, heads))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in _LINK.findall(page.read_text()):
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", [ROOT / "layers", ROOT / "functions", ROOT / "src"], ids=name)
def test_pages_that_the_code_names_are_there(page: Path) -> None:
    for module in sorted(page.rglob("*.py")):
        for named in re.findall(r"docs/[\w/-]+\.(?:md|yaml)(?:#[\w-]+)?", module.read_text()):
            path, _, anchor = named.partition("#")
            assert (ROOT / path).exists(), f"{module}: {named}"
            assert not anchor or anchor in anchors(ROOT / path), f"{module}: {named}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_file_that_is_named_exists(page: Path) -> None:
    text = _FENCE.sub("", page.read_text())
    named = re.findall(r"`([a-z_.-]+(?:/[\w.-]+)+\.(?:py|md|yaml|toml|txt))`", text)
    folders = (ROOT, ROOT / "src", ROOT / "tests", LIBRARY.parent, LIBRARY, LIBRARY / "scheduling", page.parent)
    assert [path for path in named if not any((folder / path).exists() for folder in folders)] == []


@pytest.mark.parametrize("page", [ROOT / "CONTRIBUTING.md", ARCHITECTURE], ids=name)
def test_every_folder_that_is_named_exists(page: Path) -> None:
    named = re.findall(r"`([a-z_.]+(?:/[\w.-]+)+/?)`", page.read_text())
    paths = [path for path in named if not path.startswith("karpenter.")]
    assert len(paths) > 20
    assert [path for path in paths if not (ROOT / path).exists() and not (LIBRARY / path).exists()] == []


def test_the_index_leads_to_every_page() -> None:
    index = (ROOT / "docs" / "index.md").read_text()
    folders = ("tutorial", "how-to", "reference", "explanation", "developers")
    pages = sorted(page for folder in folders for page in (ROOT / "docs" / folder).glob("*.md"))
    assert [name(page) for page in pages if f"]({page.relative_to(ROOT / 'docs')})" not in index] == []


_GENERATED = ("commands", "settings", "kubernetes-fields", "karpenter-fields", "ec2-fields")
"""Pages of the reference that `make docs` writes as a whole."""
_GENERATED_TABLE = re.compile(r"<!-- tools/\S+ writes the table -->.*?<!-- end of the table -->", re.DOTALL)


def words(page: Path) -> int:
    """Count the words that are written by hand: bars and rules of tables are none."""
    text = _GENERATED_TABLE.sub("", page.read_text())
    return sum(any(sign.isalnum() for sign in word) for word in text.split())


def test_pages_by_hand_are_short_enough_to_read() -> None:
    generated = [ROOT / "docs" / "reference" / f"{stem}.md" for stem in _GENERATED]
    assert all("This page is written by `make docs`" in page.read_text() for page in generated)
    pages = [*(ROOT / "docs").rglob("*.md"), *(ROOT / f"{stem}.md" for stem in ("README", "CONTRIBUTING", "SECURITY"))]
    assert sum(words(page) for page in pages if page not in generated) <= MOST_WORDS
    assert words(ROOT / "README.md") <= 900


def test_own_words_are_few() -> None:
    glossary = (ROOT / "docs" / "reference" / "glossary.md").read_text()
    assert len(re.findall(r"^## ", glossary, re.MULTILINE)) <= 20


def test_decision_records_name_what_was_rejected_and_when() -> None:
    for record in sorted((ROOT / "docs" / "decisions").glob("*.md")):
        text = record.read_text()
        assert re.search(r"^Accepted \d{4}-\d\d-\d\d\.$", text, re.MULTILINE), record
        assert "\n## Alternatives\n" in text, record


def test_every_decision_record_is_in_the_architecture_page() -> None:
    architecture = ARCHITECTURE.read_text()
    records = sorted(page.name for page in (ROOT / "docs" / "decisions").iterdir())
    assert [record for record in records if f"](../decisions/{record})" not in architecture] == []


def test_every_policy_has_a_stage_and_is_off_until_it_is_beta() -> None:
    page = (ROOT / "docs" / "reference" / "features.md").read_text()
    nothing = ClusterSettings(name="blue", region="eu-west-1")
    for entry in POLICIES:
        words = entry.name.replace("_", " ")
        row = re.search(rf"^\| \[{words}\].*$", page, re.MULTILINE)
        assert row, f"docs/reference/features.md needs a row: | [{words}](PAGE) | alpha | how to switch it on |"
        stage = row.group(0).split("|")[2].strip()
        assert stage in ("alpha", "beta", "stable")
        assert stage != "alpha" or entry.name not in nothing.policies_on


def test_words_of_our_own_are_linked_where_the_readme_first_uses_them() -> None:
    text = (ROOT / "README.md").read_text()
    readme = re.sub(r"docs/[\w/-]+\.md|^#.*$", "", _CODE.sub("", _FENCE.sub("", text)), flags=re.MULTILINE)
    readme = readme.replace("free tier", "")  # AWS's
    words = re.findall(r"^## (.*)$", (ROOT / "docs" / "reference" / "glossary.md").read_text(), re.MULTILINE)
    linked = []
    for word in sorted(words, key=len, reverse=True):
        link = rf"\[{word}s?\]\(#{word.lower().replace(' ', '-')}\)"
        used = re.search(rf"{link}|\b{word}s?\b", readme, re.IGNORECASE)
        if used:
            assert used[0].startswith("["), word
            linked.append(word)
            readme = re.sub(rf"{link}|\b{word}s?\b", "", readme, flags=re.IGNORECASE)
    assert len(linked) > 5


def shown(page: Path) -> Iterator[list[str]]:
    """The words of each command line of shiplap on a page, up to a pipe, a comment or an ellipsis."""
    text = page.read_text()
    lines = [line for _, block in _FENCE.findall(text) for line in block.splitlines()]
    lines += _CODE.findall(_FENCE.sub("", text))
    for line in lines:
        for begin in re.finditer(r"(?:^|[\s/(|])shiplap (?=[a-z-])", line.replace("\\|", "/")):
            rest = line.replace("\\|", "/")[begin.end() :]
            yield shlex.split(_ENDS.split(rest)[0].replace("[", "").replace("]", ""))


ROOT_OPTIONS = {"--help", "--version", "--install-completion", "--show-completion"}
OPTIONS = {
    command.name: {option for parameter in command.parameters for option in parameter.names} for command in commands()
}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_command_on_a_page_exists_with_its_options(page: Path) -> None:
    for words in shown(page):
        asked = {word.partition("=")[0] for word in words if word.startswith("-") and word != "-"}
        if words[0].startswith("-"):
            assert asked <= ROOT_OPTIONS, words
            continue
        found = " ".join(words[:2]).partition("/")[0]
        if COMMANDS[words[0]].inner and words[1:] and words[1][0].islower():
            assert found in OPTIONS, words
        found = found if found in OPTIONS else words[0]
        assert asked <= OPTIONS.get(found, set()) | {"--help"}, words


_KINDS = {"pods", "nodes", "daemonsets", "pdb", "pv", "pvc", "storageclasses", "csinodes", "csidrivers", "namespaces"}
"""The kinds that every state of a cluster needs: pods with claims are left alone without theirs."""
_OBJECTS = re.compile(r"kubectl get (?:-A -o json )?(\S+,\S+)(?= -A -o json| \| shiplap)")


@pytest.mark.parametrize("page", [*PAGES, ROOT / "action" / "action.yml"], ids=name)
def test_kubectl_gets_all_kinds_that_a_plan_reads(page: Path) -> None:
    text_of_page = re.sub(r"\s+", " ", page.read_text())
    for kinds in (set(found.split(",")) for found in _OBJECTS.findall(text_of_page)):
        assert kinds >= _KINDS, f"{page.name} lacks {sorted(_KINDS - kinds)}"


def test_commands_are_found_on_pages() -> None:
    assert sum(len(list(shown(page))) for page in PAGES) > 150
    assert ["plan", "--context", "prod", "--manifests", "my-nodepools/"] in shown(ROOT / "README.md")


@pytest.mark.parametrize(
    ("in_readme", "page", "on_page"),
    [
        (r"costs (\d+) USD a month within the free tier", "costs.md", r"\| at rest: .*\*\* \| \*\*([\d.]+)\*\*"),
        (r"within the free tier, (\d+) at list prices", "costs.md", r"\| at rest: .*\| \*\*([\d.]+)\*\* \| "),
        (r"400 types.*\| \+([\d.]+) % and", "algorithm.md", r"10,000 diverse, fake types .*\+([\d.]+) % \| \+"),
        (r"400 types.*\(model\): \+(\d+) %", "algorithm.md", r"10,000 diverse, fake types [^+]*[^|]*\| \+([\d.]+) %"),
        (r"EC2's types.*\| \+([\d.]+) % and", "algorithm.md", r"10,000 diverse, real types .*\+([\d.]+) % \| ≤"),
        (r"EC2's types.*\(model\): \+(\d+) %", "algorithm.md", r"10,000 diverse, real types [^+]*[^|]*\| \+([\d.]+) %"),
        (r"two t3.medium: (\d+) USD", "costs.md", r"Karpenter on two t3.medium [^|]*\| ([\d.]+) \|"),
        (r"USD a month \| (\d+) USD", "costs.md", r"\| at rest: .*\| \*\*([\d.]+)\*\* \| "),
        (
            r"one whole decision \| . \| ([\d.]+) s",
            "disruption.md",
            r"1,195 nodes, 20,000 pods \| [\d.]+ to ([\d.]+) s",
        ),
        (
            r"each pod moved at most once \| lower bound \| \+([\d.]+) %",
            "disruption.md",
            r"scaled down to 3,000 .* \| ([\d.]+) %",
        ),
        (r"all ([\d,]+) instance types", "capacity.md", r"for all ([\d,]+) types"),
    ],
)
def test_figures_of_the_readme_are_those_of_the_pages(in_readme: str, page: str, on_page: str) -> None:
    """As far as the README, or the page of figures that it leads to, rounds them."""
    short = re.search(in_readme, (ROOT / "README.md").read_text() + FIGURES.read_text())
    (where,) = (ROOT / "docs").rglob(page)
    whole = re.search(on_page, where.read_text())
    assert short
    assert whole
    digits = len(short[1].partition(".")[2])
    assert f"{float(whole[1].replace(',', '')):.{digits}f}" == short[1].replace(",", "")


def test_the_manifests_that_are_shown_are_valid(tmp_path: Path) -> None:
    count = 0
    for page in PAGES:
        for language, block in _FENCE.findall(page.read_text()):
            if language == "yaml" and "\nkind: " in block:
                count += 1
                (tmp_path / f"{page.stem}-{count}.yaml").write_text(block)
    assert count >= 3
    assert inspect_files([tmp_path]).problems == ()


def test_the_command_reference_says_what_the_commands_say() -> None:
    assert PAGE.read_text() == text(), "`make docs` writes it anew"


def test_every_command_has_a_summary_and_every_option_a_help_text() -> None:
    found = commands()
    assert {command.name.partition(" ")[0] for command in found} == set(COMMANDS)
    silent = [
        f"{command.name} {item.name}"
        for command in found
        for item in command.parameters
        if item.names and not item.help
    ]
    assert silent == []
    assert [command.name for command in found if not command.help] == []
