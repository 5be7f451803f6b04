"""`shiplap capacity` on a file and on a table, which must answer alike."""

from __future__ import annotations

import errno
import fcntl
import functools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

import msgspec
import pytest

from shiplap.aws import session
from shiplap.aws.dynamodb import tables
from shiplap.instances.catalog.type_catalog import LearnedCapacity, Observation
from shiplap_cli.commands.capacity import capacity as commands
from shiplap_cli.inputs.learned import learned_file
from shiplap_cli.inputs.learned.travelling_capacity import (
    FORMAT,
    ImageIdentity,
    TravellingEntry,
    arrived,
    ids_here,
    travelling_file,
)
from shiplap_cli.installs import find_install
from shiplap_cli.main import run
from shiplap_lab.dev import dev_session
from shiplap_lab.fakes.stores import FakeCapacity
from tests.integration.contracts.in_process_aws import aws_in_process, create_table, make_client

MI = 1024**2
NOW = 1_700_000_000.0


def seen(node: str, instance_type: str = "m5.large", kubelet_hash: str = "k1", ami: str = "ami-1") -> Observation:
    capacity = {"cpu": 2000, "memory": 7800 * MI, "pods": 29}
    allocatable = {"cpu": 1930, "memory": 7100 * MI, "pods": 29}
    return Observation(
        ami, instance_type, kubelet_hash, capacity, allocatable, NOW, "blue", node, {"memory": 7200 * MI}
    )


ENTRY = {
    "image": {"owner": "amazon", "name": "n", "architecture": "arm64"},
    "instance_type": "m5.large",
    "kubelet_hash": "k",
    "capacity": {},
    "allocatable": {},
    "nodes": 1,
}
OBSERVATIONS = (seen("a"), seen("b"), seen("c", kubelet_hash="k2"), seen("d", "im4gn.large"), seen("e", ami="ami-2"))


def learned(*observations: Observation) -> tuple[LearnedCapacity, ...]:
    store = FakeCapacity()
    for observation in observations:
        store.observe(observation)
    return store.all()


class Command:
    """Runs `shiplap capacity`, with the options that name where."""

    def __init__(self, where: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        self.where = where
        self._capsys = capsys

    def __call__(self, *arguments: str, code: int = 0) -> str:
        """Return the output on stdout, or, when the command is to fail, its one line on stderr."""
        assert run(["capacity", *arguments, *self.where]) == code
        output = self._capsys.readouterr()
        if code:
            assert output.out == ""
            assert output.err.count("\n") == 1
            return output.err
        assert output.err == ""
        return output.out

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "-o", "json"))


@pytest.fixture(params=["file", "table"])
def capacity(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Command]:
    if request.param == "file":
        file = tmp_path / "learned.json"
        file.write_bytes(learned_file.dump_learned(()))
        yield Command(["--file", str(file)], capsys)
        return
    monkeypatch.setattr(session, "_CLIENTS", {})
    with aws_in_process():
        create_table(make_client("dynamodb"), "capacity", tables.CAPACITY)
        yield Command(["--table", "capacity"], capsys)


@pytest.fixture
def exported(tmp_path: Path) -> Callable[..., str]:
    def write(*observations: Observation) -> str:
        file = tmp_path / f"export-{len(observations)}.json"
        file.write_bytes(learned_file.dump_learned(learned(*observations)))
        return str(file)

    return write


def test_at_first_nothing_is_known(capacity: Command) -> None:
    assert capacity.json("list") == []
    assert "nothing learned yet" in capacity("list")
    assert json.loads(capacity("export")) == {"entries": []}
    assert capacity.json("forget", "ami-1") == {"forgotten": 0}


