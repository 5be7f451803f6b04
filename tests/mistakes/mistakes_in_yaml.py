"""Mistakes in YAML and JSON themselves; of one file all are told at once, as far as its parser can go on."""

from __future__ import annotations

POOL = """\
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: general}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements: []
"""
TWICE = "is written twice, first in line"

MISTAKES = {
    "label pasted again": (
        POOL.replace("{name: general}", "\n  name: general\n  name: special"),
        [(5, f"the key 'name' {TWICE} 4: keep one")],
    ),
    "second spec": (
        POOL + "spec:\n  limits: {cpu: 100}\n",
        [(9, f"the key 'spec' {TWICE} 4: keep one")],
    ),
    "three keys twice": (
        POOL + "      requirements: []\n  limits: {cpu: 1, cpu: 2}\n  weight: 1\n  weight: 2\n",
        [
            (9, f"the key 'requirements' {TWICE} 8: keep one"),
            (10, f"the key 'cpu' {TWICE} 10: keep one"),
            (12, f"the key 'weight' {TWICE} 11: keep one"),
        ],
    ),
    "twice in two documents": (
        f"{POOL}kind: NodePool\n---\n{POOL}kind: NodePool\n",
        [(9, f"the key 'kind' {TWICE} 2: keep one"), (19, f"the key 'kind' {TWICE} 12: keep one")],
    ),
    "thrice": (
        POOL + "kind: NodePool\nkind: NodePool\n",
        [(9, f"the key 'kind' {TWICE} 2: keep one"), (10, f"the key 'kind' {TWICE} 2: keep one")],
    ),
    "twice, then a tab": (
        POOL + "kind: NodePool\n---\nkind: NodePool\n\tspec: {}\n",
        [(9, f"the key 'kind' {TWICE} 2: keep one"), (12, "tab character that violates indentation")],
    ),
    "truth twice": ("on: 1\ntrue: 2\nkind: NodePool\n", [(2, f"the key 'true' {TWICE} 1: keep one")]),
    "tags of CloudFormation": (
        POOL.replace("general", "!Ref Name").replace("default", "!Sub '${Name}'"),
        [(3, "constructor for the tag '!Ref'"), (7, "constructor for the tag '!Sub'")],
    ),
    "tag and a key twice": (
        POOL.replace("general", "!Ref Name") + "kind: NodePool\n",
        [(3, "constructor for the tag '!Ref'"), (9, f"the key 'kind' {TWICE} 2: keep one")],
    ),
    "numbers without digits": (
        POOL + "  weight: 0x_\n  limits: {cpu: 0b_}\n",
        [(9, "'0x_' is not a number"), (10, "'0b_' is not a number")],
    ),
    "merged text": (
        POOL + "  limits:\n    <<: none\n  disruption:\n    <<: [none]\n",
        [(10, "<< takes a mapping"), (12, "<< takes a mapping")],
    ),
    "keys that are lists": (
        POOL + "  ? [a]\n  : b\n  ? {c: d}\n  : e\n",
        [(9, "a key must be plain text"), (11, "a key must be plain text")],
    ),
    "alias of itself": (
        POOL + "  limits: &l {cpu: *l}\n  weight: 1\n  weight: 2\n",
        [(9, "an alias stands inside of what it names"), (11, f"the key 'weight' {TWICE} 10: keep one")],
    ),
    "texts between documents": (
        f"{POOL}---\nNodePool\n---\n- NodePool\n",
        [(10, "expected a mapping, got text"), (12, "expected a mapping, got a list")],
    ),
    "JSON twice": (
        '{"apiVersion": "karpenter.sh/v1",\n "kind": "NodePool",\n "kind": "NodePool",\n'
        ' "metadata": {"name": "a",\n  "name": "b"}}\n',
        [(3, f"the key 'kind' {TWICE} 2: keep one"), (5, f"the key 'name' {TWICE} 4: keep one")],
    ),
    "bracket left open": (POOL.replace("requirements: []", "requirements: ["), [(9, "did not find expected")]),
    "value after a value": (POOL.replace("name: general", "name: a: b"), [(3, "not YAML")]),
    "quote left open": (POOL.replace("general", "'general"), [(9, "unexpected end of stream")]),
    "indented too little": (
        POOL.replace("  template:", " - template:").replace("      nodeC", "  nodeC"),
        [(7, "not YAML")],
    ),
    "percent first": ("%YAML 3\n" + POOL, [(1, "not YAML")]),
    "at sign": (POOL.replace("general", "@general"), [(3, "cannot start any token")]),
    "two colons": (POOL.replace("kind: NodePool", "kind:: NodePool"), [(1, "kind required field is missing")]),
}
"""The manifest, and all that is told of it: lines and words."""
