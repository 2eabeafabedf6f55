"""The command line: one module for each group of verbs, joined in `main`.

`main` imports the module of a verb only when it runs. Verbs that record, seal and replay are in `replay.cli`.
"""
