"""`serve --workers N`: a parent and N processes that answer for each other, each with a data folder of its own.

`parent` starts them, `worker` is what one knows of itself, `forward` hands requests to another one, `totals` adds up.
"""
