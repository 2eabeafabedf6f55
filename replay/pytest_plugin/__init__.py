"""The pytest plugin: the `tape` fixture and marker."""
