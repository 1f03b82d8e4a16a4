"""Schedules through changes of the clocks, and processes whose clocks are wrong."""
