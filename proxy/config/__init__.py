"""Configuration: files, environment and flags to one frozen `Config`.

The fields of `model` are the settings, each with the kind that checks its value. `load` reads and combines all sources.
`urls` checks base URLs and finds the route of a request.
"""
