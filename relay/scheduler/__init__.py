"""Schedules: expressions, due instants, and the duty that fires them."""
