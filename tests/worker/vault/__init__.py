"""An app whose tasks are given secrets; its process logs all that there is to log."""
