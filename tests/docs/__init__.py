"""Every example of README.md and docs/ runs: commands, code and configuration, as printed."""
