"""The proxy over a real PostgreSQL server: `make test-postgres`, which `make test` leaves out."""
