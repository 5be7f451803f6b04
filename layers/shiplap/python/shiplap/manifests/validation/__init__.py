"""The rules of Karpenter's CRDs and admission checks, one module per kind or topic."""
