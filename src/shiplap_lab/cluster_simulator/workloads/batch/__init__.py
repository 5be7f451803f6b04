"""Jobs and CronJobs: pods that end, and when they begin."""
