"""The steps of the GitHub Action: check inputs, validate and plan, tell the pull request.

It needs nothing but Python and `shiplap` itself. What manifests say is written by whoever opens the pull request: it
gets into commands of the runner only escaped, and into no shell.
"""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

MOST_CHARACTERS = 60_000
"""Length of a comment; GitHub refuses more than 65,536 characters."""

MOST_ANNOTATIONS = 50
_REQUEST_S = 30
_REGION = re.compile(r"[a-z]{2,3}(-[a-z]+)+-\d+")
_REFERENCE = re.compile(r"[\w./~^-]+")
_NO_PATH = {
    "://": "fetch it in an earlier step",
    "$": "no shell fills in variables here, write for example ${{ env.MANIFESTS }}",
    "~": "write it from the repository's folder",
    "*": "patterns are not expanded: name the folder",
    ",": "one step each, or name the folder that holds all",
}
"""Signs of what people write for a path, and what to write instead."""

_SOURCE = re.compile(r"(?P<file>[^:]+):(?P<line>\d+): (?P<said>.*)")


class RefusedInput(Exception):
    """An input of the Action that cannot be meant, with the reason and what to write instead."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(reason)
        self.name = name


class Check(NamedTuple):
    """The inputs of a run, checked."""

    manifests: str
    cluster_state: tuple[str, ...]
    context: str
    region: str
    base: str
    strict: bool
    is_left_out_failure: bool
    title: str


def given(name: str) -> str:
    """The text of an input, as the step passes it."""
    return os.environ.get(f"INPUT_{name.upper().replace('-', '_')}", "").strip()


def check_inputs() -> Check:
    """Read all inputs of the report. Raises RefusedInput."""
    context, region, base = _line("context"), _line("region"), _line("base")
    state = tuple(_file("cluster-state", line.strip()) for line in given("cluster-state").splitlines() if line.strip())
    if state and context:
        raise RefusedInput("context", "the cluster is asked, or read from cluster-state: leave one of them out")
    if region and not _REGION.fullmatch(region):
        raise RefusedInput("region", f"{region!r} is no Region of AWS: write one such as eu-west-1")
    if base and not (_REFERENCE.fullmatch(base) and ".." not in base):
        raise RefusedInput("base", f"{base!r} is no commit or branch: write one such as main")
    if (state or context) and not base:
        raise RefusedInput("base", "there is no pull request whose base could be compared: name a commit or branch")
    return Check(
        _inside("manifests", _line("manifests", needed="name the file or folder of the manifests")),
        state,
        context,
        region,
        base,
        _flag("strict"),
        _choice("pods-left-out", ("fail", "warn")) == "fail",
        _title(),
    )


def _title() -> str:
    title = _line("title", needed="write what tells this comment from others")
    if len(title) > 100 or not re.fullmatch(r"[\w .,()/-]+", title):
        raise RefusedInput("title", "write at most 100 letters, digits, blanks and signs of .,()/-")
    return title


def _line(name: str, needed: str = "") -> str:
    text = given(name)
    if needed and not text:
        raise RefusedInput(name, f"is missing: {needed}")
    if len(text.splitlines()) > 1 or not text.isprintable():
        raise RefusedInput(name, "has several lines, or signs that cannot be printed: write one line")
    if text.startswith("-"):
        raise RefusedInput(name, f"{text!r} would be taken as an option: it may not begin with a hyphen")
    return text


def _choice(name: str, known: tuple[str, ...]) -> str:
    text = given(name)
    if text not in known:
        raise RefusedInput(name, f"is {text!r}: write {' or '.join(known)}")
    return text


def _flag(name: str) -> bool:
    return _choice(name, ("true", "false")) == "true"


def _file(name: str, text: str) -> str:
    if not Path(text).exists():
        hint = "write one file a line" if re.search(r"[\s,]", text) else "an earlier step has to write it"
        raise RefusedInput(name, f"there is no {text!r} in {Path.cwd()}: {hint}")
    return str(Path(text).absolute())


def _inside(name: str, text: str) -> str:
    """The path from the repository's folder. A path out of it could not be compared with another commit."""
    here, path = Path.cwd().resolve(), Path(text).resolve()
    if not path.exists() and (hint := next((hint for sign, hint in _NO_PATH.items() if sign in text), "")):
        raise RefusedInput(name, f"{text!r} is no path of the repository: {hint}")
    if not path.is_relative_to(here) or Path(text).is_absolute():
        raise RefusedInput(name, f"{text!r} is not in the repository: write a path from its folder")
    if not path.exists():
        raise RefusedInput(name, f"there is no {text!r} in the repository: was it checked out, by actions/checkout?")
    for inner in path.rglob("*"):
        if inner.is_symlink() and not inner.resolve().is_relative_to(here):
            raise RefusedInput(name, f"{inner.relative_to(here)} is a link out of the repository: remove it")
    return path.relative_to(here).as_posix()


