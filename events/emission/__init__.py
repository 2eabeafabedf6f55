"""The engine that turns a tape into the frames a client gets, in any dialect."""
