"""Sealed tapes: the reviewed file format for git.

`sealed` encodes and decodes the file: a line for each record, one for all times (`clock`), and one for the result of a
stream. `files` reads files of either form and keeps long lines in files of their own, `texts` finds and changes what
records contain. docs/reference/sealed-tape.schema.json describes the members of each line.
"""
