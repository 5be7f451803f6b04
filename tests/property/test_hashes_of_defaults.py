"""A field set to its default by a text changes no hash, wherever in the tree of types it stands."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import inspect

from shiplap.instances.capacity.kubelet_settings import kubelet_hash
from shiplap.manifests.custom_resources import EC2NodeClass, EC2NodeClassSpec, NodePool, NodePoolTemplate
from shiplap.manifests.template_hash import first_node_class_hashes, first_pool_hashes, node_class_hash, pool_hash
from tests.thoroughness import draws

LAWS = settings(derandomize=True, deadline=None, max_examples=draws(300))
Document = dict[str, Any]

TEXTS: dict[str, st.SearchStrategy[str]] = {
    "expireAfter": st.sampled_from(["720h", "43200m", "1h30m", "Never"]),
    "terminationGracePeriod": st.sampled_from(["90m", "1h30m", "10s"]),
    "volumeSize": st.sampled_from(["20Gi", "1024Gi", "1Ti"]),
}
"""Fields whose texts have a form of their own."""
ANY_TEXT = st.text("ab", max_size=2)


def struct_of(shape: inspect.Type) -> inspect.StructType | None:
    """The struct that a field, an optional field or the items of a list are of, if any."""
    match shape:
        case inspect.Metadata(type=of):
            return struct_of(of)
        case inspect.StructType():
            return shape
        case inspect.VarTupleType(item_type=of):
            return struct_of(of)
        case inspect.UnionType(types=types):
            return next((found for found in map(struct_of, types) if found is not None), None)
    return None


def defaults_of(shape: inspect.StructType, path: str = "") -> list[str]:
    """The paths of all fields below a type that have a default other than nothing."""
    found = []
    for field in shape.fields:
        here = f"{path}.{field.encode_name}".lstrip(".")
        if plain(field) is not None:
            found.append(here)
        below = struct_of(field.type)
        found += defaults_of(below, here) if below is not None else []
    return found


def bare(shape: inspect.Type) -> inspect.Type:
    """A type without what an API server demands of its values."""
    return shape.type if isinstance(shape, inspect.Metadata) else shape


def values(shape: inspect.Type, name: str) -> st.SearchStrategy[Any]:
    match bare(shape):
        case inspect.StructType():
            return documents(shape)
        case inspect.VarTupleType(item_type=of):
            return st.lists(values(of, name), max_size=2)
        case inspect.DictType():
            return st.dictionaries(st.sampled_from(["a", "b"]), ANY_TEXT, max_size=2)
        case inspect.UnionType(types=types):
            return st.one_of([values(of, name) for of in types if not isinstance(of, inspect.NoneType)])
        case inspect.BoolType():
            return st.booleans()
        case inspect.IntType():
            return st.integers(0, 2)
        case inspect.StrType():
            return TEXTS.get(name, ANY_TEXT)
    raise AssertionError(f"{name}: no values for {shape}")


def documents(shape: inspect.StructType) -> st.SearchStrategy[Document]:
    """Any fields of a type, often with their defaults."""
    required, optional = {}, {}
    for field in shape.fields:
        drawn = values(field.type, field.encode_name)
        if field.required:
            required[field.encode_name] = drawn
        else:
            written = plain(field)
            optional[field.encode_name] = drawn if written is None else st.one_of(drawn, st.just(written))
    return st.fixed_dictionaries(required, optional=optional)


def plain(field: inspect.Field) -> Any:
    """The default of a field as it is written; None where there is none."""
    if field.default_factory is not inspect.NODEFAULT:
        return field.default_factory()
    return None if field.default is inspect.NODEFAULT else everything(field.default)


def everything(value: Any) -> Any:
    """A value as it is written by one who leaves nothing out but what has no value."""
    if isinstance(value, msgspec.Struct):
        fields = ((field.encode_name, getattr(value, field.name)) for field in msgspec.structs.fields(value))
        return {name: everything(entry) for name, entry in fields if entry is not None}
    return [everything(entry) for entry in value] if isinstance(value, tuple) else value


def written_out(shape: inspect.StructType, document: Document, draw: st.DrawFn) -> Document:
    """The document with some of the defaults written that it leaves out, at every depth."""
    found = dict(document)
    for field in shape.fields:
        name, below = field.encode_name, struct_of(field.type)
        default = plain(field)
        if name not in found and default is not None and draw(st.booleans()):
            found[name] = default
        if below is not None and isinstance(found.get(name), dict):
            found[name] = written_out(below, found[name], draw)
        elif below is not None and isinstance(found.get(name), list):
            found[name] = [written_out(below, item, draw) for item in found[name]]
    return found


TEMPLATE = inspect.type_info(NodePoolTemplate)
CLASS = inspect.type_info(EC2NodeClassSpec)
assert isinstance(TEMPLATE, inspect.StructType)
assert isinstance(CLASS, inspect.StructType)


def as_read(kind: type[Any], spec: Document) -> Any:
    """An object of this spec, as it is read from a file: no text of it is the object that the types hold."""
    return msgspec.json.decode(msgspec.json.encode({"metadata": {"name": "default"}, "spec": spec}), type=kind)


@st.composite
def pairs(draw: st.DrawFn, shape: inspect.StructType) -> tuple[Document, Document]:
    document = draw(documents(shape))
    return document, written_out(shape, document, draw)


@LAWS
@given(pairs(TEMPLATE))
def test_writing_out_defaults_of_a_template_changes_no_hash(case: tuple[Document, Document]) -> None:
    short, long = (as_read(NodePool, {"template": template}) for template in case)
    assert pool_hash(short) == pool_hash(long)


@LAWS
@given(pairs(CLASS))
def test_writing_out_defaults_of_an_ec2_node_class_changes_no_hash(case: tuple[Document, Document]) -> None:
    short, long = (as_read(EC2NodeClass, spec) for spec in case)
    assert node_class_hash(short, "AL2023") == node_class_hash(long, "AL2023")


@LAWS
@given(pairs(CLASS))
def test_what_was_learned_holds_whether_or_not_an_interface_type_is_written(case: tuple[Document, Document]) -> None:
    short, long = (as_read(EC2NodeClass, spec) for spec in case)
    replace = msgspec.structs.replace
    kept = {name: getattr(long.spec, name) for name in ("block_device_mappings", "user_data")}
    assert kubelet_hash(replace(short, spec=replace(short.spec, **kept)), 29) == kubelet_hash(long, 29)


@pytest.mark.parametrize(("shape", "fewest"), [(TEMPLATE, 10), (CLASS, 25)], ids=["NodePool", "EC2NodeClass"])
def test_each_default_written_alone_changes_no_hash(shape: inspect.StructType, fewest: int) -> None:
    """Every path there is, so that a field that is added later is looked at too."""
    paths = defaults_of(shape)
    assert len(paths) >= fewest
    for path in paths:
        parents, last = path.split(".")[:-1], path.split(".")[-1]
        short, long = at(shape, parents, None), at(shape, parents, last)
        if shape is TEMPLATE:
            one, other = (as_read(NodePool, {"template": template}) for template in (short, long))
            assert pool_hash(one) == pool_hash(other), path
            assert first_pool_hashes(one) <= first_pool_hashes(other) or "nodeClassRef" in path, path
        else:
            one, other = as_read(EC2NodeClass, short), as_read(EC2NodeClass, long)
            assert node_class_hash(one, "AL2023") == node_class_hash(other, "AL2023"), path
            both = (first_node_class_hashes(one, "AL2023"), first_node_class_hashes(other, "AL2023"))
            assert both[0] <= both[1] or "interfaceType" in path, path


def at(shape: inspect.StructType, parents: list[str], name: str | None) -> Document:
    """The smallest document with the mappings and lists that lead to a field, and that field with its default."""
    document: Document = {field.encode_name: least(field.type) for field in shape.fields if field.required}
    if parents:
        field = next(field for field in shape.fields if field.encode_name == parents[0])
        below = struct_of(field.type)
        assert below is not None
        inner = at(below, parents[1:], name)
        document[parents[0]] = [inner] if isinstance(bare(field.type), inspect.VarTupleType) else inner
    elif name is not None:
        document[name] = next(plain(field) for field in shape.fields if field.encode_name == name)
    return document


def least(shape: inspect.Type) -> Any:
    match shape:
        case inspect.Metadata(type=of):
            return least(of)
        case inspect.StructType(fields=fields):
            return {field.encode_name: least(field.type) for field in fields if field.required}
        case inspect.StrType():
            return "x"
    raise AssertionError(f"no smallest value of {shape}")
