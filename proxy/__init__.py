"""The I/O layer: sockets, tasks, time, disk and HTTP, moving bytes between the outside world and the pure core."""

if __name__ != "wiretape.proxy":
    raise ImportError(f"{__name__} is a second copy of each class: import it as wiretape.proxy")
