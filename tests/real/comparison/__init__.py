"""The seven scenarios through other recorders and through this one: what each gives back."""
