"""The GitHub Action, played step by step as a runner does, and a GitHub whose comments it writes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import yaml

ACTION = Path(__file__).parents[1] / "action"
REPOSITORY = "octo/cluster"
TOKEN = "ghs_secretOfTheWorkflow"
PULL = 12

WORKFLOW = """\
on: pull_request
jobs:
  plan:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v5
      - uses: octo/shiplap/action@v1
        with:
"""

POOLS = """\
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: general}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements:
        - {key: karpenter.k8s.aws/instance-family, operator: In, values: [m5]}
        - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
---
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default}
spec:
  role: nodes
  amiSelectorTerms: [{alias: al2023@latest}]
  subnetSelectorTerms: [{tags: {karpenter.sh/discovery: blue}}]
  securityGroupSelectorTerms: [{tags: {karpenter.sh/discovery: blue}}]
"""

STATE = "".join(
    f"""\
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: web, uid: uid-{name}}}
spec: {{containers: [{{name: c, resources: {{requests: {{cpu: "{cpu}", memory: 2Gi}}}}}}]}}
---
"""
    for name, cpu in (("one", 3), ("two", 3), ("wide", 40))
)


class GitHub:
    """The comments of a pull request, and what was asked for; `refuses` is the status of every write."""

    def __init__(self) -> None:
        self.comments: list[dict[str, Any]] = []
        self.requests: list[tuple[str, str]] = []
        self.refuses = 0
        self.person = ""
        self.address = ""

    def answer(self, method: str, target: str, token: str, body: str) -> tuple[int, object]:
        path, query = urlsplit(target).path, parse_qs(urlsplit(target).query)
        self.requests.append((method, path))
        writes = method in ("POST", "PATCH")
        if token != f"Bearer {TOKEN}" or (writes and self.refuses):
            return self.refuses or 401, {"message": "no"}
        if path == "/user":
            return (200, {"login": self.person}) if self.person else (403, {"message": "not for an integration"})
        if writes:
            # As GitHub does.
            assert len(body) <= 65_536
        if (method, path) == ("POST", f"/repos/{REPOSITORY}/issues/{PULL}/comments"):
            self.comments.append(self.written(body, self.person))
            return 201, self.comments[-1]
        if (method, path) == ("GET", f"/repos/{REPOSITORY}/issues/{PULL}/comments"):
            size, page = int(query["per_page"][0]), int(query["page"][0])
            return 200, self.comments[size * (page - 1) : size * page]
        for comment in self.comments:
            if (method, path) == ("PATCH", f"/repos/{REPOSITORY}/issues/comments/{comment['id']}"):
                comment["body"] = body
                return 200, comment
        return 404, {"message": "Not Found"}

    def written(self, body: str, person: str) -> dict[str, Any]:
        author = {"login": person or "github-actions[bot]", "type": "User" if person else "Bot"}
        return {"id": len(self.comments) + 100, "body": body, "user": author}

    @contextmanager
    def served(self) -> Iterator[None]:
        """Answer on the loopback."""
        github = self

        class Handler(BaseHTTPRequestHandler):
            def _any(self) -> None:
                sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                body = json.loads(sent)["body"] if sent else ""
                status, answer = github.answer(self.command, self.path, self.headers["Authorization"], body)
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(answer).encode())

            do_GET = do_POST = do_PATCH = _any  # noqa: N815 - the names that the server calls

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            self.address = f"http://127.0.0.1:{server.server_port}"
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
            thread.start()
            try:
                yield
            finally:
                server.shutdown()
                thread.join()


class Played(NamedTuple):
    """A run: its exit code, what the log shows, the job's summary, and the names of the steps that ran."""

    code: int
    log: str
    summary: str
    steps: list[str]


