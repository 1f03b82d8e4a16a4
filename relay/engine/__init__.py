"""Every statement that changes a job: one verb per file, SQL beside it."""
