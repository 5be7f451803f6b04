// Marks the root of the module. Go reads its requirements from tests/e2e/versions (-modfile), so that one file pins Kubernetes.
module shiplap.dev/tests/e2e

go 1.26.0