def test_a_report_that_is_far_off_is_set_aside_and_said_to_be(capacity: Command, exported: Callable[..., str]) -> None:
    """It does not hide what other nodes have; a person can remove the entry."""
    low = {"cpu": 2000, "memory": 10 * MI, "pods": 29}
    broken = msgspec.structs.replace(seen("broken"), capacity=low, allocatable=low, cluster="green")
    capacity("import", "--restore", exported(seen("a"), broken))
    (row,) = capacity.json("list")
    assert (row["memory"]["learned"], row["setAside"], row["count"]) == ("7100Mi", 2, 2)
    (entry,) = capacity.json("show", "ami-1")
    assert (entry["capacity"]["memory"], entry["allocatable"]["memory"]) == ("7800Mi", "7100Mi")
    first, second = entry["setAside"]
    assert first == {
        "cluster": "green",
        "nodes": ["broken"],
        "figure": "capacity",
        "resource": "memory",
        "amount": "10Mi",
        "standing": "forgotten",
        "until": "2023-11-14T23:13:20Z",
    }
    assert second == first | {"figure": "allocatable"}
    assert "forgotten since 2023-11-14T23:13:20Z" in " ".join(capacity("show", "ami-1").split())
    again = capacity.where, capacity("export")
    assert json.loads(again[1])["entries"][0]["reported"][1]["nodes"] == ["broken"]
    assert capacity.json("forget", "ami-1", "m5.large", "k1") == {"forgotten": 1}
    assert capacity.json("list") == []


def test_list_has_a_row_per_ami_type_and_kubelet_settings(capacity: Command, exported: Callable[..., str]) -> None:
    capacity("import", "--restore", exported(*OBSERVATIONS))
    rows = capacity.json("list")
    assert [(row["ami"], row["instanceType"], row["kubeletHash"], row["count"]) for row in rows] == [
        ("ami-1", "im4gn.large", "k1", 1),
        ("ami-1", "m5.large", "k1", 2),
        ("ami-1", "m5.large", "k2", 1),
        ("ami-2", "m5.large", "k1", 1),
    ]
    assert rows[0]["memory"] == {"learned": "7100Mi", "predicted": "7200Mi"}
    assert rows[0]["lastSeen"] == "2023-11-14T22:13:20Z"


def test_list_as_table_and_yaml(capacity: Command, exported: Callable[..., str]) -> None:
    capacity("import", "--restore", exported(seen("a")))
    table = capacity("list")
    for cell in ("ami-1", "m5.large", "k1", "7100Mi", "7200Mi", "2023-11-14T22:13:20Z"):
        assert cell in table
    assert msgspec.yaml.decode(capacity("list", "-o", "yaml")) == capacity.json("list")


def test_show_has_every_resource_and_observation(capacity: Command, exported: Callable[..., str]) -> None:
    capacity("import", "--restore", exported(*OBSERVATIONS))
    (entry,) = capacity.json("show", "ami-1", "m5.large", "k1")
    assert entry["allocatable"] == {"cpu": "1930m", "memory": "7100Mi", "pods": "29"}
    assert entry["capacity"] == {"cpu": "2", "memory": "7800Mi", "pods": "29"}
    assert [(each["cluster"], each["node"]) for each in entry["observations"]] == [("blue", "a"), ("blue", "b")]
    assert entry["observations"][0]["predicted"] == {"memory": "7200Mi"}
    assert len(capacity.json("show", "ami-1")) == 3
    assert len(capacity.json("show", "ami-1", "m5.large")) == 2
    table = capacity("show", "ami-1", "m5.large")
    assert "ami-1 m5.large k1: 2 nodes seen" in table
    assert "1930m" in table


def test_showing_what_is_not_known_is_a_negative_answer(capacity: Command) -> None:
    assert "nothing is known of ami-1 m5.large" in capacity("show", "ami-1", "m5.large", code=1)


def test_import_merges_and_does_not_count_twice(capacity: Command, exported: Callable[..., str]) -> None:
    assert capacity.json("import", "--restore", exported(seen("a"))) == {"entries": 1, "added": 1, "known": 0}
    assert capacity.json("import", "--restore", exported(seen("a"), seen("b"))) == {
        "entries": 1,
        "added": 1,
        "known": 1,
    }
    assert capacity.json("list")[0]["count"] == 2
    before = capacity("export")
    assert "2 were known already" in capacity("import", "--restore", exported(seen("a"), seen("b")))
    assert capacity("export") == before


def test_an_export_can_be_imported(capacity: Command, exported: Callable[..., str], tmp_path: Path) -> None:
    capacity("import", "--restore", exported(*OBSERVATIONS))
    file = tmp_path / "out.json"
    file.write_text(capacity("export"))
    read, expected = (
        [msgspec.structs.replace(entry, version=0) for entry in entries]
        for entries in (learned_file.read_learned(file), learned(*OBSERVATIONS))
    )
    assert read == expected, "an entry is imported by one write, so its version is lower"


