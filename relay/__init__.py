"""relay: the job system for Django on the PostgreSQL you already run."""
