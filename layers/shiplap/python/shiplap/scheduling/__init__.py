"""Layer 2: pure scheduling decisions: a snapshot in, a plan out."""
