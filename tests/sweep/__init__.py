"""Make every system call of a scenario fail once in a real proxy process, and see that it recovers."""
