"""Mistakes in the inputs of the GitHub Action, below `with` of a workflow."""

from __future__ import annotations

HERE = {"manifests": "nodepools"}
STATE = {**HERE, "cluster_state": "state.yaml"}

MISTAKES: dict[str, tuple[dict[str, str], int, str, str]] = {
    "nothing named": ({"manifests": ""}, 9, "manifests", "name the file or folder"),
    "left out": ({"region": "eu-west-1"}, 7, "manifests", "is missing"),
    "no checkout": ({"manifests": "nowhere"}, 9, "manifests", "actions/checkout"),
    "folder above": ({"manifests": "../elsewhere"}, 9, "manifests", "not in the repository"),
    "absolute": ({"manifests": "/etc"}, 9, "manifests", "not in the repository"),
    "home": ({"manifests": "~/nodepools"}, 9, "manifests", "write it from the repository's folder"),
    "option": ({"manifests": "-rf"}, 9, "manifests", "hyphen"),
    "two lines": ({"manifests": "nodepools\nmore"}, 9, "manifests", "one line"),
    "pattern": ({"manifests": "nodepools/*.yaml"}, 9, "manifests", "patterns are not expanded: name the folder"),
    "several": ({"manifests": "nodepools,more"}, 9, "manifests", "one step each, or name the folder"),
    "address": ({"manifests": "https://example.com/pools.yaml"}, 9, "manifests", "fetch it in an earlier step"),
    "unfilled": ({"manifests": "$MANIFESTS"}, 9, "manifests", "${{ env.MANIFESTS }}"),
    "no state": ({**HERE, "cluster_state": "nowhere.json"}, 10, "cluster-state", "an earlier step has to write it"),
    "states in a line": ({**HERE, "cluster_state": "state.yaml more.yaml"}, 10, "cluster-state", "one file a line"),
    "states by commas": ({**HERE, "cluster_state": "state.yaml,more.yaml"}, 10, "cluster-state", "one file a line"),
    "piped": ({**HERE, "cluster_state": "-"}, 10, "cluster-state", "an earlier step has to write it"),
    "two sources": ({**STATE, "context": "prod"}, 11, "context", "leave one of them out"),
    "two contexts": ({**HERE, "context": "prod\nstaging"}, 10, "context", "one line"),
    "country": ({**HERE, "region": "Ireland"}, 10, "region", "eu-west-1"),
    "zone": ({**HERE, "region": "eu-west-1a"}, 10, "region", "eu-west-1"),
    "capitals": ({**HERE, "region": "EU-WEST-1"}, 10, "region", "eu-west-1"),
    "two Regions": ({**HERE, "region": "eu-west-1,us-east-1"}, 10, "region", "eu-west-1"),
    "Region option": ({**HERE, "region": "--region=eu-west-1"}, 10, "region", "hyphen"),
    "range of commits": ({**HERE, "base": "a..b"}, 10, "base", "commit or branch"),
    "shell": ({**HERE, "base": "main;reboot"}, 10, "base", "commit or branch"),
    "blank in base": ({**HERE, "base": "main branch"}, 10, "base", "commit or branch"),
    "no base": ({**HERE, "base": "", "context": "prod"}, 10, "base", "no pull request"),
    "yes": ({**HERE, "strict": "yes"}, 10, "strict", "true or false"),
    "True": ({**HERE, "strict": "True"}, 10, "strict", "true or false"),
    "one": ({**HERE, "strict": "1"}, 10, "strict", "true or false"),
    "empty flag": ({**HERE, "strict": ""}, 10, "strict", "true or false"),
    "ignore": ({**HERE, "pods_left_out": "ignore"}, 10, "pods-left-out", "fail or warn"),
    "Warn": ({**HERE, "pods_left_out": "Warn"}, 10, "pods-left-out", "fail or warn"),
    "flag of pods": ({**HERE, "pods_left_out": "true"}, 10, "pods-left-out", "fail or warn"),
    "maybe": ({**HERE, "comment": "maybe"}, 10, "comment", "true or false"),
    "text of a comment": ({**HERE, "comment": "Nodes of production"}, 10, "comment", "true or false"),
    "no title": ({**HERE, "title": ""}, 10, "title", "tells this comment from others"),
    "end of a mark": ({**HERE, "title": "a --> b"}, 10, "title", "letters"),
    "long title": ({**HERE, "title": "a" * 101}, 10, "title", "at most 100"),
    "picture": ({**HERE, "title": "Nodes \N{ROCKET}"}, 10, "title", "letters"),
    "index": ({**HERE, "package": "--index-url=http://elsewhere"}, 10, "package", "hyphen"),
    "two packages": ({**HERE, "package": "shiplap\nboto3"}, 10, "package", "one line"),
}
"""The inputs, and of the error: its line of the workflow, the input and the words."""
