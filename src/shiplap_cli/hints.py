"""Remedies for errors of AWS, which say what was refused but seldom what would help."""

from __future__ import annotations

from shiplap.errors import AwsError, ShiplapError, StoreError

_WHO_ASKS = "see who is asking by `aws sts get-caller-identity`"
_LOG_IN = "log in (`aws sso login`, `aws configure`) or set AWS_PROFILE"
_NONE = f"no AWS credentials were found: {_LOG_IN}"
_EXPIRED = f"the AWS credentials have expired: {_LOG_IN}"
_UNKNOWN = f"AWS does not know these credentials: {_LOG_IN}; {_WHO_ASKS}"
_MISSING = f"the permission named is missing; docs/explanation/security.md lists what each command reads; {_WHO_ASKS}"
_NOT_HERE = f"it is not in this account and region: check AWS_PROFILE and AWS_REGION; {_WHO_ASKS}"
_UNREACHED = "AWS was not reached: check AWS_REGION, the network and any proxy"
_NO_PROFILE = "no such profile: `aws configure list-profiles` lists them"
_BY_CODE = {
    **dict.fromkeys(("NoCredentials", "NoCredentialsError", "PartialCredentialsError"), _NONE),
    **dict.fromkeys(("ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"), _EXPIRED),
    **dict.fromkeys(("SSOTokenLoadError", "UnauthorizedSSOTokenError"), _EXPIRED),
    **dict.fromkeys(("InvalidClientTokenId", "UnrecognizedClientException", "InvalidAccessKeyId"), _UNKNOWN),
    **dict.fromkeys(("SignatureDoesNotMatch", "AuthFailure", "CredentialRetrievalError"), _UNKNOWN),
    **dict.fromkeys(("AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "403"), _MISSING),
    **dict.fromkeys(("ResourceNotFoundException", "NoSuchBucket", "404"), _NOT_HERE),
    **dict.fromkeys(("EndpointConnectionError", "ConnectTimeoutError", "ReadTimeoutError"), _UNREACHED),
    **dict.fromkeys(("ProxyConnectionError", "SSLError"), _UNREACHED),
    "ProfileNotFound": _NO_PROFILE,
    "NoRegionError": "set AWS_REGION to the install's region",
    "InvalidRegionError": "name a Region such as eu-west-1 by --region or AWS_REGION",
}
"""Remedies by the service's error code or the name of botocore's exception."""


def with_hint(error: ShiplapError) -> str:
    """The error, and what would help where that is known."""
    text = str(error)
    hint = remedy(error) if isinstance(error, AwsError | StoreError) else ""
    return text if not hint or hint in text else f"{text.rstrip('.')}; {hint}"


def says_nobody_can_ask(hint: str) -> bool:
    """True for the remedy of a mistake for which AWS answers nothing at all: without credentials it may use."""
    return hint in (_NONE, _EXPIRED, _UNKNOWN, _NO_PROFILE)


def remedy(error: Exception) -> str:
    """The remedy by the service's code or the name of botocore's exception, of the error or of its cause."""
    cause: BaseException | None = error
    while cause is not None:
        response = getattr(cause, "response", None)
        code = response.get("Error", {}).get("Code", "") if isinstance(response, dict) else getattr(cause, "code", "")
        for known in (str(code), type(cause).__name__):
            if known in _BY_CODE:
                return _BY_CODE[known]
        cause = cause.__cause__
    return ""
