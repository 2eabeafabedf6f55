"""One request from acceptance to its ending: attempts, recording and delivery.

`app` decides access and reads a request (`stream_request`); its registry starts a `relay`, the one task of the stream.
It asks one upstream after the other (`upstream`, `attempts`), puts each read on the tape (`recording`) and publishes
what the tape emits. The request's own task sends that to the client (`delivery`), at the client's pace.
"""
