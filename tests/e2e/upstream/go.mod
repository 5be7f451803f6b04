// Karpenter's own test suites. Their dependencies are pinned by Karpenter's go.mod and go.sum, which go.sum here pins.
module shiplap.dev/tests/e2e/upstream

go 1.26.9

require sigs.k8s.io/karpenter v1.15.0
