"""Full accounts of one pod, claim, node or pool, and the smallest change that helps."""
