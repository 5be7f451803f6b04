"""Requests to the Kubernetes API, and the RBAC rules of ClusterRoles that allow them."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from shiplap.errors import ClusterError, ObjectNotFound
from shiplap_lab.api_server.api_resources import RESOURCES, resource_of

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}


class ApiRequest(msgspec.Struct, frozen=True):
    """A request as RBAC sees it; `namespace` and `name` are empty when the URL names none.

    `resource` is the key of a resource that the server knows.
    """

    verb: str
    group: str
    resource: str
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    @property
    def target(self) -> str:
        """The resource as an RBAC rule names it, for example `pods/status`."""
        plural = RESOURCES[self.resource].plural
        return f"{plural}/{self.subresource}" if self.subresource else plural


def parse(method: str, url: str) -> tuple[ApiRequest, dict[str, str]]:
    """The request of a method and a URL, and its query parameters.

    Raises:
        ObjectNotFound: the path is not one of a known resource.
        ClusterError: status 405, the method is not served there.
    """
    split = urlsplit(url)
    query = dict(parse_qsl(split.query, keep_blank_values=True))
    parts = [unquote(part) for part in split.path.strip("/").split("/")]
    match parts:
        case ["api", "v1", *rest]:
            group, version = "", "v1"
        case ["apis", group, version, *rest]:
            pass
        case _:
            raise ObjectNotFound("the server could not find the requested resource", status=404)
    namespace = ""
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource = [*rest, "", "", ""][:3]
    resource = resource_of(group, version, plural)
    if resource is None or len(rest) > 3:
        raise ObjectNotFound("the server could not find the requested resource", status=404)
    return ApiRequest(_verb(method, name, query), group, resource.key, subresource, namespace, name), query


def _verb(method: str, name: str, query: dict[str, str]) -> str:
    if method == "GET":
        if query.get("watch") in ("1", "true"):
            return "watch"
        return "get" if name else "list"
    if method == "DELETE" and name:
        return "delete"
    if method in _VERBS:
        return _VERBS[method]
    raise ClusterError("the server does not allow this method on the requested resource", status=405)


class PolicyRule(msgspec.Struct, frozen=True, rename="camel"):
    """One rule of a ClusterRole; `*` stands for everything."""

    verbs: tuple[str, ...]
    resources: tuple[str, ...]
    api_groups: tuple[str, ...] = ("",)

    def allows(self, request: ApiRequest) -> bool:
        """True if this rule alone permits the request."""
        return (
            _covers(self.api_groups, request.group)
            and _covers(self.resources, request.target)
            and _covers(self.verbs, request.verb)
        )


READ_ONLY = (PolicyRule(("get", "list", "watch"), ("*",), ("*",)),)


def allowed(rules: Iterable[PolicyRule], request: ApiRequest) -> bool:
    """True if any rule permits the request: RBAC only grants, nothing denies."""
    return any(rule.allows(request) for rule in rules)


def _covers(named: tuple[str, ...], wanted: str) -> bool:
    return "*" in named or wanted in named
