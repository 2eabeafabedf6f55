"""The tests mirror the rooms, one file a source file; laws/ and rooms/ hold what belongs to no single file."""
