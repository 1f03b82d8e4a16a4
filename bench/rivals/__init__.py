"""Rivals, measured beside relay where they are installed (pip group rivals)."""
