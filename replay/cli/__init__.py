"""The command-line verbs that record, seal, replay and compare."""