def annotation(kind: str, said: str, file: str = "", line: int = 0, title: str = "") -> str:
    """A command of the runner that shows a text at a place; nothing in the text can begin another command."""
    known = {"file": file, "line": str(line) if line else "", "title": title}
    properties = ",".join(
        f"{name}={_escaped(value).replace(':', '%3A').replace(',', '%2C')}" for name, value in known.items() if value
    )
    return f"::{kind} {properties}".rstrip() + f"::{_escaped(said)}"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def place_of_input(name: str) -> tuple[str, int]:
    """The workflow's file and the line that gives an input, as far as the runner tells; of an input that is not given,
    the line that uses the Action.
    """
    reference = os.environ.get("GITHUB_WORKFLOW_REF", "").partition("@")[0]
    file = "/".join(reference.split("/")[2:])
    if not file or not Path(file).is_file():
        return "", 0
    used = 0
    for number, line in enumerate(Path(file).read_text(errors="replace").splitlines(), start=1):
        if re.match(r"\s*(-\s+)?uses\s*:.*shiplap", line):
            used = used or number
        elif used and name and re.match(rf"\s*[\"']?{re.escape(name)}[\"']?\s*:", line):
            return file, number
    return file, used


def report(check: Check) -> tuple[str, int]:
    """The report as Markdown, and the exit code."""
    folder = Path(os.environ["RUNNER_TEMP"]) / "shiplap-report"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "part.md"
    file.unlink(missing_ok=True)
    command = ["validate", f"./{check.manifests}", "--markdown", str(file), *(["--strict"] if check.strict else [])]
    done = _shiplap([*command, "--output", "json"])
    answer: dict[str, Any] = {"valid": False, "problems": [], "warnings": []}
    if done.stdout.strip():
        answer = json.loads(done.stdout)
    for kind, entries in (("error", answer["problems"]), ("warning", answer["warnings"])):
        for entry in entries[:MOST_ANNOTATIONS]:
            said = ": ".join(filter(None, (entry["document"], entry["field"], entry["reason"])))
            print(annotation(kind, said, Path(entry["file"]).as_posix(), entry["line"], "Shiplap"))
    parts = [marker(check.title), f"## {check.title}", file.read_text() if file.exists() else ""]
    code = done.returncode
    if code == 2 and not answer["problems"]:
        parts.append(_told(done.stderr))
    if answer["valid"] and (check.cluster_state or check.context):
        part, planned = _comparison(check, folder, file)
        parts.append(part)
        code = max(code, planned)
    commit = os.environ.get("GITHUB_SHA", "")[:12]
    parts.append(f"<sub>{check.manifests} at {commit}</sub>" if commit else "")
    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n", code


def _comparison(check: Check, folder: Path, file: Path) -> tuple[str, int]:
    """The changes that the manifests make, beside those of the base; and the exit code."""
    try:
        with tempfile.TemporaryDirectory(dir=folder) as base:
            return _compared(check, _at_base(check, Path(base)), file)
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace")
        return _told(f"{check.base} cannot be read, give actions/checkout `fetch-depth: 0`: {said}"), 2
    except tarfile.TarError as error:
        return _told(f"{check.base} has a link out of {check.manifests}, remove it: {error}"), 2


def _compared(check: Check, old: Path | None, file: Path) -> tuple[str, int]:
    if old is None:
        return f"There is no {check.manifests} at {check.base[:12]}: nothing to compare with.", 0
    file.unlink(missing_ok=True)
    sources = ["--context", check.context] if check.context else []
    sources += [part for state in check.cluster_state for part in ("--cluster-state", state)]
    sources += ["--region", check.region] if check.region else []
    compared = ["--diff", str(old), f"./{check.manifests}", "--markdown", str(file), "--output", "json"]
    done = _shiplap(["plan", *sources, *compared])
    if not file.exists():
        return _told(done.stderr), max(done.returncode, 2)
    if done.returncode == 1:
        kind = "error" if check.is_left_out_failure else "warning"
        pods = ", ".join(entry["pod"] for entry in json.loads(done.stdout)["newlyLeftOut"])
        print(annotation(kind, f"these manifests have no place for {pods}", check.manifests, 0, "Shiplap"))
    head = f"### Instead of {check.manifests} at {check.base[:12]}"
    return f"{head}\n\n{file.read_text()}", done.returncode if check.is_left_out_failure else 0


def _told(said: str) -> str:
    """An error of a program: an annotation where it names a file, and a block of the report."""
    text = " ".join(said.removeprefix("shiplap: ").split())
    found = _SOURCE.fullmatch(text)
    place = (found["said"], found["file"], int(found["line"])) if found else (text, "", 0)
    print(annotation("error", *place, "Shiplap"))
    fence = "`" * (1 + max((len(ticks) for ticks in re.findall("`+", text)), default=2))
    return f"{fence}text\n{text}\n{fence}"


