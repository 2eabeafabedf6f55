"""Checks of the files below deploy/ that need neither a container engine nor a cluster: `make test-deploy`."""
