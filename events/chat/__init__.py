"""The chat completions dialect: repair, then read; write for the way back."""
