"""The command-line verbs that record, seal, replay and compare.

`recording` runs a command behind a proxy, `demo` shows three streams, `output` writes files; the others hold verbs.
"""
