"""The parts of a release: its version in every place, its attestation, and what other channels ask of it."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1
from cryptography.hazmat.primitives.asymmetric.ec import generate_private_key as elliptic_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)

import shiplap
from tools.attestation import KEY_VARIABLE, attest, key_id, signed_bytes, signing_key, statement
from tools.dist import ACTION, pack
from tools.release_channels import broad_grants, construct_hub, serverless_repository
from tools.release_version import dated, files, main, other_versions, raised

ROOT = Path(__file__).parents[2]
UNRELEASED = "# Changelog\n\n## [Unreleased]\n\n### Added\n\n* One.\n\n## [0.1.0] - 2026-01-31\n\n* Zero.\n"


def test_what_is_unreleased_gets_version_and_date() -> None:
    assert dated(UNRELEASED, "0.2.0", "2026-02-28") == (
        "# Changelog\n\n## [Unreleased]\n\n## [0.2.0] - 2026-02-28\n\n### Added\n\n* One.\n\n"
        "## [0.1.0] - 2026-01-31\n\n* Zero.\n"
    )


@pytest.mark.parametrize(
    ("changelog", "version", "said"),
    [
        (UNRELEASED, "0.1.0", "has 0.1.0 already"),
        (UNRELEASED.replace("* One.\n", ""), "0.2.0", "nothing to release"),
        ("# Changelog\n", "0.2.0", "nothing to release"),
    ],
)
def test_a_changelog_that_cannot_be_dated_is_told(changelog: str, version: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        dated(changelog, version, "2026-02-28")


@pytest.mark.parametrize(
    ("version", "date", "code", "said"),
    [("0.2", "", 2, "three numbers"), ("", "", 2, "three numbers"), ("9.0.0", "tomorrow", 2, "2026-01-31")],
)
def test_a_version_or_date_that_is_none_changes_nothing(
    capsys: pytest.CaptureFixture[str], version: str, date: str, code: int, said: str
) -> None:
    assert main(version, date) == code
    printed = capsys.readouterr()
    assert said in printed.err
    assert printed.out == ""


@pytest.mark.parametrize(
    "text",
    [
        "pip install ./shiplap-0.1.0-py3-none-any.whl",
        "default: shiplap==0.1.0",
        "uses: OWNER/shiplap/action@v0.1.0",
        '__version__ = "0.1.0"',
        "version: 0.1.0\nappVersion: 0.1.0",
    ],
)
def test_every_way_to_name_the_version_is_found_and_raised(text: str) -> None:
    assert other_versions(f"first line\n{text}", "0.1.0") == []
    assert other_versions(f"first line\n{text}", "0.2.0")[0] == (2, "0.1.0")
    assert raised(text, "0.2.0") == text.replace("0.1.0", "0.2.0")


@pytest.mark.parametrize("text", ["numpy==0.1.0", "10.1.0.10", "kubernetes version: 0.1.0.1", "ministack==1.5.33"])
def test_versions_of_others_stay(text: str) -> None:
    assert raised(text, "0.2.0") == text


def test_the_places_of_the_tree_name_this_version() -> None:
    named = {path.relative_to(ROOT).as_posix() for path in files() if other_versions(path.read_text(), "0.0.0")}
    assert named >= {
        "README.md",
        "action/README.md",
        "action/action.yml",
        "charts/shiplap-cluster/Chart.yaml",
        "docs/how-to/deployment.md",
        "docs/tutorial/first-node.md",
        "examples/fleet/pipeline.yaml",
        "layers/shiplap/python/shiplap/__init__.py",
    }
    assert {path: found for path in files() if (found := other_versions(path.read_text(), shiplap.__version__))} == {}


@pytest.fixture
def key() -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(bytes(range(32)))


def pem(key: Ed25519PrivateKey, encryption: KeySerializationEncryption | None = None) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption or NoEncryption())


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / "a.whl"
    path.write_bytes(b"wheel")
    return path


def test_a_statement_names_files_by_their_digests_and_has_the_bill_as_predicate(wheel: Path) -> None:
    claim = statement([wheel], {"bomFormat": "CycloneDX"})
    assert claim["_type"] == "https://in-toto.io/Statement/v1"
    assert claim["subject"] == [{"name": "a.whl", "digest": {"sha256": hashlib.sha256(b"wheel").hexdigest()}}]
    assert (claim["predicateType"], claim["predicate"]) == ("https://cyclonedx.org/bom", {"bomFormat": "CycloneDX"})


def test_without_a_key_the_name_says_that_nothing_is_signed(wheel: Path, tmp_path: Path) -> None:
    file = attest(tmp_path, "1.0.0", [statement([wheel], {}), statement([], {})], None)
    assert file.name == "shiplap-1.0.0.intoto-unsigned.jsonl"
    assert [json.loads(line)["predicateType"] for line in file.read_text().splitlines()] == [
        "https://cyclonedx.org/bom"
    ] * 2
    assert "signatures" not in file.read_text()


def test_with_a_key_each_statement_can_be_verified_and_no_other(
    key: Ed25519PrivateKey, wheel: Path, tmp_path: Path
) -> None:
    claim = statement([wheel], {"bomFormat": "CycloneDX"})
    file = attest(tmp_path, "1.0.0", [claim], key)
    assert file.name == "shiplap-1.0.0.intoto.jsonl"
    envelope = json.loads(file.read_text())
    body = base64.b64decode(envelope["payload"])
    (signature,) = envelope["signatures"]
    assert (json.loads(body), signature["keyid"]) == (claim, key_id(key.public_key()))
    # As the specification of DSSE writes it.
    assert signed_bytes(b"hello") == b"DSSEv1 28 application/vnd.in-toto+json 5 hello"
    key.public_key().verify(base64.b64decode(signature["sig"]), signed_bytes(body))
    with pytest.raises(InvalidSignature):
        key.public_key().verify(base64.b64decode(signature["sig"]), signed_bytes(body + b" "))


def test_the_key_is_that_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, key: Ed25519PrivateKey, tmp_path: Path
) -> None:
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    assert signing_key() is None
    file = tmp_path / "key.pem"
    file.write_bytes(pem(key))
    monkeypatch.setenv(KEY_VARIABLE, str(file))
    found = signing_key()
    assert found is not None
    assert key_id(found.public_key()) == key_id(key.public_key())


@pytest.mark.parametrize("case", ["missing", "folder", "text", "elliptic", "password", "public"])
def test_a_key_that_is_none_is_told_without_its_content(
    monkeypatch: pytest.MonkeyPatch, key: Ed25519PrivateKey, tmp_path: Path, case: str
) -> None:
    file = tmp_path / "key.pem"
    elliptic = elliptic_key(SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    contents = {
        "text": b"SECRET",
        "elliptic": elliptic,
        "password": pem(key, BestAvailableEncryption(b"SECRET")),
        "public": pem(key).replace(b"PRIVATE", b"PUBLIC"),
    }
    if case in contents:
        file.write_bytes(contents[case])
    elif case == "folder":
        file.mkdir()
    monkeypatch.setenv(KEY_VARIABLE, str(file))
    with pytest.raises(ValueError, match=f"^{KEY_VARIABLE}: .*key.pem") as told:
        signing_key()
    assert "SECRET" not in str(told.value)


def test_the_action_is_packed_as_a_repository_of_its_own(tmp_path: Path) -> None:
    packed = pack(tmp_path / "a.tgz", {f"shiplap-action/{path.name}": path for path in ACTION.glob("*.*")}, 1)
    with tarfile.open(packed) as archive:
        assert {entry.name for entry in archive} == {
            f"shiplap-action/{name}" for name in ("README.md", "action.yml", "pull_request.py")
        }
        assert {(entry.mtime, entry.mode) for entry in archive} == {(1, 0o644)}


def test_construct_hub_wants_a_public_jsii_package() -> None:
    ours = [demand.is_met for demand in construct_hub({"private": True}, "Apache-2.0")]
    assert ours == [False, False, False, True]
    theirs = {"jsii": {}, "peerDependencies": {"constructs": "^10"}}
    assert [demand.is_met for demand in construct_hub(theirs, "MIT")] == [True] * 4
    assert [demand.is_met for demand in construct_hub({"jsii": {}, "keywords": ["cdk"]}, "GPL-3.0")][2:] == [
        True,
        False,
    ]


def test_the_repository_wants_metadata_and_narrow_rights_and_each_demand_has_its_source() -> None:
    role = {"Type": "AWS::IAM::Role", "Properties": {"Policies": []}}
    demands = list(serverless_repository({"Resources": {"role": role}}, [{"Resources": {}}]))
    assert [demand.is_met for demand in demands] == [False, False, False, True, False, None]
    assert all(demand.source.startswith("https://") and "\n" not in demand.text for demand in demands)
    described = dict.fromkeys(
        (
            "Name",
            "Description",
            "Author",
            "SpdxLicenseId",
            "LicenseUrl",
            "SemanticVersion",
            "SourceCodeUrl",
            "ReadmeUrl",
        ),
        "x",
    )
    metadata = {"AWS::ServerlessRepo::Application": described}
    template = {
        "Metadata": metadata,
        "Parameters": {"Cluster": {}},
        "Resources": {"queue": {"Type": "AWS::SQS::Queue"}},
    }
    assert [demand.is_met for demand in serverless_repository(template)] == [True, True, None, True, True, None]


@pytest.mark.parametrize(
    ("action", "resource", "count"),
    [
        ("iam:AttachRolePolicy", "*", 1),
        (["iam:PutRolePolicy", "iam:*"], ["*"], 2),
        ("iam:PutRolePolicy", "arn:aws:iam::1:role/a", 0),
        ("iam:GetRole", "*", 0),
        ("ec2:*", "*", 0),
    ],
)
def test_rights_to_write_all_policies_are_found_in_both_kinds_of_policy(
    action: object, resource: object, count: int
) -> None:
    document = {"Statement": [{"Effect": "Allow", "Action": action, "Resource": resource}]}
    inline = {"Properties": {"Policies": [{"PolicyDocument": document}]}}
    for each in ({"Properties": {"PolicyDocument": document}}, inline):
        assert len(list(broad_grants(each))) == count
    assert list(broad_grants({"Properties": {"ManagedPolicyArns": ["arn:aws:iam::aws:policy/AWSLambda_FullAccess"]}}))


@pytest.mark.thorough
def test_a_release_has_every_part_and_attests_them(tmp_path: Path, key: Ed25519PrivateKey) -> None:
    if not (ROOT / "build" / "mkdocs" / "bin" / "python").exists():
        pytest.skip("MkDocs is not installed; `make site` installs it")
    (tmp_path / "key.pem").write_bytes(pem(key))
    script = f"from pathlib import Path; from tools.dist import build_release; build_release(Path({str(tmp_path)!r}))"
    environment = os.environ | {KEY_VARIABLE: str(tmp_path / "key.pem")}
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, env=environment, check=True, capture_output=True)  # noqa: S603
    version = shiplap.__version__
    envelopes = [json.loads(line) for line in (tmp_path / f"shiplap-{version}.intoto.jsonl").read_text().splitlines()]
    claims = [json.loads(base64.b64decode(each["payload"])) for each in envelopes]
    subjects = [{entry["name"]: entry["digest"]["sha256"] for entry in claim["subject"]} for claim in claims]
    module = f"shiplap-terraform-one-cluster-{version}.tgz"
    wheel = f"shiplap-{version}-py3-none-any.whl"
    assert [set(names) for names in subjects] == [{wheel, f"shiplap-{version}.tar.gz"}, {wheel, module}]
    for name, digest in {**subjects[0], **subjects[1]}.items():
        assert hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() == digest
    bills = [
        json.loads((tmp_path / f"{name}-{version}.cdx.json").read_text()) for name in ("shiplap", "shiplap-layers")
    ]
    assert [claim["predicate"] for claim in claims] == bills
    for name, inside in (
        (f"shiplap-site-{version}.tgz", "shiplap-site/docs/how-to/deployment.html"),
        (module, "shiplap-terraform-one-cluster/README.md"),
        (f"shiplap-action-{version}.tgz", "shiplap-action/action.yml"),
        (f"shiplap-cluster-{version}.tgz", "shiplap-cluster/Chart.yaml"),
    ):
        with tarfile.open(tmp_path / name) as archive:
            assert inside in archive.getnames()
