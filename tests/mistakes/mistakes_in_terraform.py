"""Mistakes in the arguments of the Terraform module, as Terraform itself tells them."""

from __future__ import annotations

BUCKET = "without s3://, an ARN, a path or dots, such as shiplap-assets-production"
KEPT = "begins or ends as names that S3 keeps for itself: choose another"
DAYS = "takes a number that CloudWatch knows: write one of 1, 3, 5, 7, 14, 30"

MISTAKES = {
    "ten days": ("log_retention_days = 10", 3, "log_retention_days", DAYS),
    "zero days": ("log_retention_days = 0", 3, "log_retention_days", DAYS),
    "no end": ("log_retention_days = -1", 3, "log_retention_days", DAYS),
    "half a day": ("log_retention_days = 30.5", 3, "log_retention_days", DAYS),
    "days with a unit": ('log_retention_days = "30d"', 3, "log_retention_days", "a number is required"),
    "days in words": ('log_retention_days = "never"', 3, "log_retention_days", "a number is required"),
    "days as a flag": ("log_retention_days = true", 3, "log_retention_days", "number required"),
    "list of days": ("log_retention_days = [30]", 3, "log_retention_days", "number required"),
    "map of days": ("log_retention_days = { days = 30 }", 3, "log_retention_days", "number required"),
    "bare word": ("log_retention_days = never", 3, "log_retention_days", "reference to a resource type"),
    "camel case": ("logRetentionDays = 30", 3, "logRetentionDays", "is not expected here"),
    "singular": ("log_retention_day = 30", 3, "log_retention_day", 'Did you mean "log_retention_days"?'),
    "days twice": (
        "log_retention_days = 30\n  log_retention_days = 60",
        4,
        "log_retention_days",
        "was already set at main.tf:3",
    ),
    "colon": ("log_retention_days: 30", 3, "log_retention_days", 'use the equals sign "="'),
    "comma": ("log_retention_days = 30,", 3, "log_retention_days", "separated by newlines, not commas"),
    "no such variable": ("log_retention_days = var.days", 3, "log_retention_days", 'variable "days" {} block'),
    "address of S3": ('assets_bucket = "s3://my-assets"', 3, "assets_bucket", BUCKET),
    "ARN": ('assets_bucket = "arn:aws:s3:::my-assets"', 3, "assets_bucket", BUCKET),
    "path": ('assets_bucket = "my-assets/shiplap"', 3, "assets_bucket", BUCKET),
    "dots": ('assets_bucket = "assets.example.com"', 3, "assets_bucket", BUCKET),
    "capitals": ('assets_bucket = "MyAssets"', 3, "assets_bucket", BUCKET),
    "underscore": ('assets_bucket = "my_assets"', 3, "assets_bucket", BUCKET),
    "blank": ('assets_bucket = " my-assets"', 3, "assets_bucket", BUCKET),
    "empty": ('assets_bucket = ""', 3, "assets_bucket", BUCKET),
    "too short": ('assets_bucket = "ab"', 3, "assets_bucket", BUCKET),
    "too long": (f'assets_bucket = "{"a" * 64}"', 3, "assets_bucket", BUCKET),
    "last hyphen": ('assets_bucket = "my-assets-"', 3, "assets_bucket", BUCKET),
    "name of an alias": ('assets_bucket = "my-assets-s3alias"', 3, "assets_bucket", KEPT),
    "name of Punycode": ('assets_bucket = "xn--assets"', 3, "assets_bucket", KEPT),
    "directory bucket": ('assets_bucket = "my-assets--euw1-az1--x-s3"', 3, "assets_bucket", KEPT),
    "list of buckets": ('assets_bucket = ["my-assets"]', 3, "assets_bucket", "string required"),
    "single quotes": ("assets_bucket = 'my-assets'", 3, "assets_bucket", "Use double quotes"),
    "no quotes": ("assets_bucket = my-assets", 3, "assets_bucket", "reference to a resource type"),
    "Region": ('region = "eu-west-1"', 3, "region", "is not expected here"),
    "clusters": ('clusters = ["production"]', 3, "clusters", "is not expected here"),
}
"""The argument of the module, and of the first problem: its line in main.tf, its name and the words."""
