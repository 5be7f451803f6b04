"""The evaluator that policies are simulated with, on the cases that IAM's documentation describes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.permissions.evaluator import allowed, of


def statement(effect: str = "Allow", **elements: Any) -> dict[str, Any]:
    return {"Effect": effect, "Action": "s3:GetObject", "Resource": "arn:aws:s3:::b/*"} | elements


ONE = of("s3:GetObject", "arn:aws:s3:::b/key", {})


@pytest.mark.parametrize(
    ("statements", "expected"),
    [
        ([], False),
        ([statement()], True),
        ([statement(), statement("Deny")], False),
        ([statement(), statement("Deny", Resource="arn:aws:s3:::b/other")], True),
        ([statement(Action=["s3:Put*", "s3:get?bject"])], True),
        ([statement(Action="s3:Get")], False),
        ([statement(Resource="arn:aws:s3:::B/*")], False),
        ([statement(Resource=["arn:aws:s3:::a", "*"])], True),
        ([statement(Condition={"StringEquals": {"aws:RequestTag/a": "b"}})], False),
        ([statement("Deny", Condition={"StringNotEquals": {"aws:x": "b"}}), statement()], False),
        ([statement(Condition={"StringEqualsIfExists": {"aws:x": "b"}})], True),
        ([statement(Condition={"ForAllValues:StringEquals": {"aws:TagKeys": ["a"]}})], True),
        ([statement(Condition={"ForAnyValue:StringEquals": {"aws:TagKeys": ["a"]}})], False),
        ([statement(Condition={"Null": {"aws:x": "true"}})], True),
    ],
)
def test_without_any_context(statements: list[dict[str, Any]], expected: bool) -> None:
    assert allowed(statements, ONE) is expected


def test_elements_that_except_something() -> None:
    excepting = {"Effect": "Allow", "NotAction": "s3:Put*", "NotResource": "arn:aws:s3:::b/secret"}
    assert allowed([excepting], ONE)
    assert not allowed([excepting], of("s3:PutObject", "arn:aws:s3:::b/key", {}))
    assert not allowed([excepting], of("s3:GetObject", "arn:aws:s3:::b/secret", {}))


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ({"StringEquals": {"aws:requesttag/team": ["x", "red"]}}, True),
        ({"StringEquals": {"aws:RequestTag/team": "Red"}}, False),
        ({"StringLike": {"aws:RequestTag/team": "r*"}}, True),
        ({"StringNotLike": {"aws:RequestTag/team": "r*"}}, False),
        ({"StringEquals": {"aws:RequestTag/team": "red", "aws:RequestTag/none": "x"}}, False),
        ({"StringEquals": {"aws:RequestTag/team": "red"}, "Bool": {"aws:Secure": "TRUE"}}, True),
        ({"ForAllValues:StringEquals": {"aws:TagKeys": ["a", "b", "c"]}}, True),
        ({"ForAllValues:StringEquals": {"aws:TagKeys": ["a"]}}, False),
        ({"ForAnyValue:StringEquals": {"aws:TagKeys": ["b"]}}, True),
        ({"Null": {"aws:RequestTag/team": "false"}}, True),
        ({"ArnLike": {"aws:SourceArn": "arn:aws:lambda:*:function:f"}}, True),
    ],
)
def test_conditions(condition: dict[str, Any], expected: bool) -> None:
    context = {
        "aws:RequestTag/team": "red",
        "aws:TagKeys": ["a", "b"],
        "aws:Secure": "true",
        "aws:SourceArn": "arn:aws:lambda:eu-west-1:1:function:f",
    }
    asked = of(ONE.action, ONE.resource, context)
    assert allowed([statement(Condition=condition)], asked) is expected


@pytest.mark.parametrize(
    "unknown",
    [
        {"Condition": {"DateLessThan": {"aws:CurrentTime": "2026-01-01T00:00:00Z"}}},
        {"Condition": {"StringEquals": {"aws:TagKeys": "a"}}},
        {"Principal": "*"},
    ],
    ids=["operator", "many values", "element"],
)
def test_what_it_does_not_know_it_does_not_judge(unknown: dict[str, Any]) -> None:
    asked = of(ONE.action, ONE.resource, {"aws:CurrentTime": "x", "aws:TagKeys": ["a", "b"]})
    with pytest.raises(NotImplementedError):
        allowed([statement(**unknown)], asked)
