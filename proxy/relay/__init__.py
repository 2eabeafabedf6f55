"""One request from acceptance to its ending: attempts, recording and delivery.

`app` reads an admitted request and hands it to the `registry`, which starts a `relay`, the one task of the stream. It
asks one upstream after the other (`upstream_request`, `attempts`), puts each read on the tape (`recording`) and
publishes what the tape emits. The request's own task sends that to the client (`delivery`), at the client's pace.
"""
