"""Remove secrets from recordings.

`redact` decodes bodies (`body_codec`), joins streamed pieces (`joined_text`), searches each text once (`shapes`, with
the key table `vendors` and the rules of `names`), looks for what it found in the rest of the file (`known`), and
replaces it. Users add paths, prompts and a detector (`user_rules`, `prompts`). `findings` reports the same places.
"""
