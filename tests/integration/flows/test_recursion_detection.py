"""Timers that `lifecycle` answers with timers, under Lambda's recursive loop detection.

The flow, its adapter and botocore are the real ones; SQS keeps the trace header of each request, as AWS's does.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from botocore.awsrequest import AWSResponse
from botocore.session import get_session

from shiplap.aws.sqs import SqsTimers
from shiplap.flows import batch
from shiplap.flows.lifecycle.lifecycle import visit_claims
from shiplap.flows.messages import NodeSeen, Timer, for_lifecycle
from shiplap.flows.turns import Turns
from shiplap.settings import ClusterSettings, Settings
from shiplap_lab.emulated_aws.lineage import HEADER, MOST_TURNS, invoked, longest, turns
from shiplap_lab.fakes.signals import FakeDeadLetters
from tests.event_source import EventSourceMapping, EventSourcePoller
from tests.integration.flows.guards import guard
from tests.integration.flows.leaving import evicted, first, serving, warning
from tests.integration.flows.stage import Stage

FUNCTION = "shiplap-lifecycle"
_URL = "https://sqs.eu-west-1.amazonaws.com/123456789012/"


class Sqs:
    """The lifecycle queue on a stage's clock: requests of botocore come in, an event source takes messages out."""

    def __init__(self, stage: Stage) -> None:
        self.dead: list[str] = []
        self._clock = stage.clock
        self._waiting: list[tuple[float, dict[str, Any]]] = []
        session = get_session()
        session.set_credentials("local", "local")
        self.client = session.create_client("sqs", region_name="eu-west-1")
        self.client.meta.events.register("before-send.sqs.SendMessage", self._accept)

    def put(self, body: str, delay_s: float = 0.0, trace: str = "") -> None:
        name = f"m{len(self._waiting)}-{self._clock.now()}"
        message = {"MessageId": name, "ReceiptHandle": name, "Body": body, "Attributes": {"AWSTraceHeader": trace}}
        self._waiting.append((self._clock.now() + delay_s, message))

    def _accept(self, request: Any, **_: Any) -> AWSResponse:
        said = json.loads(request.body)
        self.put(said["MessageBody"], said.get("DelaySeconds", 0), request.headers.get(HEADER, b"").decode())
        answer = AWSResponse(request.url, 200, {"Content-Type": "application/x-amz-json-1.0"}, None)
        answer._content = json.dumps({"MessageId": "m", "MD5OfMessageBody": ""}).encode()
        return answer

    def receive_message(self, **_: Any) -> dict[str, Any]:
        due = [item for item in self._waiting if item[0] <= self._clock.now()]
        self._waiting = [item for item in self._waiting if item not in due]
        return {"Messages": [message for _, message in due]}

    def delete_message_batch(self, **_: Any) -> None:
        """Nothing comes again here."""

    def get_queue_attributes(self, **_: Any) -> dict[str, Any]:
        policy = {"deadLetterTargetArn": "arn:aws:sqs:eu-west-1:123456789012:dead-letters", "maxReceiveCount": 5}
        return {"Attributes": {"RedrivePolicy": json.dumps(policy)}}

    def get_queue_url(self, *, QueueName: str) -> dict[str, str]:  # noqa: N803 - SQS's name
        return {"QueueUrl": _URL + QueueName}

    def send_message(self, *, QueueUrl: str, MessageBody: str) -> None:  # noqa: N803 - as above
        assert QueueUrl == f"{_URL}dead-letters"
        self.dead.append(MessageBody)


