# Shiplap by Terraform: uploads what `shiplap install template` wrote and wraps its CloudFormation template.
# Tests parse this module. It was never applied.
terraform {
  required_version = ">= 1.5"
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 5.0"
    }
  }
}

variable "template" {
  description = "The folder that `shiplap install template --to` wrote."
  type        = string
}

variable "bucket" {
  description = "The bucket that was named by `shiplap install template --bucket`; its default without."
  type        = string
  default     = ""
}

variable "stack" {
  description = "The name of the stack, which `shiplap doctor` and `shiplap status` look for."
  type        = string
  default     = "Shiplap"
}

data "aws_caller_identity" "current" {}
data "aws_region" "current" {}

resource "aws_s3_bucket" "assets" {
  bucket = coalesce(var.bucket, "shiplap-assets-${data.aws_caller_identity.current.account_id}-${data.aws_region.current.name}")
}

resource "aws_s3_object" "assets" {
  for_each = setunion(fileset(var.template, "assets/*"), ["template.json"])
  bucket   = aws_s3_bucket.assets.id
  key      = each.key == "template.json" ? "template-${filemd5("${var.template}/template.json")}.json" : basename(each.key)
  source   = "${var.template}/${each.key}"

  lifecycle {
    create_before_destroy = true # what the deployed stack refers to goes after its update
  }
}

resource "aws_cloudformation_stack" "shiplap" {
  name         = var.stack
  template_url = "https://${aws_s3_bucket.assets.bucket_regional_domain_name}/${aws_s3_object.assets["template.json"].key}"
  capabilities = ["CAPABILITY_NAMED_IAM"]
  depends_on   = [aws_s3_object.assets]
}

output "outputs" {
  description = "The names of the stack's resources."
  value       = aws_cloudformation_stack.shiplap.outputs
}
