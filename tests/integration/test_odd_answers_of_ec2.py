"""Answers of EC2 gone wrong in any way: what Shiplap makes of them is typed, or an AwsError; nothing else is raised."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import boto3
import msgspec
import pytest
from botocore.awsrequest import AWSResponse
from botocore.config import Config
from hypothesis import given
from hypothesis import strategies as st

from shiplap.aws.ec2.ec2_compute import Ec2Compute
from shiplap.errors import ShiplapError
from shiplap.ports import FleetRequest, Instance
from shiplap.settings import ClusterSettings
from tests.aws_faults import raw_body
from tests.integration.contracts.emulated_ec2 import REGION, VERSION, Region, emulated_region
from tests.integration.contracts.fleet_requests import NODE_CLASS, request_for
from tests.odd_input import damaged, fuzzed, kept

SETTINGS = ClusterSettings(
    name="demo",
    region=REGION,
    endpoint="https://demo.example",
    certificate_authority="Q0E=",
    kubernetes_version=VERSION,
    service_cidr="10.100.0.0/16",
)
ODD_TEXTS = st.sampled_from(["", " ", "0", "-1", "true", "1e99", "i-", "terminated", "2026-13-45T99:00:00Z", "\u0661"])
Bodies = Mapping[str, bytes]
Question = Callable[[Ec2Compute, "Answers"], Any]

QUESTIONS: tuple[Question, ...] = (
    lambda compute, _: compute.resolve(NODE_CLASS, fresh=True),
    lambda compute, _: compute.inspect(NODE_CLASS),
    lambda compute, answers: compute.launch(answers.request),
    lambda compute, _: compute.instances("demo"),
    lambda compute, answers: compute.launched("demo", answers.request.token),
    lambda compute, answers: compute.instance("demo", answers.instance.id),
    lambda compute, answers: compute.ended("demo", answers.instance.id),
    lambda compute, answers: compute.images([answers.instance.id]),
)
"""Every question of the port that reads an answer."""


class Answers:
    """EC2's answers to one launch, recorded once from the emulator; `altered` replaces some, by operation.

    `readers` are the questions that read the answer of an operation: whatever another one says, they say the same.
    """

    def __init__(self, region: Region) -> None:
        region.seed("demo")
        self.region = region
        self.sound: dict[str, bytes] = {}
        self.altered: Bodies = {}
        self.ec2 = self._client(region)
        self.ec2.meta.events.register_first("before-parse", self._record)
        self.request: FleetRequest = request_for(self.compute(), "default-1")
        self.compute().launch(self.request)
        region.control.advance(60.0)  # until EC2 shows what it has launched
        self.instance: Instance
        (self.instance,) = self.compute().instances("demo")
        self.ec2.meta.events.unregister("before-parse", self._record)
        self.ec2.meta.events.register_first("before-send", self._answer)
        self.asked: set[str] = set()
        self.readers: dict[str, list[Question]] = {name: [] for name in self.sound}
        for question in QUESTIONS:
            self.asked.clear()
            question(self.compute(), self)
            for name in self.asked:
                self.readers[name].append(question)

    @staticmethod
    def _client(region: Region) -> Any:
        return boto3.client(
            "ec2",
            endpoint_url=region.emulator.url,
            region_name=REGION,
            aws_access_key_id="testing",
            aws_secret_access_key="testing",
            config=Config(retries={"mode": "standard", "total_max_attempts": 1}),
        )

    def compute(self) -> Ec2Compute:
        """The adapter, which remembers nothing yet."""
        return Ec2Compute(
            SETTINGS,
            ec2=self.ec2,
            ssm=lambda: self.region.client("ssm"),
            eks=lambda: self.region.client("eks"),
            clock=self.region.emulator.behaviour.now,
            sleep=lambda _: None,
        )

    def _record(self, response_dict: dict[str, Any], event_name: str, **_: Any) -> None:
        """The longest answer of each operation says most."""
        operation = event_name.rpartition(".")[2]
        self.sound[operation] = max(self.sound.get(operation, b""), response_dict["body"], key=len)

    def _answer(self, request: Any, event_name: str, **_: Any) -> AWSResponse:
        operation = event_name.rpartition(".")[2]
        self.asked.add(operation)
        body = self.altered.get(operation) or self.sound.get(operation) or _empty(operation)
        return AWSResponse(request.url, 200, {"Content-Type": "text/xml"}, raw_body(body))


@pytest.fixture(scope="module")
def answers() -> Iterator[Answers]:
    with emulated_region() as region:
        made = Answers(region)
        yield made
        made.ec2.close()


def _empty(operation: str) -> bytes:
    """The answer to what only an odd answer made Shiplap ask: nothing was found."""
    return f'<{operation}Response xmlns="http://ec2.amazonaws.com/doc/2016-11-15"/>'.encode()


def spoilt_document(draw: Callable[..., Any], body: bytes) -> bytes:
    """An answer of which one to three elements are dropped, emptied, doubled, renamed, or say something else."""
    root = copy.deepcopy(ElementTree.fromstring(body))  # noqa: S314 - the emulator's own
    for _ in range(draw(st.integers(1, 3))):
        pairs = [(parent, child) for parent in root.iter() for child in parent]
        if not pairs:
            break
        parent, child = pairs[draw(st.integers(0, len(pairs) - 1))]
        spoil(parent, child, draw(st.sampled_from(ACCIDENTS)), lambda: draw(ODD_TEXTS))
    return ElementTree.tostring(root)


ACCIDENTS = ("drop", "text", "double", "rename", "empty", "nest")


def spoil(parent: ElementTree.Element, child: ElementTree.Element, accident: str, odd_text: Callable[[], str]) -> None:
    """One accident of an element. `nest` puts a copy of it into it, where text is expected."""
    if accident == "drop":
        parent.remove(child)
    elif accident == "double":
        parent.append(copy.deepcopy(child))
    elif accident == "text":
        child.text = odd_text()
    elif accident == "rename":
        child.tag = f"{child.tag}x"
    elif accident == "nest":
        child.append(copy.deepcopy(child))
    else:
        assert accident == "empty"
        child.clear()


class KeptAnswer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An answer of an operation: a whole body, or the sound one with an accident of the element at a path."""

    operation: str
    body: str = ""
    path: str = ""
    accident: str = ""
    text: str = ""

    def document(self, sound: bytes) -> bytes:
        """The body. `path` is of names of elements below the root; the first element there has the accident."""
        if self.body:
            return self.body.encode()
        root = ElementTree.fromstring(sound)  # noqa: S314 - the emulator's own
        steps = [f"{{*}}{name}" for name in self.path.split("/")]
        parent = root.find("/".join(steps[:-1])) if steps[1:] else root
        assert parent is not None, self.path
        child = parent.find(steps[-1])
        assert child is not None, self.path
        spoil(parent, child, self.accident, lambda: self.text)
        return ElementTree.tostring(root)


