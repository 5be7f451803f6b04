"""The comment that the GitHub Action writes on a pull request."""

from __future__ import annotations

from pathlib import Path

from tests.action_steps import POOLS, GitHub, Runner
from tests.formats.golden import Golden


def test_the_comment_on_a_pull_request(golden: Golden, tmp_path: Path) -> None:
    github = GitHub()
    with github.served():
        runner = Runner(tmp_path, github)
        runner.commit({"nodepools/pools.yaml": POOLS.replace("[m5]", "[c5]").replace("on-demand", "spot")})
        planned = runner.play(manifests="nodepools", cluster_state="state.yaml", region="eu-west-1")
        pool = POOLS.replace("requirements:", "requirments:").replace("[{alias: al2023@latest}]", "[]")
        runner.commit({"nodepools/pools.yaml": pool})
        refused = runner.play(manifests="nodepools", cluster_state="state.yaml", title="Wrong manifests")
    texts = {comment["body"].splitlines()[2]: comment["body"].splitlines() for comment in github.comments}
    golden.holds("commands/pull-request", {"comments": texts, "exit codes": [planned.code, refused.code]})
