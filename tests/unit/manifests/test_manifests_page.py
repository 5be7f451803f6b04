"""The examples on the page about manifests are valid, and its table of tiers is what comes out."""

from __future__ import annotations

import re
from pathlib import Path

from shiplap.manifests.files.documents import read_text
from shiplap.manifests.files.loading import check_documents
from shiplap.manifests.tiers import expand

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "manifests.md"
EXAMPLES = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
CATALOGUE = {
    "karpenter.k8s.aws/instance-family": ["c7i", "c7i-flex", "m7i-flex"],
    "topology.kubernetes.io/zone": ["us-east-1a", "us-east-1b"],
}


def test_the_examples_are_valid() -> None:
    documents = [document for text in EXAMPLES for document in read_text("manifests.md", text)]
    assert [document.name for document in documents] == [
        "EC2NodeClass/default",
        "NodePool/default",
        "NodePool/flex-first",
        "EC2NodeClass/dense",
    ]
    assert check_documents(documents).problems == ()


def test_the_table_of_tiers() -> None:
    (pool,) = check_documents(read_text("manifests.md", EXAMPLES[1])).manifests.node_pools
    rows = re.findall(r"^\| (\d) \| (\S+) \| (\S+) \|$", PAGE.read_text(), re.MULTILINE)
    shown = [(int(number), family.replace("any", "*"), zone.replace("any", "*")) for number, family, zone in rows]
    tiers = expand(pool, CATALOGUE.__getitem__)
    assert [(tier.index, *re.findall(r"/\S+ ([^,]+)", tier.text)) for tier in tiers] == shown
