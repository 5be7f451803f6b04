"""`shiplap lab dev --keep`: the functions of each minute go on, and kubectl and a browser find their way."""

from __future__ import annotations

import threading
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import msgspec
import pytest

from shiplap.errors import ShiplapError
from shiplap_lab.api_server.discovery import discovery_document
from shiplap_lab.api_server.server import ApiServer
from shiplap_lab.cluster_simulator.http_server import KubeHttpServer
from shiplap_lab.dev.playground import MINUTE_S, WATCH_S, instructions, keep_going, widget_page, write_kubeconfig
from shiplap_lab.fakes.signals import FakeClock


class Kept:
    """A region that is interrupted after some seconds; `calls` are the functions' invocations with their times."""

    def __init__(self, ends_at: float) -> None:
        self.endpoints = {"a": "http://127.0.0.1:1", "b": "http://127.0.0.1:2"}
        self.at, self.ends_at = 0.0, ends_at
        self.calls: list[tuple[float, str, str]] = []

    def now(self) -> float:
        return self.at

    def let_time_pass(self) -> None:
        self.at += 10.0
        if self.at >= self.ends_at:
            raise KeyboardInterrupt

    def disrupt(self, cluster: str) -> None:
        self.calls.append((self.at, "minute", cluster))

    def watch(self, cluster: str) -> None:
        self.calls.append((self.at, "watch", cluster))

    def widget(self) -> str:
        return "<p>nodes</p>"

    def version(self) -> str:
        return "1"


def test_each_cluster_has_its_minute_until_it_is_interrupted() -> None:
    region = Kept(ends_at=150.0)

    keep_going(region)

    assert region.calls == [(at, "minute", name) for at in (0.0, MINUTE_S, 2 * MINUTE_S) for name in ("a", "b")]


def test_a_watch_follows_the_one_that_ends() -> None:
    region = Kept(ends_at=2 * WATCH_S)

    keep_going(region)

    watches = [call for call in region.calls if call[1] == "watch"]
    assert watches == [(WATCH_S, "watch", "a"), (WATCH_S, "watch", "b")]


def test_the_kubeconfig_names_every_cluster(tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path, {"b": "http://127.0.0.1:2", "a": "http://127.0.0.1:1"})

    written = msgspec.yaml.decode(path.read_bytes())
    assert written["current-context"] == "a"
    assert [item["cluster"]["server"] for item in written["clusters"]] == ["http://127.0.0.1:1", "http://127.0.0.1:2"]
    assert [item["context"]["cluster"] for item in written["contexts"]] == ["a", "b"]


def read(address: str) -> str:
    with urlopen(address) as answer:  # noqa: S310 - loopback
        text: str = answer.read().decode()
        return text


def test_the_page_shows_the_widget_and_why_it_cannot_be_drawn() -> None:
    answers: list[str | ShiplapError] = ["<p>nodes</p>", ShiplapError("function widget failed")]
    versions = ["1", "2"]

    def draw() -> str:
        answer = answers.pop(0)
        if isinstance(answer, ShiplapError):
            raise answer
        return answer

    with widget_page(draw, lambda: versions.pop(0)) as address:
        assert "<p>nodes</p>" in read(address)
        with pytest.raises(HTTPError) as caught:
            urlopen(address)  # noqa: S310 - loopback
        with caught.value as refused:
            assert "function widget failed" in refused.read().decode()
    assert "widget-page" not in {thread.name for thread in threading.enumerate()}


def test_the_widget_is_drawn_once_for_each_version() -> None:
    drawn: list[str] = []
    version = ["1"]

    def draw() -> str:
        drawn.append(version[0])
        return f"<p>{version[0]}</p>"

    with widget_page(draw, lambda: version[0]) as address:
        assert [read(f"{address}widget") for _ in range(3)] == 3 * ["<p>1</p>"]
        assert "fetch(path)" in read(address)
        version[0] = "2"
        assert read(f"{address}widget") == "<p>2</p>"
    assert drawn == ["1", "2"]


def test_a_page_hears_of_a_change_when_it_happens() -> None:
    looks: list[str] = []

    def version() -> str:
        looks.append("2" if len(looks) > 3 else "1")
        return looks[-1]

    with widget_page(lambda: "", version) as address:
        assert read(f"{address}version?seen=other") == "1"
        assert read(f"{address}version?seen=1") == "2"
    assert looks == ["1", "1", "1", "1", "2"]


def test_a_page_that_hears_of_nothing_draws_anew_after_a_while() -> None:
    """A claim may change without a change of any object."""
    drawn: list[int] = []
    looks: list[int] = []

    def draw() -> str:
        drawn.append(len(drawn))
        return ""

    def version() -> str:
        looks.append(len(looks))
        return "1"

    with widget_page(draw, version, look_s=0.0) as address:
        read(f"{address}widget")
        assert read(f"{address}version?seen=1") == "1"
        read(f"{address}widget")
    assert (len(drawn), len(looks) > 40) == (2, True)


def test_the_instructions_name_what_is_there(tmp_path: Path) -> None:
    said = instructions(tmp_path / "kubeconfig", "http://127.0.0.1:3/", ["a", "b"])

    assert f"export KUBECONFIG={tmp_path / 'kubeconfig'}" in said
    assert "--context b" in said
    assert "shiplap top --dev --cluster a" in said
    assert "http://127.0.0.1:3/" in said
    assert "--context" not in instructions(tmp_path, "", ["a"])


def test_clients_discover_the_resources() -> None:
    with KubeHttpServer(ApiServer(FakeClock()), version="v1.35.0") as http:

        def got(path: str) -> dict[str, object]:
            with urlopen(http.endpoint + path) as answer:  # noqa: S310 - loopback
                return msgspec.json.decode(answer.read(), type=dict[str, object])

        assert got("/version?timeout=32s")["gitVersion"] == "v1.35.0"
        assert got("/api")["versions"] == ["v1"]
        groups = [item["name"] for item in got("/apis")["groups"]]  # type: ignore[attr-defined]
        assert {"apps", "karpenter.sh", "policy"} <= set(groups)
        (pods,) = (item for item in got("/api/v1")["resources"] if item["name"] == "pods")  # type: ignore[attr-defined]
        assert (pods["kind"], pods["namespaced"], pods["shortNames"]) == ("Pod", True, ["po"])
        beta = got("/apis/karpenter.sh/v1alpha1")
        assert beta["groupVersion"] == "karpenter.sh/v1alpha1"
        assert got("/api/v1/pods")["items"] == []
    assert discovery_document("/apis/none/v1", "v1.35.0") is None
    assert discovery_document("/api/v1/pods", "v1.35.0") is None