def _at_base(check: Check, folder: Path) -> Path | None:
    """The manifests as the base has them, in a folder; None if it has none.

    Raises subprocess.CalledProcessError, or tarfile.TarError for links out of the folder.
    """
    # The repository may be in a folder of the workspace, so that git is asked where the manifests are.
    path = Path(check.manifests)
    name = path.name

    def git(*arguments: str, fails: bool = False) -> subprocess.CompletedProcess[bytes]:
        command = ["git", "--literal-pathspecs", *arguments]
        return subprocess.run(command, cwd=path.parent, check=not fails, capture_output=True)

    commit = f"{check.base}^{{commit}}"
    if git("rev-parse", "--quiet", "--verify", commit, fails=True).returncode:
        git("fetch", "--quiet", "--depth=1", "origin", check.base)
        commit = "FETCH_HEAD^{commit}"
    commit = git("rev-parse", "--verify", commit).stdout.decode().strip()
    if git("cat-file", "-e", f"{commit}:./{name}", fails=True).returncode:
        return None
    packed = git("archive", "--format=tar", commit, "--", name or ".").stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return folder / name


def _shiplap(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(["shiplap", *arguments], check=False, capture_output=True, text=True)
    except FileNotFoundError:
        raise RefusedInput("package", "is empty, and no shiplap is installed: write a version, or a wheel") from None


def marker(title: str) -> str:
    """The line by which a comment is found again."""
    return f"<!-- shiplap: {title} -->"


def tell() -> None:
    """Write the report into the job's summary, and into the pull request's comment where that is possible."""
    text = _report_file().read_text()
    with Path(os.environ["GITHUB_STEP_SUMMARY"]).open("a") as summary:
        summary.write(text)
    event = json.loads(Path(os.environ["GITHUB_EVENT_PATH"]).read_text())
    pull, token = event.get("pull_request") or {}, given("token")
    if not re.fullmatch(r"[!-~]*", token):
        # As a header it would be part of an error's text.
        raise RefusedInput("token", "has signs that no token has: pass it as ${{ secrets.NAME }}, without others")
    if not _flag("comment") or not pull:
        return
    why = ""
    if not token:
        why = "there is no token"
    elif ((pull.get("head") or {}).get("repo") or {}).get("full_name") != os.environ["GITHUB_REPOSITORY"]:
        why = "a pull request from a fork gets no token that may write"
    else:
        try:
            write_comment(Comments(token, int(pull["number"])), text, marker(_title()))
        except urllib.error.HTTPError as error:
            why = f"GitHub answered {error.code}; the job needs `permissions: pull-requests: write`"
        except OSError as error:
            why = f"GitHub does not answer: {error}"
    if why:
        print(annotation("notice", f"no comment is written, the report is in the summary: {why}", title="Shiplap"))


class Comments:
    """The comments of a pull request, by GitHub's REST API. Raises urllib.error.HTTPError, or OSError."""

    def __init__(self, token: str, number: int) -> None:
        self._token = token
        api, self._repository = os.environ["GITHUB_API_URL"].rstrip("/"), os.environ["GITHUB_REPOSITORY"]
        self._api, self._number = api, number

    def own(self) -> Iterator[Mapping[str, Any]]:
        """Comments of whoever has the token. The token of a workflow is no person's: its comments are a bot's."""
        try:
            login = self._call("GET", "/user")["login"]
        except urllib.error.HTTPError:
            login = ""
        page = 1
        while found := self._call("GET", f"{self._issue()}?per_page=100&page={page}"):
            for comment in found:
                author = comment.get("user") or {}
                if author.get("login") == login if login else author.get("type") == "Bot":
                    yield comment
            page += 1

    def add(self, body: str) -> None:
        """Write a new one."""
        self._call("POST", self._issue(), body)

    def change(self, comment: Mapping[str, Any], body: str) -> None:
        """Replace the text of one."""
        self._call("PATCH", f"/repos/{self._repository}/issues/comments/{comment['id']}", body)

    def _issue(self) -> str:
        return f"/repos/{self._repository}/issues/{self._number}/comments"

    def _call(self, method: str, path: str, body: str | None = None) -> Any:
        headers = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}
        headers |= {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps({"body": body}).encode()
        request = urllib.request.Request(self._api + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=_REQUEST_S) as answer:
            return json.loads(answer.read())


def write_comment(comments: Comments, text: str, mark: str) -> None:
    """Replace the comment with this mark, or write a first one. Raises as Comments does."""
    body = text
    if len(text) > MOST_CHARACTERS:
        whole = text[:MOST_CHARACTERS].rpartition("\n")[0]
        body = f"{whole}\n\nThe rest is in the summary of the job.\n"
    known = next((each for each in comments.own() if str(each.get("body", "")).startswith(mark)), None)
    if known is None:
        comments.add(body)
    elif known["body"] != body:
        comments.change(known, body)


def _report_file() -> Path:
    return Path(os.environ["RUNNER_TEMP"]) / "shiplap-report" / "report.md"


def main(step: str) -> int:
    """Play a step; an input that is refused is an annotation at its line of the workflow, and exit code 2."""
    try:
        if step == "tell":
            tell()
            return 0
        check = check_inputs()
        if step == "inputs":
            _flag("comment")
            _line("package")
            return 0
        text, code = report(check)
    except RefusedInput as error:
        print(annotation("error", str(error), *place_of_input(error.name), f"Input {error.name}".rstrip()))
        return 2
    _report_file().write_text(text)
    with Path(os.environ["GITHUB_OUTPUT"]).open("a") as outputs:
        outputs.write(f"exit-code={code}\nreport={_report_file()}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
