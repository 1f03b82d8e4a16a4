"""The dashboard: pages of HTML for who looks after jobs.

`include("relay.urls")` serves it under dashboard/. It reads by relay.queries and acts
by relay.operations; it has no table and no setting of its own.
"""
