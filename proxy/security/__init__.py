"""Access rules, API keys, header policy and masking of echoed keys.

`access` decides from a request's head alone and identifies callers. `headers` lists what passes and what is recorded.
`masking` hides keys that an upstream sends back.
"""
