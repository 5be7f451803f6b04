"""Secrets of AWS Secrets Manager: the kubeconfigs of clusters outside EKS."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shiplap.aws.ec2_errors import aws_errors
from shiplap.errors import AwsError

if TYPE_CHECKING:
    from collections.abc import Callable


def text_of(secret: str, client: Callable[[], Any]) -> str:
    """The text of a secret's current version.

    Raises:
        AwsThrottled, AwsError: Secrets Manager refuses, or the secret holds no text.
    """
    with aws_errors(f"read secret {secret}"):
        answer = client().get_secret_value(SecretId=secret)
    text = answer.get("SecretString")
    if not text:
        raise AwsError(f"secret {secret} holds no text: store the kubeconfig as a string")
    return str(text)
