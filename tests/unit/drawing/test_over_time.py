"""Charts and the slider: values where they belong, frames that share pieces, bounded size."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from hashlib import sha256

import pytest
from msgspec.structs import replace

from shiplap.drawing.markup import cores, dollars, duration, memory, percent, short
from shiplap_cli.render.charts import ChartLine, chart, charts, event_rows
from shiplap_cli.render.html_simulation import moments
from shiplap_cli.render.page import SCRIPT, page
from shiplap_lab.simulation.timeline import Frame, Sample, Timeline, TimelineEvent, thinned
from tests.builders.pictures import GIB, HOSTILE, cluster


def test_a_line_keeps_each_value_until_the_next() -> None:
    drawn = chart("Dollars", 100.0, lines=[ChartLine("paid", [(0.0, 2.0), (50.0, 8.0)], "paid")])
    (path,) = re.findall(r'<path class="line paid" d="([^"]*)"', drawn)
    assert path == "M0.0 75.0H500.0V0.0H1000"
    assert 'aria-label="Dollars: at most 8"' in drawn


def test_areas_stand_on_each_other() -> None:
    one, two = (ChartLine(name, [(0.0, 1.0), (50.0, 3.0)], name) for name in ("p0", "p1"))
    drawn = chart("Nodes", 100.0, filled=[one, two])
    assert 'class="area p0" d="M0.0 83.3H500.0V50.0H1000V100H0.0z"' in drawn
    assert 'class="area p1" d="M0.0 66.7H500.0V0.0H1000V100H0.0z"' in drawn
    assert "p0: 3\np1: 3" in drawn


def test_all_charts_of_a_timeline() -> None:
    samples = (
        Sample(0.0, 7, {"web": 1}, 1.0, 2.0, 0.5),
        Sample(60.0, 0, {"web": 2, "batch": 1}, 3.0, 4.0, 2.5),
    )
    drawn = charts(Timeline(120.0, samples, (TimelineEvent(30.0, "launched", HOSTILE),)))
    for title in ("Pods that wait", "Nodes by pool", "Dollars per hour", "What happened", "lower bound"):
        assert title in drawn
    assert "<script" not in drawn
    assert "Nothing was sampled" in charts(Timeline(0.0))
    assert "lower bound" not in charts(Timeline(9.0, (Sample(0.0, 1, {}, 1.0),)))


def test_thinned_samples_keep_the_worst_that_pods_waited() -> None:
    samples = [Sample(float(place), 90 if place == 501 else 1, {}, float(place)) for place in range(1000)]
    fewer = thinned(samples, 100)
    assert len(fewer) == 100
    assert max(sample.pending for sample in fewer) == 90
    assert (fewer[0].at_s, fewer[-1].hourly) == (0.0, 999.0)
    assert thinned(samples, 2000) == tuple(samples)


def test_what_happens_together_is_one_mark_that_counts() -> None:
    events = [TimelineEvent(10.0, "launched", f"i-{place}") for place in range(6)] + [
        TimelineEvent(99.0, "ended", "i-0")
    ]
    drawn = event_rows(events, 100.0)
    assert drawn.count("<rect") == 2
    assert "and 2 more" in drawn
    assert event_rows([], 100.0) == ""


def frames(count: int) -> list[Frame]:
    full = cluster(30)
    return [Frame(60.0 * place, replace(full, nodes=full.nodes[: place + 1])) for place in range(count)]


def test_frames_share_what_did_not_change() -> None:
    made = moments(frames(20), 1200.0)
    told = json.loads(re.findall(r"id=moments>(.*?)</script>", made)[0])
    assert len(told) == 20
    assert made.count("tabindex=0") <= 2 * 30  # each box once in the map and once among the pieces
    last = told[-1]
    assert sum(len(boxes) for *_, boxes in last[4]) == 20
    assert last[0] == 0.95
    pieces = made[made.index("<template") :].count("<li class=") + 1
    assert max(number for frame in told for *_, boxes in frame[4] for number in boxes) >= 19
    assert pieces


def test_too_many_frames_are_thinned_and_the_last_one_stays() -> None:
    all_of_them, fewer = moments(frames(30), 1800.0), moments(frames(30), 1800.0, most_bytes=30_000)
    told = json.loads(re.findall(r"id=moments>(.*?)</script>", fewer)[0])
    assert len(fewer) < len(all_of_them)
    assert 1 <= len(told) < 30
    assert told[-1][1] == "29 min"
    assert moments([], 10.0) == ""


def test_a_page_allows_its_own_script_and_nothing_else() -> None:
    made = page("Title <b>", "lead", "<p>body</p>")
    digest = b64encode(sha256(SCRIPT.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in made
    assert "default-src 'none'" in made
    assert f"<script>{SCRIPT}</script>" in made
    assert "Title &lt;b&gt;" in made
    assert not re.findall(r"(?:https?:)?//[a-z]", made)
    assert not re.findall(r"\b(?:src|href)=(?!\"data:)", made)


@pytest.mark.parametrize(
    ("made", "wanted"),
    [
        (cores(250), "250m"),
        (cores(1500), "1.5"),
        (cores(0), "0"),
        (memory(512 * 2**20), "512 MiB"),
        (memory(3 * GIB), "3 GiB"),
        (dollars(0.0042), "$0.0042"),
        (dollars(0.192), "$0.1920"),
        (dollars(1234.5), "$1,234.5000"),
        (dollars(0), "$0.0000"),
        (dollars(0.5, estimated=True), "~$0.5000"),
        (percent(1, 3), "33 %"),
        (percent(1, 0), "\u2013"),
        (duration(45), "45 s"),
        (duration(7320), "2 h 2 min"),
        (duration(7200), "2 h"),
        (duration(187_200), "2 d 4 h"),
        (duration(172_800), "2 d"),
        (short("abcdef", 4), "abc…"),
    ],
)
def test_numbers_as_people_read_them(made: str, wanted: str) -> None:
    assert made == wanted
