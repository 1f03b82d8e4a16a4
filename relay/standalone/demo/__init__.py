"""The demo: a small project on a real database, with a worker killed in front of you.

It is both a Django app, whose tasks.py workers import, and a program:
python -m relay.standalone.demo.
"""