def test_an_import_brings_amounts_smaller_than_all_observations_of_the_file(capacity: Command, tmp_path: Path) -> None:
    least = msgspec.structs.replace(seen("small"), allocatable={"memory": 7000 * MI}, observed_at=NOW - 1)
    file = tmp_path / "export.json"
    file.write_bytes(learned_file.dump_learned(learned(least, *(seen(f"n{number}") for number in range(12)))))
    capacity("import", "--restore", str(file))
    (entry,) = capacity.json("show", "ami-1")
    assert entry["allocatable"]["memory"] == "7000Mi"
    assert "small" not in {each["node"] for each in entry["observations"]}
    before = capacity("export")
    capacity("import", "--restore", str(file))
    assert capacity("export") == before


def test_forget_says_how_many(capacity: Command, exported: Callable[..., str]) -> None:
    capacity("import", "--restore", exported(*OBSERVATIONS))
    assert capacity.json("forget", "ami-1", "m5.large", "k2") == {"forgotten": 1}
    assert "forgot 2 entries" in capacity("forget", "ami-1")
    assert [row["ami"] for row in capacity.json("list")] == ["ami-2"]


def test_what_is_no_export_is_bad_input_and_changes_nothing(capacity: Command, tmp_path: Path) -> None:
    file = tmp_path / "rubbish.json"
    file.write_text('{"entries": [{"ami": 7}]}')
    assert "rubbish.json: not an export" in capacity("import", "--restore", str(file), code=2)
    assert "No such file" in capacity("import", "--restore", str(tmp_path / "none.json"), code=2)
    assert capacity.json("list") == []


def test_an_observation_under_another_entry_is_bad_input(capacity: Command, tmp_path: Path) -> None:
    file = tmp_path / "mixed.json"
    file.write_bytes(learned_file.dump_learned([LearnedCapacity("ami-9", "m5.large", "k1", (seen("a"),), 1, 1)]))
    assert "ami-9 m5.large k1 holds an observation of ami-1" in capacity("import", "--restore", str(file), code=2)
    assert capacity.json("list") == []


def test_the_table_is_that_of_the_stack_unless_it_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SHIPLAP_CAPACITY_TABLE", raising=False)
    with aws_in_process():
        said = Command([], capsys)("list", code=2)
        assert "--table: is not given, and stack Shiplap does not tell it" in said
        assert "--file" in said
        create_table(make_client("dynamodb"), "of-stack", tables.CAPACITY)
        monkeypatch.setattr(find_install, "_outputs", lambda _: {"Bucket": "b", "CapacityTable": "of-stack"})
        assert json.loads(Command([], capsys)("list", "-o", "json")) == []


def test_an_install_that_is_named_counts_over_the_environment(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SHIPLAP_CAPACITY_TABLE", "elsewhere")
    monkeypatch.setattr(dev_session, "find_session", functools.partial(dev_session.find_session, tmp_path))
    with aws_in_process():
        assert Command(["--dev"], capsys)("list", code=2).startswith("shiplap: --dev: no `shiplap lab dev` runs")
        create_table(make_client("dynamodb"), "of-stack", tables.CAPACITY)
        outputs = {"blue": {"Bucket": "b", "CapacityTable": "of-stack"}}
        monkeypatch.setattr(find_install, "_outputs", outputs.get)
        assert Command(["--stack", "blue"], capsys).json("list") == []
        assert "stack green does not tell it" in Command(["--stack", "green"], capsys)("list", code=2)
        outputs["Shiplap"] = outputs["blue"]
        (tmp_path / "run").mkdir()
        dev_session.announce_session(tmp_path / "run", {}, "b")
        assert Command(["--dev"], capsys).json("list") == []


def test_a_file_that_cannot_be_read_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "No such file" in Command(["--file", str(tmp_path / "none.json")], capsys)("list", code=2)
    assert "Is a directory" in Command(["--file", str(tmp_path)], capsys)("export", code=2)


def test_importing_into_a_file_that_does_not_exist_makes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], exported: Callable[..., str]
) -> None:
    command = Command(["--file", str(tmp_path / "new.json")], capsys)
    command("import", "--restore", exported(seen("a")))
    assert len(command.json("list")) == 1
    elsewhere = Command(["--file", str(tmp_path / "none" / "new.json")], capsys)
    assert "No such file" in elsewhere("import", exported(seen("a")), code=2)


