"""An app with middleware around its tasks, and with receivers of signals."""
