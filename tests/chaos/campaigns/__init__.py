"""The large campaigns, a module each.

A module has `ABOUT` (one line for --help), `add_arguments(parser)` and
`run(options, report) -> bool`, which is true when nothing was violated. Its name
stands in CAMPAIGNS of tests/chaos/__main__.py.
"""
