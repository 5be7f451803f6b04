"""What a reader of settings refuses: values of fields that are beyond the bounds that the fields' types have."""

from __future__ import annotations

import msgspec

from shiplap.manifests.decoding import Problem, decode


def beyond_bounds(settings: msgspec.Struct) -> list[Problem]:
    return decode(msgspec.json.decode(msgspec.json.encode(settings)), type(settings))[1]
