"""Kills processes and sessions under load, then checks the histories.

Run by hand or by CI, never by pytest: `python -m tests.chaos smoke`.
"""
