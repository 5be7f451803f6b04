"""Manifests made from a CRD's schema: valid ones, and ones in which something was changed that a constraint is about.

A manifest begins as a random object of the schema, of which every part satisfies its own constraints. Then up to three
places are changed: to the ends of a bound and one beyond, to texts that nearly match, to other kinds of values, to what
a rule names. Most changes are aimed at one constraint, in turn, so that each is met and broken about as often.
"""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple

from tests.crds import pattern_samples, schema_judge
from tests.crds.schemas import (
    BOUNDS,
    ITEM,
    Constraint,
    Schema,
    api_version_of,
    constraints_of,
    inner_schemas,
    schema_of,
)

Object = dict[str, Any]

_TRIES = 40
_KEPT = 100
_LITERAL = re.compile(r"'([^']*)'|\"([^\"]*)\"")
_TEXTS = ("a", "b", "web", "x-1", "1", "true", "", "*", "self")
_KEYS = ("a" * 63, "a" * 64, "A.b_c", "A.b_c-", "x/y/z", "X.y/z", f"{'a' * 253}/b", f"{'a' * 254}/b")
_FORMS = (2**31 - 1, 2**31, 2**63 - 1, 2**63, -1, "2026-01-02", "now")
_STRANGE = (None, 0, -1, 1.0, 1.5, True, "", "1", [], ["a"], {}, {"a": "b"}, [None], 2**31, 2**63)


class Place(NamedTuple):
    """Somewhere in a manifest: `container[key]` is what the schema describes."""

    container: Any
    key: Any
    schema: Schema
    path: tuple[str, ...]