@pytest.mark.parametrize("second", ["import", "forget"])
def test_two_commands_that_write_one_file_take_turns(
    second: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exported: Callable[..., str]
) -> None:
    """The second reads the file only when the first has written it, and keeps what the first has added."""
    place = commands.CapacityLocation(file=tmp_path / "learned.json")
    argument = exported(seen("b", ami="ami-2")) if second == "import" else "ami-2"
    arrived_at_lock, finished = Event(), Event()

    def run_second() -> None:
        assert run(["capacity", second, argument, "--file", str(place.file)]) == 0
        finished.set()

    with commands._store(place, writes=True, create=True) as store:
        lock = fcntl.flock
        monkeypatch.setattr(
            fcntl,
            "flock",
            lambda *given: (arrived_at_lock.set(), lock(*given))[1],  # type: ignore[func-returns-value]
        )
        other = Thread(target=run_second)
        other.start()
        assert arrived_at_lock.wait(60)
        assert not finished.is_set()
        store.observe(seen("a"))
    other.join(60)

    assert place.file is not None
    known = {entry.ami for entry in learned_file.read_learned(place.file)}
    assert known == ({"ami-1", "ami-2"} if second == "import" else {"ami-1"})


def test_a_folder_that_cannot_be_locked_is_bad_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, exported: Callable[..., str]
) -> None:
    def refuse(_folder: int, _how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    command = Command(["--file", str(tmp_path / "new.json")], capsys)
    assert "cannot be locked: No locks available" in command("import", exported(seen("a")), code=2)


def test_a_table_that_does_not_exist_is_bad_input(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_CLIENTS", {})
    with aws_in_process():
        assert "table elsewhere: could not read table elsewhere" in Command(["--table", "elsewhere"], capsys)(
            "list", code=2
        )


def test_the_file_wins_over_the_environment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHIPLAP_CAPACITY_TABLE", "capacity")
    file = tmp_path / "learned.json"
    file.write_bytes(learned_file.dump_learned(learned(seen("a"))))
    assert len(Command(["--file", str(file)], capsys).json("list")) == 1


class Ec2Images:
    """EC2's images of a Region, as two calls of it show them."""

    def __init__(self, *images: tuple[str, str, str, str, str]) -> None:
        self._images = [
            {"ImageId": id_, "OwnerId": owner, "ImageOwnerAlias": alias, "Name": name, "Architecture": architecture}
            for id_, owner, alias, name, architecture in images
        ]

    def get_paginator(self, _: str) -> Ec2Images:
        return self

    def paginate(self, Filters: Any, Owners: Any = (), **_: Any) -> list[Any]:  # noqa: N803 - botocore's names
        (wanted,) = Filters
        field = {"image-id": "ImageId", "name": "Name"}[wanted["Name"]]
        owners = {*Owners}
        shown = [
            {key: value for key, value in image.items() if value}
            for image in self._images
            if image[field] in wanted["Values"]
            and (not owners or owners & {image["OwnerId"], image["ImageOwnerAlias"]})
        ]
        return [{"Images": shown[:1]}, {"Images": shown[1:]}]


HERE = Ec2Images(
    ("ami-1", "602401143452", "amazon", "eks-al2023-1", "x86_64"),
    ("ami-2", "111122223333", "", "ours", "arm64"),
)
THERE = Ec2Images(
    ("ami-8", "800184023465", "amazon", "eks-al2023-1", "x86_64"),
    ("ami-9", "800184023465", "amazon", "eks-al2023-1", "arm64"),
    ("ami-7", "999999999999", "", "ours", "arm64"),
)


def test_learned_capacity_travels_by_owner_name_and_architecture(
    capacity: Command, exported: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = seen("f", ami="ami-3")
    capacity("import", "--restore", exported(*OBSERVATIONS, gone))
    monkeypatch.setattr(commands, "_ec2", lambda: HERE)
    assert run(["capacity", "export", "--portable", *capacity.where]) == 0
    printed = capacity._capsys.readouterr()
    assert "left out 1 entries of AMIs that EC2 does not know any more" in printed.err
    file = json.loads(printed.out)
    assert (file["left_out"], len(file["entries"])) == (1, 4)
    assert file["entries"][-1]["image"] == {"owner": "amazon", "name": "eks-al2023-1", "architecture": "x86_64"}
    (tmp_path / "travelling.json").write_text(printed.out)

    monkeypatch.setattr(commands, "_ec2", lambda: THERE)
    elsewhere = Command(["--file", str(tmp_path / "elsewhere.json")], capacity._capsys)
    done = elsewhere.json("import", str(tmp_path / "travelling.json"))
    assert done == {"entries": 3, "superseded": 0, "leftOut": 1}
    rows = elsewhere.json("list")
    assert {(row["ami"], row["count"], row["memory"]["learned"]) for row in rows} == {("ami-8", 0, "")}
    assert {row["memory"]["imported"] for row in rows} == {"7100Mi"}
    assert elsewhere.json("import", str(tmp_path / "travelling.json")) == done
    assert elsewhere.json("list") == rows
    assert json.loads(elsewhere("export", "--portable"))["entries"] == []  # what was imported is not passed on


def test_an_export_with_ami_ids_is_imported_carefully(capacity: Command, exported: Callable[..., str]) -> None:
    capacity("import", "--restore", exported(seen("a")))
    assert capacity.json("import", exported(*OBSERVATIONS)) == {"entries": 4, "superseded": 1, "leftOut": 0}
    rows = {(row["ami"], row["instanceType"], row["kubeletHash"]): row for row in capacity.json("list")}
    assert rows["ami-1", "m5.large", "k1"]["count"] == 1
    assert rows["ami-2", "m5.large", "k1"]["count"] == 0
    assert rows["ami-2", "m5.large", "k1"]["memory"] == {"learned": "", "predicted": "", "imported": "7100Mi"}


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"format": FORMAT, "left_out": 0}, "not portable learned capacity"),
        ({"format": FORMAT, "left_out": 0, "entries": [{"memory": 1}]}, "not portable learned capacity"),
        ({"format": FORMAT, "left_out": 0, "entries": [{**ENTRY, "capacity": {"memory": -1}}]}, "must be from 0 to"),
        ({"format": FORMAT, "left_out": 0, "entries": [{**ENTRY, "allocatable": {"cpu": 2**62}}]}, "must be from 0"),
    ],
)
def test_what_is_no_portable_file(
    capacity: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, document: Any, said: str
) -> None:
    monkeypatch.setattr(commands, "_ec2", lambda: HERE)
    file = tmp_path / "travelling.json"
    file.write_text(json.dumps(document))
    assert said in capacity("import", str(file), code=2)
    assert "--restore takes an export without --portable" in capacity("import", "--restore", str(file), code=2)


