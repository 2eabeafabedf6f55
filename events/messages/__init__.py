"""The Messages dialect: repair, then read; write for the way back."""
