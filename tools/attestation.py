"""Attests what a release is made of: in-toto statements about its files, whose predicates are bills of materials.

With the path of an Ed25519 key in SHIPLAP_SIGNING_KEY (PEM) each statement is signed, in an envelope as DSSE has it.
Without one the statements stand alone, and the file's name says that they are unsigned.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

KEY_VARIABLE = "SHIPLAP_SIGNING_KEY"
PAYLOAD_TYPE = "application/vnd.in-toto+json"

Document = Mapping[str, Any]


def statement(subjects: Iterable[Path], bill: Document) -> Document:
    """The claim that these files consist of what a CycloneDX bill lists."""
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [
            {"name": path.name, "digest": {"sha256": hashlib.sha256(path.read_bytes()).hexdigest()}}
            for path in sorted(subjects, key=lambda path: path.name)
        ],
        "predicateType": "https://cyclonedx.org/bom",
        "predicate": bill,
    }


def envelope(claim: Document, key: Ed25519PrivateKey) -> Document:
    """The statement with its signature."""
    body = json.dumps(claim).encode()
    return {
        "payloadType": PAYLOAD_TYPE,
        "payload": base64.b64encode(body).decode(),
        "signatures": [
            {"keyid": key_id(key.public_key()), "sig": base64.b64encode(key.sign(signed_bytes(body))).decode()}
        ],
    }


def signed_bytes(body: bytes) -> bytes:
    """The bytes that a signature is made of: type and body, each behind its length."""
    kind = PAYLOAD_TYPE.encode()
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(body), body)


def key_id(key: Ed25519PublicKey) -> str:
    """The SHA-256 of the public key."""
    return hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()


def signing_key() -> Ed25519PrivateKey | None:
    """The key that the environment names; None if it names none.

    Raises ValueError with what is wrong about the key; its content is in no message.
    """
    path = os.environ.get(KEY_VARIABLE, "")
    if not path:
        return None
    try:
        key = load_pem_private_key(Path(path).read_bytes(), password=None)
    except OSError as error:
        raise ValueError(f"{KEY_VARIABLE}: {path} cannot be read: {error.strerror}") from None
    except (TypeError, ValueError, UnsupportedAlgorithm):
        # TypeError is that of a key with a password.
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise ValueError(
            f"{KEY_VARIABLE}: {path} is no key as `openssl genpkey -algorithm ed25519` makes, without a password"
        )
    return key


def attest(folder: Path, version: str, claims: Sequence[Document], key: Ed25519PrivateKey | None) -> Path:
    """Write the statements, a line each."""
    file = folder / f"shiplap-{version}.intoto{'' if key else '-unsigned'}.jsonl"
    lines = claims if key is None else [envelope(claim, key) for claim in claims]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file
