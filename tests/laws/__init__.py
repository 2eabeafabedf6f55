"""The laws as properties: over generated streams, and over every captured chat stream where the corpus is there."""
