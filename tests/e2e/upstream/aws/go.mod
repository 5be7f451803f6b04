// The test suites of Karpenter's AWS provider. Their dependencies are pinned by its go.mod and go.sum, which go.sum here
// pins; the modules after it are built in these versions.
module shiplap.dev/tests/e2e/upstream/aws

go 1.26.9

require github.com/aws/karpenter-provider-aws v1.15.0
