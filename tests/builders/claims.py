"""NodeClaims for tests, from the fields of the form in which they are stored."""

from __future__ import annotations

from typing import Any, cast

from msgspec.structs import replace

from shiplap.manifests.nodeclaim import ClaimChanges, NodeClaim
from shiplap.manifests.stored_form import StoredForm

_FORM = StoredForm(NodeClaim)


def node_claim(**fields: Any) -> NodeClaim:
    """A claim; its plan, launch, instance and cause are made of the fields that are theirs."""
    return _FORM.nested(
        _FORM.flat_type(**{"cluster": "test", "node_pool": "default", "node_class": "default"} | fields)
    )


def with_fields(claim: NodeClaim, **fields: Any) -> NodeClaim:
    """The claim with other values of some fields, its own or of its parts."""
    return _FORM.nested(replace(_FORM.flat(claim), **fields))


def changes(claim: NodeClaim, **fields: Any) -> ClaimChanges:
    """Return the changes with which `advance` gives these fields of the claim, or of its parts, these values."""
    own = {name: value for name, value in fields.items() if name in NodeClaim.__struct_fields__}
    after = with_fields(claim, **fields)
    parts = {name: getattr(after, name) for name in ("plan", "launch", "instance")}
    return cast(ClaimChanges, own | {name: part for name, part in parts.items() if part != getattr(claim, name)})


def flat(claim: NodeClaim) -> Any:
    """The claim with the fields of its parts beside its own."""
    return _FORM.flat(claim)
