"""The command line of the proxy."""
