"""Remove secrets from recordings.

`redact` decodes bodies and joins streamed pieces (`plain_text`), searches each text once (`shapes`: key shapes and
names), looks for what it found in the rest of the file, and replaces it. Users add paths, prompts and a detector
(`user_rules`). `findings` reports the same places.
"""
