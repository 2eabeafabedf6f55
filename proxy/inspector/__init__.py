"""The inspector's server side: its page, and streams as the page reads them, record by record."""
