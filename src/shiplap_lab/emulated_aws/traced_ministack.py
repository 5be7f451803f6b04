"""MiniStack, run as a program, with trace headers passed on and invocations counted as AWS does.

SQS keeps the header of a SendMessage with the message, and Lambda gives the header of an Invoke to the function, whose
SDK sends it along. MiniStack does neither, and without them nothing tells how long a chain of invocations is.
It counts invocations by Invoke in CloudWatch, and here those by queues as well.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

from ministack import app
from ministack.services import lambda_svc, sqs

from shiplap_lab.emulated_aws import cloudformation_gaps
from shiplap_lab.emulated_aws.lineage import HEADER

_trace: ContextVar[str] = ContextVar("trace", default="")


def _noting(handle: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    async def noted(method: str, path: str, headers: dict[str, str], *rest: Any) -> Any:
        _trace.set(headers.get(HEADER.lower(), ""))
        return await handle(method, path, headers, *rest)

    return noted


def _with_trace(system_attributes: Callable[..., dict[str, str]]) -> Callable[..., dict[str, str]]:
    def made(now: float, given: dict[str, Any]) -> dict[str, str]:
        trace = {"AWSTraceHeader": _trace.get()} if _trace.get() else {}
        return trace | system_attributes(now, given)

    return made


def _continued(of_invocation: Callable[..., str | None]) -> Callable[..., str | None]:
    def made(config: dict[str, Any], inbound: str | None = None) -> str | None:
        return of_invocation(config, inbound or _trace.get() or None)

    return made


def _counted(run: Callable[..., None]) -> Callable[..., None]:
    def counted(mapping: dict[str, Any], function: dict[str, Any], *rest: Any) -> None:
        began = time.monotonic()
        run(mapping, function, *rest)
        failed = mapping.get("LastProcessingResult") == "FAILED"
        name = function["config"]["FunctionName"]
        lambda_svc._emit_lambda_metrics(name, 1000 * (time.monotonic() - began), error=failed, throttle=False)

    return counted


def main() -> None:
    """Run MiniStack until it is ended."""
    cloudformation_gaps.install()
    for service in (sqs, lambda_svc):
        service.handle_request = _noting(service.handle_request)
    sqs._build_send_sys_attrs = _with_trace(sqs._build_send_sys_attrs)
    lambda_svc._xray_trace_id_for_invocation = _continued(lambda_svc._xray_trace_id_for_invocation)
    lambda_svc._run_sqs_batch = _counted(lambda_svc._run_sqs_batch)
    app.main()


if __name__ == "__main__":
    main()
