"""Ten minutes of mixed faults at fifty streams: memory, descriptors and tasks stay flat, and every tape is right."""
