"""The pure core: bytes, frames, records, events and folds, with no socket, clock or randomness; time is an input."""

if __name__ != "wiretape.events":
    raise ImportError(f"{__name__} is a second copy of each class: import it as wiretape.events")
