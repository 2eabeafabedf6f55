"""What a stream is: events, tool lifecycle, endings, settings, limits and the JSON codec."""
