"""NodeClaims for tests, from the fields of the form in which they are stored, and claims of plans."""

from __future__ import annotations

from typing import Any, cast

from msgspec.structs import replace

from shiplap.manifests.nodeclaim import ClaimChanges, ClaimState, NodeClaim, PodReference
from shiplap.manifests.stored_form import StoredForm
from shiplap.scheduling.model.scheduling_plan import LaunchChoice, PlannedClaim

_FORM = StoredForm(NodeClaim)


def node_claim(**fields: Any) -> NodeClaim:
    """A claim; its plan, launch, instance and cause are made of the fields that are theirs."""
    return _FORM.nested(
        _FORM.flat_type(
            **{"name": "claim", "cluster": "test", "node_pool": "default", "node_class": "default"} | fields
        )
    )


def running_claim(name: str = "a", **fields: Any) -> NodeClaim:
    """An Initialized claim of an m5.large; its instance and node are called after it."""
    known = {"state": ClaimState.INITIALIZED, "instance_id": f"i-{name}", "instance_type": "m5.large"}
    return node_claim(**known | {"name": name, "node_name": f"node-{name}"} | fields)


def node_claims(number: int = 1, *types: str, **fields: Any) -> tuple[NodeClaim, ...]:
    """Claims that want the same, in order of their names; without `types` they take all that is sold."""
    return tuple(node_claim(name=f"claim-{place:03d}", instance_types=types, **fields) for place in range(number))


def with_fields(claim: NodeClaim, **fields: Any) -> NodeClaim:
    """The claim with other values of some fields, its own or of its parts."""
    return _FORM.nested(replace(_FORM.flat(claim), **fields))


def changes(claim: NodeClaim, **fields: Any) -> ClaimChanges:
    """Return the changes with which `advance` gives these fields of the claim, or of its parts, these values."""
    own = {name: value for name, value in fields.items() if name in NodeClaim.__struct_fields__}
    after = with_fields(claim, **fields)
    parts = {name: getattr(after, name) for name in ("plan", "launch", "instance", "reboots")}
    return cast(ClaimChanges, own | {name: part for name, part in parts.items() if part != getattr(claim, name)})


def references(*names: str, namespace: str = "default") -> tuple[PodReference, ...]:
    """Pods as claims and plans name them, with the uids that the builder of pods gives."""
    return tuple(PodReference(namespace, name, f"uid-{name}") for name in names)


def planned_claim(
    *types: str,
    name: str = "new",
    price: float = 1.0,
    zone: str = "a",
    capacity_type: str = "on-demand",
    pods: tuple[PodReference, ...] = (),
    **fields: Any,
) -> PlannedClaim:
    """A claim of a plan that may become one of these types and launches the first, else an m5.large."""
    known: dict[str, Any] = {"node_pool": "default", "node_class": "default", "tier": 0, "requirements": ()}
    return PlannedClaim(
        **{"name": name, "taints": (), "labels": {}, "requests": {}, "pods": pods} | known | fields,
        instance_types=types or ("m5.large",),
        launch=LaunchChoice(types[0] if types else "m5.large", zone, capacity_type, price),
    )


def flat(claim: NodeClaim) -> Any:
    """The claim with the fields of its parts beside its own."""
    return _FORM.flat(claim)
