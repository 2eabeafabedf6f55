"""From a tape to the frames a client gets, whatever the dialect."""
