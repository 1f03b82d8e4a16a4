"""An app with tasks that print."""
