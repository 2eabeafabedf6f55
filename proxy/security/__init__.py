"""Access rules, API keys, header policy and masking of echoed keys."""
