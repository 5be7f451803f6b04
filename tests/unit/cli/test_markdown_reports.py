"""`--markdown FILE` of `validate` and `plan --diff`: texts stay texts, and figures are those of the table."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from shiplap.errors import InvalidInput
from shiplap_cli.render.markdown_reports import MOST_ROWS, difference_markdown, markdown_text, validation_markdown
from shiplap_cli.render.totals import LeftOut, NodeTotal, PlanDifference, PlanSide, Totals
from tests.commands import Shiplap, listed
from tests.unit.cli.planned_files import CATALOG, POOL, pod
from tests.unit.manifests.manifest_samples import changed


def side(nodes: int, hourly: float, *, estimated: bool = False) -> PlanSide:
    total = NodeTotal(nodes, hourly, estimated)
    return PlanSide("a", nodes, hourly, estimated, nodes, 0, 0, 0, {"general": total}, {}, Totals(total, total))


@pytest.mark.parametrize(
    "text", ["a|b", "`x`", "<b>", "*a* _b_", "[x](y)", "![x](y)", "# x", "~~a~~", "a\nb", "&lt;", "\\", "a\\|b", "|"]
)
def test_no_text_becomes_markup(text: str) -> None:
    reader = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    said = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    assert f"<td>{said}</td>" in reader.render(f"| a |\n|---|\n| {markdown_text(text)} |\n")


def test_nobody_is_called() -> None:
    assert "@everyone" not in markdown_text("ask @everyone")


def test_problems_come_before_warnings_and_rows_are_bounded() -> None:
    problems = [InvalidInput(f"{number}.yaml", "wrong", line=number) for number in range(MOST_ROWS)]
    text = validation_markdown(3, problems, [InvalidInput("w.yaml", "odd")])
    assert text.startswith(f"3 manifests: {MOST_ROWS} problems, 1 warning.")
    assert "| problem | 0.yaml |" in text
    assert "| problem | 1.yaml:1 |" in text
    assert "w.yaml" not in text
    assert text.endswith("\n1 more row not shown.\n")
    assert validation_markdown(1, [], []) == "1 manifest valid.\n"


def test_a_month_is_shown_with_its_change_and_as_estimated_if_one_side_is() -> None:
    text = difference_markdown(PlanDifference(side(2, 1.0), side(3, 0.5, estimated=True), (), (), 1), ["AWS not asked"])
    assert "| nodes to launch | 2 | 3 | +1 |" in text
    assert "| a month of the cluster then | $730 | \\~$360 | \N{MINUS SIGN}50.0% |" in text
    assert "1 pod would get a node of another NodePool." in text
    assert "* AWS not asked\n" in text
    assert "estimated" in text
    assert "estimated" not in difference_markdown(PlanDifference(side(1, 1.0), side(1, 1.0), (), (), 0))


def test_a_first_launch_has_its_dollars_as_change() -> None:
    assert "| +$730 |" in difference_markdown(PlanDifference(side(0, 0.0), side(1, 1.0), (), (), 0))


def test_pods_of_one_reason_share_a_line() -> None:
    left = tuple(LeftOut(f"web/{number}", "too big") for number in range(7))
    text = difference_markdown(PlanDifference(side(1, 1.0), side(1, 1.0), left, (), 0))
    assert "left out by the new ones: 7 pods**" in text
    assert "* web/0, web/1, web/2, web/3, web/4 and 2 more: too big\n" in text


def test_the_command_writes_it_beside_its_answer(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    shiplap = Shiplap(capsys)
    for name, content in (
        ("state.json", listed(pod("a", cpu="1"))),
        ("catalog.json", json.dumps(CATALOG)),
        ("old.json", listed(POOL)),
        ("new.json", listed(changed(POOL, "spec.limits", {"cpu": "0"}))),
    ):
        (tmp_path / name).write_text(content)
    written = tmp_path / "report.md"
    given = ("-f", tmp_path / "state.json", "--catalog", tmp_path / "catalog.json", "--markdown", written)
    diff = ("--diff", tmp_path / "old.json", tmp_path / "new.json")
    answer = shiplap.json("plan", *given, *diff, code=1)
    (pod_left,) = answer["newlyLeftOut"]
    assert re.search(rf"^\* {pod_left['pod']}: ", written.read_text(), re.MULTILINE)
    assert "name the two sets of manifests with --diff" in shiplap.error("plan", *given, "--manifests", diff[1])
    assert shiplap.json("validate", diff[1], "--markdown", written)["valid"]
    assert written.read_text() == "1 manifest valid.\n"
    nowhere = tmp_path / "none" / "report.md"
    assert str(nowhere) in shiplap.error("validate", diff[1], "--markdown", nowhere)