class ManifestGenerator:
    """Manifests of one kind, the same ones for the same seed.

    Attributes:
        broken: how many manifests so far break a constraint, by the judge that needs no API server.
        met: how many sound ones meet it.
    """

    def __init__(self, kind: str, seed: int) -> None:
        self._random = Random(seed)  # noqa: S311 - cases, not secrets
        self._kind = kind
        self._api_version = api_version_of(kind)
        self._schema = schema_of(kind)
        self._constraints = list(constraints_of(self._schema))
        self._literals = sorted({text for text in _literals(self._schema) if not {"(", "^"} & {*text}} | {*_TEXTS})
        self._literals += [changed for text in self._literals for changed in (f"{text}/x", f"x.{text}/y")]
        self._kept: dict[int, list[Any]] = {}
        self._fitting_literals: dict[int, list[str]] = {}
        self._made = 0
        self.broken: Counter[Constraint] = Counter()
        self.met: Counter[Constraint] = Counter()

    def next(self) -> Object:
        """One manifest."""
        self._made += 1
        manifest = self._valid()
        if self._random.random() < 0.75:
            aim = self._rarest()
            for _ in range(self._random.choice((1, 1, 1, 1, 1, 2, 3))):
                self._change(manifest, aim)
        if self._random.random() < 0.03:
            self._change_metadata(manifest["metadata"])
        self._count(manifest)
        return manifest

    def _rarest(self) -> Constraint:
        """One of the constraints that were broken or met least often."""
        few = self._random.sample(self._constraints, min(12, len(self._constraints)))
        return min(few, key=lambda constraint: min(self.broken[constraint], self.met[constraint]))

    def _count(self, manifest: Object) -> None:
        broken = schema_judge.object_violations(self._kind, manifest)
        self.broken.update(broken)
        if not broken and manifest.get("spec") is not None:
            self.met.update(set(schema_judge.met(self._schema, schema_judge.defaulted(self._schema, manifest["spec"]))))

    def _change_metadata(self, metadata: Object) -> None:
        random = self._random
        text = random.choice(
            (*self._literals, "a" * 63, "a" * 64, "A.b_c-", "x/y/z", f"{'a' * 253}/b", f"{'a' * 254}/b")
        )
        match random.randrange(4):
            case 0:
                metadata["labels"] = {text: "a"}
            case 1:
                metadata["labels"] = {"a": text}
            case 2:
                metadata["annotations"] = {text: "a"}
            case _:
                metadata["name"] = (
                    f"{metadata['name']}{random.choice(('.a', '.', '-', '_', 'A', '/', 'é', 'a' * 245, 'a' * 253))}"
                )

    def successor(self, manifest: Object) -> Object:
        """Return the replacement of a manifest: a copy with a few changes, most often where transition rules apply."""
        changed = copy.deepcopy(manifest)
        about_transitions = [constraint for constraint in self._constraints if "oldSelf" in constraint.detail]
        for _ in range(self._random.choice((1, 1, 2, 3))):
            aims = about_transitions if self._random.random() < 0.6 else []
            self._change(changed, self._random.choice(aims or self._constraints))
        return changed

    def _valid(self) -> Object:
        return {
            "apiVersion": self._api_version,
            "kind": self._kind,
            "metadata": {"name": f"m-{self._made}"},
            "spec": self._value(self._schema),
        }

    def _value(self, schema: Schema) -> Any:
        """A value of the schema whose rules hold, where a few tries come to one; now and then one that was made before.

        The parts of a value are valid before its own rules are asked.
        """
        if not any("oldSelf" not in rule["rule"] for rule in schema.get("x-kubernetes-validations", ())):
            return self._any_value(schema)
        kept = self._kept.setdefault(id(schema), [])
        if len(kept) >= _KEPT and self._random.random() < 0.9:
            return copy.deepcopy(self._random.choice(kept))
        for _ in range(_TRIES):
            made = self._any_value(schema)
            if not schema_judge.broken_rules(schema, made):
                kept.append(made)
                del kept[: -2 * _KEPT]
                return copy.deepcopy(made)
        return made

    def _any_value(self, schema: Schema) -> Any:
        random = self._random
        if "enum" in schema:
            return random.choice(schema["enum"])
        if schema.get("x-kubernetes-int-or-string"):
            return random.choice((0, 1, 100, pattern_samples.matching(schema["pattern"], random)))
        match schema.get("type"):
            case "object":
                return self._object(schema)
            case "array":
                least = schema.get("minItems", 0)
                return [self._value(schema["items"]) for _ in range(random.choice((least, 1, 1, 2, 3)))]
            case "boolean":
                return random.random() < 0.5
            case "integer":
                lowest = schema.get("minimum", 0)
                return random.randint(lowest, schema.get("maximum", lowest + 10))
            case "string":
                return self._text(schema)
        return random.choice(("a", 1, True, {"a": "b"}))

    def _text(self, schema: Schema) -> str:
        random = self._random
        if random.random() < 0.3 and (fitting := self._fitting(schema)):
            return random.choice(fitting)
        if schema.get("format") == "date-time":
            return "2026-01-02T03:04:05Z"
        if "pattern" in schema:
            return pattern_samples.matching(schema["pattern"], random)[: schema.get("maxLength", 1000)]
        if any("@" in rule["rule"] for rule in schema.get("x-kubernetes-validations", ())):
            return f"{random.choice(self._literals)}@{random.choice(('latest', 'v20240625', '1.32.0'))}"
        return random.choice([text for text in _TEXTS if len(text) >= schema.get("minLength", 0)])

    def _fitting(self, schema: Schema) -> list[str]:
        """Literals of the shape of a schema."""
        if id(schema) not in self._fitting_literals:
            fitting = [text for text in self._literals if not schema_judge.broken_shape(schema, text)]
            self._fitting_literals[id(schema)] = fitting
        return self._fitting_literals[id(schema)]

    def _object(self, schema: Schema) -> Object:
        random = self._random
        required = set(schema.get("required", ()))
        share = random.choice((0.15, 0.4, 0.8))
        made = {
            name: self._value(inner)
            for name, inner in schema.get("properties", {}).items()
            if name in required or random.random() < share
        }
        entry = schema.get("additionalProperties")
        if isinstance(entry, dict):
            for _ in range(random.choice((0, 1, 1, 2))):
                made[random.choice((*self._literals, *_TEXTS, "team", "example.com/team"))] = self._value(entry)
        return made

    def _change(self, manifest: Object, aim: Constraint) -> None:
        """One change, at a place that the constraint is about where there is one."""
        if "spec" not in manifest:
            return
        places = list(_places(manifest, "spec", self._schema, ("spec",)))
        path = aim.path[:-1] if aim.keyword == "required" else aim.path
        aimed = [place for place in places if place.path == path]
        if not aimed:
            self._grow(manifest, path)
            aimed = [place for place in _places(manifest, "spec", self._schema, ("spec",)) if place.path == path]
        if aimed and self._random.random() < 0.85:
            self._aim(self._random.choice(aimed), aim)
        else:
            self._disturb(self._random.choice(places))

    def _grow(self, manifest: Object, path: tuple[str, ...]) -> None:
        """Make the objects on the way to a path, where they are missing."""
        container, key, schema = manifest, "spec", self._schema
        for step in path[1:]:
            value = container.get(key) if isinstance(container, dict) else container[key]
            inner = dict(inner_schemas(schema))[step]
            if step == ITEM:
                if not isinstance(value, list):
                    return
                if not value:
                    value.append(self._value(inner))
                container, key = value, self._random.randrange(len(value))
            elif not isinstance(value, dict):
                return
            elif "properties" not in schema:
                if not value:
                    value[self._random.choice((*self._literals, *_TEXTS))] = self._value(inner)
                container, key = value, self._random.choice(sorted(value))
            else:
                if step not in value:
                    value[step] = self._value(inner)
                container, key = value, step
            schema = inner

    def _aim(self, place: Place, aim: Constraint) -> None:
        """Break a constraint that was broken less often than met, else meet it at its very end."""
        breaks = self.broken[aim] <= self.met[aim]
        random, value = self._random, place.container[place.key]
        match aim.keyword:
            case keyword if keyword in BOUNDS:
                self._aim_at_bound(place, keyword, breaks)
            case "required" if isinstance(value, dict):
                value.pop(aim.path[-1], None)
            case "set" if isinstance(value, list):
                value += value[:1]
            case "enum" | "pattern":
                place.container[place.key] = self._aimed_text(place.schema, breaks)
            case "format":
                place.container[place.key] = random.choice(_FORMS)
            case "rule":
                self._aim_at_rule(place, aim.detail, breaks)
            case _:
                place.container[place.key] = copy.deepcopy(random.choice(_STRANGE))

    def _aimed_text(self, schema: Schema, breaks: bool) -> str:
        random = self._random
        if "enum" in schema:
            text: str = random.choice(schema["enum"])
        else:
            text = pattern_samples.matching(schema["pattern"], random)
        tries = (pattern_samples.near(text, random) for _ in range(_TRIES if breaks else 0))
        return next((changed for changed in tries if schema_judge.broken_shape(schema, changed)), text)

    def _aim_at_bound(self, place: Place, keyword: str, breaks: bool) -> None:
        bound, value = place.schema[keyword], place.container[place.key]
        wanted = bound if not breaks else bound + (-1 if keyword.startswith("min") else 1)
        if keyword in ("minimum", "maximum"):
            place.container[place.key] = wanted
        elif keyword.endswith("Length"):
            text = value if isinstance(value, str) else ""
            place.container[place.key] = (text + "a" * (bound + 1))[: max(0, wanted)]
        elif isinstance(value, list):
            self._resize(value, place.schema, max(0, wanted))
        elif isinstance(value, dict):
            value.update({f"key-{number}": "a" for number in range(wanted - len(value))})

    def _aim_at_rule(self, place: Place, rule: str, breaks: bool) -> None:
        """Other values of the same shape, until the rule fails and if possible no other, or all hold."""
        for _ in range(_TRIES):
            made = self._any_value(place.schema)
            broken = schema_judge.broken_rules(place.schema, made)
            if broken == ({rule} if breaks else set()) or (rule in broken and self._random.random() < 0.1):
                break
        place.container[place.key] = made

    def _resize(self, value: list[Any], schema: Schema, length: int) -> None:
        unlike = [self._value(schema["items"]) for _ in range(3)]
        while len(value) < length:
            value.append(copy.deepcopy(self._random.choice(value or unlike)))
        del value[length:]
        free = [name for name, inner in schema["items"].get("properties", {}).items() if _is_unbounded(inner)]
        for number, item in enumerate(value):
            if isinstance(item, dict):  # items that must differ, do
                item.update(dict.fromkeys(free, number))

    def _disturb(self, place: Place) -> None:
        """A change that aims at nothing."""
        random, container, key = self._random, place.container, place.key
        value = container[key]
        match random.randrange(6):
            case 0:
                container[key] = copy.deepcopy(random.choice(_STRANGE))
            case 1 if isinstance(container, dict):
                del container[key]
            case 2 if isinstance(value, dict):
                value[random.choice(("unknown", *self._literals))] = copy.deepcopy(random.choice(("a", None, {})))
            case 3 if isinstance(value, str):
                container[key] = random.choice((pattern_samples.near(value, random), random.choice(self._literals)))
            case 4 if isinstance(value, list) and value:
                value.append(copy.deepcopy(random.choice(value)))
            case _:
                container[key] = self._value(place.schema)


def _literals(schema: Schema) -> Iterator[str]:
    """Texts that rules and enumerations name."""
    for rule in schema.get("x-kubernetes-validations", ()):
        for single, double in _LITERAL.findall(rule["rule"]):
            yield single or double
    yield from (text for text in schema.get("enum", ()) if isinstance(text, str))
    for _, inner in inner_schemas(schema):
        yield from _literals(inner)


def _is_unbounded(schema: Schema) -> bool:
    return schema.get("type") == "integer" and "maximum" not in schema


def _places(container: Any, key: Any, schema: Schema, path: tuple[str, ...]) -> Iterator[Place]:
    """Every place of a manifest that the schema describes."""
    yield Place(container, key, schema, path)
    value = container[key]
    inner = dict(inner_schemas(schema))
    if isinstance(value, dict):
        for name in list(value):
            step = name if name in inner else "{}"
            if step in inner:
                yield from _places(value, name, inner[step], (*path, step))
    elif isinstance(value, list) and ITEM in inner:
        for number in range(len(value)):
            yield from _places(value, number, inner[ITEM], (*path, ITEM))
