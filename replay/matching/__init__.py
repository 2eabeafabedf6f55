"""Find the recorded stream that answers a request.

A request matches by its exact `key`, else by one looser reading that is reported, else it is a miss with a diff.
"""
