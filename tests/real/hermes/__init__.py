"""A real hermes-agent as the upstream of real clients, directly and through Wiretape."""
