"""Remove secrets from recordings.

`redact` decodes bodies (`body_codec`), joins streamed pieces (`joined_text`), searches each text once (`shapes`: the
table of key shapes, and names), looks for what it found in the rest of the file, and replaces it.
Users add paths, prompts and a detector (`user_rules`). `findings` reports the same places.
"""
