"""Recordings as test material: tapes are sealed, replayed, matched and compared."""

if __name__ != "wiretape.replay":
    raise ImportError(f"{__name__} is a second copy of each class: import it as wiretape.replay")
