"""`shiplap install rollback`: the aliases of all functions move to a release, or none of them."""

from __future__ import annotations

import io
import json
import sys
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from shiplap.aws.dynamodb import tables
from shiplap_cli.commands.install import rollback as command
from shiplap_cli.installs.published_versions import published_versions
from shiplap_cli.main import run
from shiplap_lab.fakes.faults import Faults
from tests.integration.contracts.in_process_aws import HookedClient, aws_in_process, create_table, make_client

STORED = Path(__file__).parents[1] / "formats" / "given" / "stored.json"
FUNCTIONS = ("shiplap-schedule", "shiplap-lifecycle", "shiplap-watch")


def refusal(code: str, text: str = "somebody else was faster") -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": text}}, "UpdateAlias")


class Revisions:
    """Lambda with the revisions of aliases, which moto keeps as they are and does not compare."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._writes: dict[str, int] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def get_alias(self, **request: Any) -> dict[str, Any]:
        return {**self._client.get_alias(**request), "RevisionId": self._revision(request["FunctionName"])}

    def update_alias(self, **request: Any) -> dict[str, Any]:
        function = request["FunctionName"]
        if request.pop("RevisionId", None) not in (None, self._revision(function)):
            raise refusal("PreconditionFailedException")
        answer = self._client.update_alias(**request)
        self._writes[function] = self._writes.get(function, 0) + 1
        return {**answer, "RevisionId": self._revision(function)}

    def _revision(self, function: str) -> str:
        return f"{function}@{self._writes.get(function, 0)}"


class ReleasedInstall:
    """An install whose functions were deployed twice: version 1 with the older library, 2 with the newer one."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.faults = Faults()
        self.plain = Revisions(make_client("lambda"))
        self.client = HookedClient(self.plain, self.faults)
        self.dynamodb = make_client("dynamodb")
        create_table(self.dynamodb, "state", tables.STATE)
        self._role = make_client("iam").create_role(RoleName="r", AssumeRolePolicyDocument="{}")["Role"]["Arn"]
        settings = self.layer("ShiplapLayersSettings", "Clusters and their manifests")
        older = self.layer("ShiplapLayersLibrary", "The package shiplap")
        newer = self.layer("ShiplapLayersLibrary", "The package shiplap 0.2.0, reads items up to schema 2")
        for function in FUNCTIONS:
            self.function(function, [older, settings])
            self.plain.update_function_configuration(FunctionName=function, Layers=[newer, settings])
            self.publish(function)
        outputs = {f"{name.removeprefix('shiplap-').capitalize()}Function": name for name in FUNCTIONS}
        template = {
            "Resources": {"Topic": {"Type": "AWS::SNS::Topic"}},
            "Outputs": {
                name: {"Value": value} for name, value in {"Bucket": "b", "StateTable": "state", **outputs}.items()
            },
        }
        make_client("cloudformation").create_stack(StackName="Shiplap", TemplateBody=json.dumps(template))

    def layer(self, name: str, description: str) -> str:
        made = self.plain.publish_layer_version(
            LayerName=name, Description=description, Content={"ZipFile": _archive(description)}
        )
        return str(made["LayerVersionArn"])

    def function(self, name: str, layers: list[str]) -> None:
        self.plain.create_function(
            FunctionName=name,
            Runtime="python3.13",
            Role=self._role,
            Handler="handler.handle",
            Code={"ZipFile": _archive(name)},
            Layers=layers,
        )
        number = self.plain.publish_version(FunctionName=name)["Version"]
        self.plain.create_alias(FunctionName=name, Name="live", FunctionVersion=number)

    def publish(self, name: str) -> None:
        self.plain.update_function_code(FunctionName=name, ZipFile=_archive(name + "2"))
        number = self.plain.publish_version(FunctionName=name)["Version"]
        self.plain.update_alias(FunctionName=name, Name="live", FunctionVersion=number)

    def store(self, document: dict[str, Any] | bytes, kind: str = "claim", name: str = "a") -> None:
        key = {"cluster": {"S": "blue#1"}, "item": {"S": f"{kind.upper()}#{name}"}}
        stored = {"B": document} if isinstance(document, bytes) else {"S": json.dumps(document)}
        self.dynamodb.put_item(TableName="state", Item={**key, kind: stored})

    @property
    def live(self) -> list[int]:
        return [
            int(self.plain.get_alias(FunctionName=name, Name="live")["FunctionVersion"]) for name in sorted(FUNCTIONS)
        ]

    def says(self, *arguments: str, code: int = 0) -> str:
        assert run(["install", "rollback", *arguments]) == code
        printed = self._capsys.readouterr()
        return printed.out + printed.err

    def document(self, *arguments: str, code: int = 0) -> dict[str, Any]:
        return dict(json.loads(self.says(*arguments, "-o", "json", code=code)))


