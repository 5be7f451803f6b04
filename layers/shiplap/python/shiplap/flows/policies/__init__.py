"""The effects of policies: what each reads, writes, observes and says."""