def test_an_image_of_two_ids_is_known_under_both() -> None:
    image = ImageIdentity("111122223333", "ours", "arm64")
    two = Ec2Images(("ami-5", image.owner, "", "ours", "arm64"), ("ami-4", image.owner, "", "ours", "arm64"))
    ids = ids_here(two, [image])
    assert ids == {image: ["ami-4", "ami-5"]}
    entry = TravellingEntry(image, "m5.large", "k", {"memory": 5}, {"memory": 4}, 1)
    here, left_out = arrived([entry], ids)
    assert ([each.ami for each in here], left_out) == (["ami-4", "ami-5"], 0)
    assert travelling_file(here, {"ami-4": image}).entries == ()


def test_two_amis_of_one_image_travel_as_the_smaller() -> None:
    image = ImageIdentity("amazon", "n", "x86_64")
    small = msgspec.structs.replace(
        seen("z", ami="ami-2"), capacity={"memory": 7000 * MI, "cpu": 2000}, allocatable={"memory": 6500 * MI}
    )
    file = travelling_file(learned(seen("a"), small), {"ami-1": image, "ami-2": image})
    (entry,) = file.entries
    assert (entry.capacity["memory"], entry.allocatable["memory"]) == (7000 * MI, 6500 * MI)
    assert (entry.capacity["pods"], entry.nodes) == (29, 2)
