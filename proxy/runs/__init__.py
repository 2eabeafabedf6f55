"""Runs: the turns of an agent as one resource, with events for any number of viewers.

A run is a fold over its tapes (`events/folds/run.py`), whose requests are made in `events/chat/run_request.py`. `live`
is one run in memory, `runs` starts, follows and ends them, and `api` answers over HTTP.
"""
