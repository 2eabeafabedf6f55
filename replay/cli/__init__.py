"""The command-line verbs that record, seal, replay and compare.

`recording` runs a command behind a proxy, `demo` shows three streams; the other modules hold the verbs of their name.
"""
