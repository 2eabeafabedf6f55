"""Coverage-guided fuzzing (`make fuzz`): any bytes as a stream and as a tape; `targets.py` needs no atheris."""
