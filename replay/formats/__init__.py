"""Import recordings of other tools as tapes, and export tapes for them.

Each format is a pure reader that returns exchanges and counts what the format cannot hold; `table` lists them all, and
`exchange` turns an exchange into the records that the proxy would have written.
"""

__all__: list[str] = []