def use_all(answers: Answers, questions: Iterable[Question]) -> None:
    """Put questions; each is put even where another has failed."""
    compute = answers.compute()
    for question in questions:
        with suppress(ShiplapError):
            answer = question(compute, answers)
            msgspec.json.encode(answer)
            for found in answer if isinstance(answer, tuple) else ():
                assert isinstance(found, Instance)
                assert found.id


@pytest.mark.filterwarnings("ignore:tzname")  # botocore parses odd times by dateutil, which only warns
@fuzzed(0.7, usual=150)
@given(data=st.data())
def test_a_spoilt_answer_is_typed_or_an_error(answers: Answers, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(answers.sound)))
    answers.altered = {name: spoilt_document(data.draw, answers.sound[name])}
    use_all(answers, answers.readers[name])


@pytest.mark.filterwarnings("ignore:tzname")
@fuzzed(0.3, usual=100)
@given(data=st.data())
def test_a_damaged_answer_is_typed_or_an_error(answers: Answers, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(answers.sound)))
    text = data.draw(damaged([answers.sound[name].decode()], "<>/&;\"'=-"))
    answers.altered = {name: text.encode()}
    use_all(answers, answers.readers[name])


@pytest.mark.filterwarnings("ignore:tzname")
@kept("ec2")
def test_a_kept_answer_is_typed_or_an_error(answers: Answers, kept_input: Path) -> None:
    kept_answer = msgspec.json.decode(kept_input.read_bytes(), type=KeptAnswer)
    answers.altered = {kept_answer.operation: kept_answer.document(answers.sound[kept_answer.operation])}
    use_all(answers, answers.readers[kept_answer.operation])


def test_the_sound_ones_are_understood(answers: Answers) -> None:
    answers.altered = {}
    use_all(answers, QUESTIONS)
    assert answers.compute().instances("demo") == (answers.instance,)
    assert {question for readers in answers.readers.values() for question in readers} == set(QUESTIONS)
    assert {"CreateFleet", "DescribeInstances", "DescribeSubnets", "DescribeImages"} <= answers.sound.keys()
