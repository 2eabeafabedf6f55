"""Configuration: files, environment and flags to one frozen `Config`."""
