"""Sealed tapes: the reviewed file format for git.

`sealed` encodes and decodes the file: one line for each record (`split_body` and `joined_bodies` lay out bodies), one
for all times (`clock`), and one for the result of a stream (`expected`). `load` reads files of either form, `blobs`
keeps long lines in files of their own, `schema` describes the members. `edits` changes bytes inside records.
"""
