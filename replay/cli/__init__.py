"""The command-line verbs that record, seal, replay and compare.

`recording` runs a command behind a proxy and `demo` shows three streams; the others hold verbs.
"""
