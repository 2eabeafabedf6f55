"""Programs that translate chat completions streams into Responses and Messages, over the same scripted streams."""
