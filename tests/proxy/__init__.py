"""The room of sockets, tasks, time and disk under test: virtual time over memory streams wherever that will do."""
