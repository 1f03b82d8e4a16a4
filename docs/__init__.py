"""The documentation, and in docs.site what makes the site of it."""