class Runner:
    """A checkout of a repository with two commits, and the machine that the Action runs on."""

    def __init__(self, folder: Path, github: GitHub) -> None:
        self.workspace, self._temp, self._github = folder / "workspace", folder / "temp", github
        self._temp.mkdir()
        self.files: dict[str, str] = {"nodepools/pools.yaml": POOLS, "state.yaml": STATE}
        self.action = yaml.safe_load((ACTION / "action.yml").read_text())
        self.from_fork = False
        self.workspace.mkdir()
        self._git("init", "--quiet", "--initial-branch", "main")
        self.commit(self.files)

    def commit(self, files: Mapping[str, str]) -> None:
        """Commit files; an empty one is removed."""
        for name, text in files.items():
            path = self.workspace / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            if not text:
                path.unlink()
        self._git("add", "--all")
        self._git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "--message", "More")

    def _git(self, *arguments: str) -> None:
        settings = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
        subprocess.run(["git", *arguments], cwd=self.workspace, env=os.environ | settings, check=True)  # noqa: S603, S607

    def play(self, *, first_on_path: str = "", **inputs: str) -> Played:
        """Run the steps with these inputs, as `with` of a workflow gives them; hyphens are written as underscores."""
        named = {name.replace("_", "-"): value for name, value in inputs.items()}
        lines = [f"          {name}: {json.dumps(value)}\n" for name, value in named.items()]
        workflow = self.workspace / ".github" / "workflows" / "plan.yml"
        workflow.parent.mkdir(parents=True, exist_ok=True)
        workflow.write_text(WORKFLOW + "".join(lines))
        values = self._values(named)
        files = {name: self._temp / name for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY", "GITHUB_PATH")}
        for file in files.values():
            file.write_text("")
        environment = self._environment() | {name: str(file) for name, file in files.items()}
        if first_on_path:
            environment["PATH"] = os.pathsep.join([first_on_path, environment["PATH"]])
        log, ran = "", []
        for step in self.action["runs"]["steps"]:
            outputs = dict(line.split("=", 1) for line in files["GITHUB_OUTPUT"].read_text().splitlines())
            values |= {f"steps.report.outputs.{name}": value for name, value in outputs.items()}
            given = {name: substituted(text, values) for name, text in step.get("env", {}).items()}
            added = files["GITHUB_PATH"].read_text().splitlines()
            path = os.pathsep.join([*reversed(added), environment["PATH"]])
            done = self._run(step["run"], environment | given | {"PATH": path})
            log += done.stdout + done.stderr
            ran.append(step["name"])
            if done.returncode:
                break
        return Played(done.returncode, log, files["GITHUB_STEP_SUMMARY"].read_text(), ran)

    def _run(self, script: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
        """As a runner runs `shell: bash`."""
        file = self._temp / "step.sh"
        file.write_text(script)
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(file)]
        return subprocess.run(  # noqa: S603 - the Action's own
            command, cwd=self.workspace, env=environment, capture_output=True, text=True, check=False
        )

    def _values(self, named: Mapping[str, str]) -> dict[str, str]:
        context = {"github.token": TOKEN, "github.event.pull_request.base.sha": "main~1"}
        known = self.action["inputs"]
        inputs = {name: substituted(declared.get("default", ""), context) for name, declared in known.items()}
        return {f"inputs.{name}": value for name, value in (inputs | {"package": ""} | dict(named)).items()}

    def _environment(self) -> dict[str, str]:
        head = {"repo": {"full_name": "somebody/cluster" if self.from_fork else REPOSITORY}}
        event = self._temp / "event.json"
        event.write_text(json.dumps({"pull_request": {"number": PULL, "head": head}}))
        return {
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "HOME": str(self._temp),
            "RUNNER_TEMP": str(self._temp),
            "GITHUB_ACTION_PATH": str(ACTION),
            "GITHUB_API_URL": self._github.address,
            "GITHUB_EVENT_PATH": str(event),
            "GITHUB_REPOSITORY": REPOSITORY,
            "GITHUB_SHA": "0123456789abcdef0123456789abcdef01234567",
            "GITHUB_WORKFLOW_REF": f"{REPOSITORY}/.github/workflows/plan.yml@refs/pull/{PULL}/merge",
            "GITHUB_WORKSPACE": str(self.workspace),
        }


def substituted(text: str, values: Mapping[str, str]) -> str:
    """The text with its expressions replaced; one that is not known is empty."""
    return re.sub(r"\${{\s*(\S+)\s*}}", lambda found: values.get(found[1], ""), text)
