"""EC2 (with SSM and the Pricing API) as an HTTP endpoint on loopback, for `AWS_ENDPOINT_URL_EC2` and its siblings.

One process can hold one emulator: moto keeps its resources in module globals.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from threading import Thread
from types import TracebackType
from typing import Any

from moto.ec2.models import ec2_backends
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from moto.ssm.models import ssm_backends
from werkzeug.serving import make_server

from shiplap_lab.emulated_ec2.admin import Admin
from shiplap_lab.emulated_ec2.behaviour import Behaviour
from shiplap_lab.emulated_ec2.control import PREFIX, Ec2Control
from shiplap_lab.emulated_ec2.moto_patches import installed
from shiplap_lab.emulated_ec2.regional_prices import PRICE_LIST_TARGET, Prices, get_products

_STATUS = {200: "200 OK", 400: "400 Bad Request", 404: "404 Not Found"}


class _QuietHandler(MotoRequestHandler):
    """Moto's request handler without a line per request."""

    protocol_version = "HTTP/1.1"
    """Keeps connections open: clients make many small calls."""

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Say nothing."""


class _Dispatcher(DomainDispatcherApplication):
    """Moto's dispatcher, which looks for the service of a host in its own source folder at every request."""

    def __init__(self) -> None:
        super().__init__(create_backend_app)
        self._services: dict[str | None, Any] = {}

    def get_backend_for_host(self, host: str | None) -> Any:
        """The service of a host, found once."""
        if host not in self._services:
            self._services[host] = super().get_backend_for_host(host)
        return self._services[host]


class _Application:
    """WSGI: control and price list requests are answered here, the rest by moto."""

    def __init__(self, behaviour: Behaviour, region: str) -> None:
        self._behaviour = behaviour
        self._region = region
        self._admin = Admin(behaviour)
        self._moto = _Dispatcher()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path.startswith(PREFIX + "/"):
            status, body = self._admin.answer(
                environ["REQUEST_METHOD"],
                path.removeprefix(PREFIX),
                _body(environ),
                environ.get("HTTP_X_REGION", self._region),
            )
            return _respond(start_response, status, body, "application/json")
        if environ.get("HTTP_X_AMZ_TARGET") == PRICE_LIST_TARGET:
            answer = get_products(self._behaviour.prices, json.loads(_body(environ) or b"{}"))
            return _respond(start_response, 200, json.dumps(answer).encode(), "application/x-amz-json-1.1")
        answered: Iterable[bytes] = self._moto(environ, start_response)
        return answered


def _body(environ: dict[str, Any]) -> bytes:
    data: bytes = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    return data


def _respond(start_response: Callable[..., Any], status: int, body: bytes, content_type: str) -> Iterable[bytes]:
    start_response(_STATUS[status], [("Content-Type", content_type), ("Content-Length", str(len(body)))])
    return [body]


class Ec2Emulator:
    """The emulated region, empty when it starts; also a context manager."""

    def __init__(
        self,
        *,
        region: str = "us-east-1",
        prices: Prices | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.region = region
        self.behaviour = Behaviour(prices or _embedded_prices(region), clock)
        self._server = make_server(
            "127.0.0.1", 0, _Application(self.behaviour, region), threaded=True, request_handler=_QuietHandler
        )
        self._installed = ExitStack()
        self._thread: Thread | None = None

    @property
    def url(self) -> str:
        """Endpoint to give to boto3 as `endpoint_url`."""
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def control(self) -> Ec2Control:
        return Ec2Control(self.url, self.region)

    def start(self) -> Ec2Emulator:
        """Serve in a thread of this process until `stop`."""
        _forget()
        self._installed.enter_context(installed(self.behaviour))
        serve = {"poll_interval": 0.02}  # how long `stop` waits
        self._thread = Thread(target=self._server.serve_forever, kwargs=serve, name="emulated-ec2", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Close the port and put moto back as it was."""
        if self._thread is not None:
            self._server.shutdown()
            self._thread.join()
            self._thread = None
        self._server.server_close()
        self._installed.close()

    def __enter__(self) -> Ec2Emulator:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _forget() -> None:
    """Moto keeps resources as long as the process lives: a VPC of an emulator before this one, tagged alike, would have
    the same addresses, and two instances one name.
    """
    for backends in (ec2_backends, ssm_backends):
        for account in backends.values():
            account.reset()


def _embedded_prices(region: str) -> Prices:
    from shiplap_lab.catalogue import embedded  # noqa: PLC0415 - not needed by emulators with prices of their own

    return Prices.of(embedded.load(region))
