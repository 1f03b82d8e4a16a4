"""An app whose user model has a UUID key, and a project that uses it."""