class Lambda:
    """The function `lifecycle` on a stage; the runtime gives it the trace of its invocation."""

    def __init__(self, stage: Stage, sqs: Sqs) -> None:
        self.meta = SimpleNamespace(events=self)
        self._stage = stage
        self._context = msgspec.structs.replace(stage.context, timers=SqsTimers(sqs.client, f"{_URL}lifecycle"))
        self._before_call: Callable[..., None] | None = None

    def register(self, event: str, act: Callable[..., None]) -> None:
        assert event == "before-call.lambda.Invoke"
        self._before_call = act

    def invoke(self, *, FunctionName: str, Payload: bytes) -> dict[str, Any]:  # noqa: N803 - Lambda's names
        request: dict[str, Any] = {"headers": {}}
        assert self._before_call is not None
        self._before_call(params=request, model=None)
        environment = {"AWS_LAMBDA_FUNCTION_NAME": FUNCTION, "_X_AMZN_TRACE_ID": request["headers"][HEADER]}
        with patch.dict("os.environ", environment):
            answer = batch.run(
                json.loads(Payload)["Records"],
                for_lifecycle,
                self._attend,
                settings=Settings((self._stage.settings,)),
                dead_letters=FakeDeadLetters(),
                meter=self._stage.meter,
                turns=Turns(self._stage.clock, self._stage.clock.now() + 300),
            )
        return {"Payload": io.BytesIO(json.dumps(answer).encode())}

    def _attend(self, cluster: ClusterSettings, hints: Sequence[NodeSeen | Timer], _until: float) -> str:
        visit_claims(cluster, hints, self._context)
        return ""


def warned(*, recursive: bool) -> tuple[Stage, Sqs, EventSourcePoller, str]:
    """A node two minutes before its end, whose pod a budget protects; its timer is the first message of a chain."""
    stage = serving()
    guard(stage)
    claim, instance = first(stage)
    stage.interrupt(warning(stage, instance.id))
    sqs = Sqs(stage)
    for timer in stage.due():
        sqs.put(json.dumps({"cluster": timer.cluster, "claim": timer.claim, "step": timer.step}))
    mapped = EventSourceMapping(
        f"{_URL}lifecycle", "arn:aws:sqs:eu-west-1:1:lifecycle", f"{FUNCTION}:live", 10, 0, 1, recursive
    )
    source = EventSourcePoller(sqs, Lambda(stage, sqs), mapped, clock=stage.clock.now, pause=stage.clock.advance)
    return stage, sqs, source, claim.name


def delivered(stage: Stage, source: EventSourcePoller, seconds: int) -> Iterator[None]:
    for _ in range(seconds):
        if found := source.gather():
            source.invoke(found)
            yield
        stage.clock.advance(1)


def test_a_chain_of_timers_lives_as_long_as_it_is_needed_where_recursion_is_allowed() -> None:
    stage, sqs, source, _ = warned(recursive=True)
    invocations = len(list(delivered(stage, source, 120)))

    assert invocations > MOST_TURNS
    assert (source.dropped, sqs.dead) == ([], [])
    assert evicted(stage) == ["web-000"]


def test_without_it_the_chain_ends_among_the_dead_letters() -> None:
    stage, sqs, source, claim = warned(recursive=False)
    list(delivered(stage, source, 120))

    assert len(source.invocations) == MOST_TURNS
    assert sqs.dead == source.dropped
    (body,) = sqs.dead
    assert json.loads(body)["claim"] == claim
    assert evicted(stage) == []


def test_the_lineage_counts_each_function_by_itself() -> None:
    trace = ""
    for _ in range(3):
        trace = invoked(trace, "shiplap-lifecycle:live")
    trace = invoked(trace, "shiplap-schedule:live")

    assert [turns(trace, name) for name in ("shiplap-lifecycle", "shiplap-schedule", "shiplap-watch")] == [3, 1, 0]
    assert trace.startswith("Root=1-")
    assert trace.count("Lineage=") == 1


def test_other_fields_of_a_trace_header_are_kept() -> None:
    given = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1;Lineage=a87bd80c:1|68fd508a:5"

    assert invoked(given, "shiplap-lifecycle").startswith(given)


@pytest.mark.parametrize("others", [[], ["", "Root=1-5759e988-bd862e3fe1be46a994272793"]])
def test_a_batch_continues_its_longest_chain(others: list[str]) -> None:
    longer = invoked(invoked("", "f"), "f")

    assert longest([*others, invoked("", "f"), longer], "f") == longer
    assert turns(longest(others, "f"), "f") == 0
