"""The pure room: bytes, frames, records, events, folds; no socket, clock or chance, and time enters as data."""

if __name__ != "wiretape.events":
    raise ImportError(f"{__name__} is a second copy of each class: import it as wiretape.events")
