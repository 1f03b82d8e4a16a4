"""The command line: one tree of verbs, in process or over HTTP.

What stands here is read without Django, apart from relay.cli.local: the console script
with a server starts at once and works where no project is.
"""
