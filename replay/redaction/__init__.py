"""Remove secrets from recordings."""
