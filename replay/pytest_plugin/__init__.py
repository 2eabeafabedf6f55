"""The pytest plugin: the `tape` fixture and marker.

`plugin` holds the hooks, `plan` reads what a test asks for, `tape` is the fixture's value, and `thread` runs the server
and the recording proxies.
"""
