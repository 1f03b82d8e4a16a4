"""An app that sets a tracer provider up, as a project does."""