def _archive(text: str) -> bytes:
    code = io.BytesIO()
    with zipfile.ZipFile(code, "w") as archive:
        archive.writestr("handler.py", f"# {text}")
    return code.getvalue()


@pytest.fixture
def install(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[ReleasedInstall]:
    with aws_in_process():
        made = ReleasedInstall(capsys)
        clients = {"lambda": made.client, "dynamodb": made.dynamodb}
        monkeypatch.setattr(command, "aws_client", clients.__getitem__)
        yield made


def test_releases_are_listed_newest_first(install: ReleasedInstall) -> None:
    new, old = install.document()["releases"]
    assert (new["version"], new["shiplap"], new["schema"], new["live"]) == (2, "0.2.0", 2, "all")
    assert (old["version"], old["shiplap"], old["schema"], old["live"]) == (1, "", 1, "none")
    assert old["functions"] == dict.fromkeys(FUNCTIONS, 1)
    assert "ShiplapLayersLibrary:2" in install.says()
    assert install.live == [2, 2, 2]


def test_nothing_moves_where_nobody_can_agree(install: ReleasedInstall) -> None:
    said = install.document("1")
    assert [(move["current"], move["target"]) for move in said["moves"]] == [(2, 1)] * 3
    assert "Nothing is moved" in install.says("1")
    assert install.live == [2, 2, 2]


@pytest.mark.parametrize("agrees", [True, False])
def test_on_a_terminal_it_asks(install: ReleasedInstall, monkeypatch: pytest.MonkeyPatch, *, agrees: bool) -> None:
    terminal = io.StringIO("y\n" if agrees else "n\n")
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stdin", terminal)
    assert "3 functions" in install.says("1", code=0 if agrees else 130)
    assert install.live == ([1, 1, 1] if agrees else [2, 2, 2])


def test_all_aliases_move_and_can_move_forward_again(install: ReleasedInstall) -> None:
    assert install.document("1", "--yes")["moved"]
    assert install.live == [1, 1, 1]
    assert "at this release" in install.says("1", "--yes")
    assert install.document("2", "--yes")["moved"]
    assert install.live == [2, 2, 2]


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_one_that_is_refused_moves_the_others_back(install: ReleasedInstall, nth: int) -> None:
    install.faults.on("before", "update_alias", refusal("PreconditionFailedException"), nth=nth)
    said = install.says("1", "--yes", code=1)
    assert "somebody else was faster" in said
    assert "every alias is where it was" in said
    assert install.live == [2, 2, 2]


def test_one_that_does_not_move_back_is_named(install: ReleasedInstall) -> None:
    for nth in (2, 3):
        install.faults.on("before", "update_alias", refusal("ServiceException", "out of order"), nth=nth)
    said = install.says("1", "--yes", code=1)
    assert "not moved back: could not move shiplap-schedule to version 2" in said


def test_a_move_whose_answer_is_lost_has_happened(install: ReleasedInstall) -> None:
    install.faults.on("after", "update_alias", refusal("PreconditionFailedException"), nth=2)
    assert install.document("1", "--yes")["moved"]
    assert install.live == [1, 1, 1]


def test_a_deployment_in_between_is_not_overwritten(install: ReleasedInstall, monkeypatch: pytest.MonkeyPatch) -> None:
    def deploy_first(*_: Any, **__: Any) -> bool:
        install.publish("shiplap-watch")
        return True

    monkeypatch.setattr(command, "_agreed", deploy_first)
    assert "every alias is where it was" in install.says("1", code=1)
    assert install.live == [2, 2, 3]


@pytest.mark.parametrize("kind", ["claim", "command"])
def test_items_of_a_newer_schema_refuse_it(install: ReleasedInstall, kind: str) -> None:
    install.store({"schema": 2}, kind)
    assert "of schema 2, and this release reads up to 1" in install.says("1", "--yes", code=1)
    assert install.live == [2, 2, 2]
    assert install.document("2", "--yes") == {}


def test_items_of_the_previous_version_do_not(install: ReleasedInstall) -> None:
    seeds = json.loads(STORED.read_text())
    for kind in ("claim", "command"):
        assert "schema" not in seeds[f"{kind}s"][0]
        install.store(seeds[f"{kind}s"][0], kind)
    install.store(zlib.compress(STORED.read_bytes()), name="long")
    assert install.document("1", "--yes")["moved"]
    assert install.live == [1, 1, 1]


def test_items_that_appear_during_the_move_undo_it(install: ReleasedInstall, monkeypatch: pytest.MonkeyPatch) -> None:
    def store_first(*_: Any, **__: Any) -> bool:
        install.store({"schema": 2})
        return True

    monkeypatch.setattr(command, "_agreed", store_first)
    assert "of schema 2" in install.says("1", code=1)
    assert install.live == [2, 2, 2]


def test_a_table_that_cannot_be_read_again_undoes_it(install: ReleasedInstall, monkeypatch: pytest.MonkeyPatch) -> None:
    def destroy(*_: Any, **__: Any) -> bool:
        install.dynamodb.delete_table(TableName="state")
        return True

    monkeypatch.setattr(command, "_agreed", destroy)
    assert "could not read table state" in install.says("1", code=1)
    assert install.live == [2, 2, 2]


def test_an_item_that_cannot_be_read_refuses_it(install: ReleasedInstall) -> None:
    install.store(b"no")
    assert "nothing was moved: CLAIM#a cannot be read" in install.says("1", "--yes", code=2)
    assert install.live == [2, 2, 2]


def test_a_function_that_the_release_did_not_have_refuses_it(install: ReleasedInstall) -> None:
    install.plain.delete_function(FunctionName="shiplap-watch", Qualifier="1")
    assert "shiplap-watch has no version of this release" in install.says("1", "--yes", code=1)
    assert install.live == [2, 2, 2]


def test_what_cannot_be_asked_is_said(install: ReleasedInstall) -> None:
    assert "there is no release 7; there are 2, 1" in install.says("7", code=2)
    assert "there is no stack 'other'" in install.says("--stack", "other", code=2)
    install.faults.on("before", "get_alias", refusal("AccessDeniedException", "no"))
    assert "docs/explanation/security.md" in install.says("1", "--yes", code=2)


def test_an_install_without_functions_is_none(install: ReleasedInstall) -> None:
    template = {
        "Resources": {"Topic": {"Type": "AWS::SNS::Topic"}},
        "Outputs": {"Bucket": {"Value": "b"}},
    }
    make_client("cloudformation").create_stack(StackName="Old", TemplateBody=json.dumps(template))
    assert "no output ScheduleFunction" in install.says("--stack", "Old", code=2)


def test_versions_come_in_pages() -> None:
    class Paged:
        def list_versions_by_function(self, FunctionName: str, Marker: str = "") -> dict[str, Any]:  # noqa: N803 - Lambda's
            numbers, marker = (["2"], "") if Marker else (["$LATEST", "1"], "next")
            versions = [{"Version": number, "LastModified": "2026", "Layers": []} for number in numbers]
            return {"Versions": versions, **({"NextMarker": marker} if marker else {})}

    assert [version.number for version in published_versions(Paged(), ["f"])] == [1, 2]
