"""The schema of shiplap.yaml takes what the reader takes, and refuses what the reader refuses for its form."""

from __future__ import annotations

import json
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import inspect

from shiplap.errors import InvalidInput
from shiplap.manifests.decoding import Constraint, Problem, decode
from shiplap_cdk.install_document import read
from shiplap_cdk.install_keys import written_install
from shiplap_cdk.install_schema import schema_text
from tests.thoroughness import draws

SCHEMA = json.loads(schema_text())
CHECKER = jsonschema.Draft202012Validator(SCHEMA)
SMALLEST: dict[str, Any] = {"region": "eu-west-1", "clusters": [{"name": "edge", "manifests": "cluster"}]}
ODD = st.sampled_from([None, "", "odd", "12", 0, -1, 1.5, 7, 10**7, True, [], ["odd"], [None], {}, {"odd": 1}, [{}]])


def values(shape: inspect.Type) -> st.SearchStrategy[Any]:
    """Values that have the shape of a key, most of them within its bounds."""
    match shape:
        case inspect.Metadata(type=inner, extra=extra):
            constraint: Constraint = (extra or {}).get("constraint", Constraint())
            return within(constraint, inner)
        case inspect.UnionType(types=types):
            return st.one_of([values(each) for each in types])
        case inspect.StructType(fields=fields):
            needed = {field.encode_name: values(field.type) for field in fields if field.required}
            others = {field.encode_name: values(field.type) for field in fields if not field.required}
            chosen = st.sets(st.sampled_from(sorted(others)), max_size=3) if others else st.just(set())
            return chosen.flatmap(
                lambda names: st.fixed_dictionaries(needed | {name: others[name] for name in sorted(names)})
            )
        case inspect.VarTupleType(item_type=item):
            return st.lists(values(item), max_size=2)
        case inspect.DictType(value_type=item):
            return st.dictionaries(st.sampled_from(["app", "tier"]), values(item), max_size=2)
        case inspect.EnumType(cls=kinds):
            return st.sampled_from([str(kind.value) for kind in kinds])
        case inspect.BoolType():
            return st.booleans()
        case inspect.IntType():
            return st.integers(0, 50)
        case inspect.FloatType():
            return st.floats(0, 0.9)
        case inspect.NoneType():
            return st.none()
        case _:
            return st.sampled_from(["", "a", "28%", "2027-06-30", "eu-west-1", "cluster"])


def within(constraint: Constraint, inner: inspect.Type) -> st.SearchStrategy[Any]:
    if constraint.choices:
        return st.sampled_from(constraint.choices)
    if constraint.pattern:
        return st.from_regex(re.compile(constraint.pattern, re.ASCII))
    if constraint.least is not None:
        return st.integers(constraint.least, constraint.most or 9)
    if isinstance(inner, inspect.VarTupleType):
        return st.lists(values(inner.item_type), min_size=constraint.fewest, max_size=max(constraint.fewest, 2))
    return values(inner)


def places(document: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """The paths of all that a document holds."""
    inside = (
        document.items() if isinstance(document, dict) else enumerate(document if isinstance(document, list) else ())
    )
    return [path] * bool(path) + [found for key, item in inside for found in places(item, (*path, key))]


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """A document of drawn keys; in half of them something is odd, unknown or missing."""
    made: dict[str, Any] = json.loads(json.dumps(draw(values(inspect.type_info(written_install())))))
    made["region"] = draw(st.sampled_from(["eu-west-1", "us-gov-west-1"]))
    for cluster in made["clusters"]:
        cluster["manifests"] = "cluster"
    if draw(st.booleans()):
        *way, last = draw(st.sampled_from(places(made)))
        spot: Any = made
        for step in way:
            spot = spot[step]
        if draw(st.booleans()):
            spot[last] = draw(ODD)
        elif isinstance(spot, dict):
            spot["unknown"] = spot.pop(last)
    return made


def said_by_the_reader(document: dict[str, Any]) -> list[Problem]:
    """What is wrong with the form: types, bounds of single values, keys that are unknown or missing."""
    return decode(document, written_install())[1]


def is_read(document: dict[str, Any]) -> bool:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "shiplap.yaml"
        path.write_text(yaml.safe_dump(document))
        try:
            read(path)
        except InvalidInput:
            return False
        return True


def test_a_document_is_taken_by_both_or_refused_by_both() -> None:
    seen = {True: 0, False: 0}

    @settings(max_examples=draws(200))
    @given(documents())
    def judge(document: dict[str, Any]) -> None:
        taken = CHECKER.is_valid(document)
        assert taken or said_by_the_reader(document) or not is_read(document)
        assert not (taken and said_by_the_reader(document))
        seen[taken] += 1

    judge()
    assert min(seen.values()) > 2


@pytest.mark.parametrize(
    ("of_install", "of_cluster"),
    [
        ({"logRetentionDays": 8}, {}),
        ({"account": "12"}, {}),
        ({"account": 123456789012}, {}),
        ({"region": "eu-west-9"}, {}),
        ({"clusters": []}, {}),
        ({"alarmTopic": "alarms"}, {}),
        ({"otlp": {}}, {}),
        ({}, {"placement": "guess"}),
        ({}, {"joinTimeout": 1}),
        ({}, {"joinTimeoutSeconds": 59}),
        ({}, {"vmMemoryOverheadPercent": 1}),
        ({}, {"vpc": {"subnets": ["sg-00000001"], "securityGroups": ["sg-00000001"]}}),
        ({}, {"volumeKeys": ["a key"]}),
    ],
    ids=str,
)
def test_a_mistake_is_refused_by_both(of_install: dict[str, Any], of_cluster: dict[str, Any]) -> None:
    document = SMALLEST | {"clusters": [SMALLEST["clusters"][0] | of_cluster]} | of_install
    assert not CHECKER.is_valid(document)
    assert not is_read(document)


def test_keys_without_a_value_are_as_if_they_were_not_there() -> None:
    cluster = SMALLEST["clusters"][0] | {"vpc": None, "claimRules": None, "placement": None}
    document = SMALLEST | {"name": None, "otlp": None, "clusters": [cluster]}
    assert is_read(document)
    CHECKER.validate(document)


def test_every_key_is_explained() -> None:
    CHECKER.check_schema(SCHEMA)
    for name in ("InstallDocument", "ClusterDocument", "VpcConfig", "OtlpDocument"):
        keys = SCHEMA["$defs"][name]["properties"]
        assert [key for key, part in keys.items() if len(part["description"]) < 10] == []
    assert all("description" in part for part in SCHEMA["$defs"].values() if not part["title"].startswith("_"))
