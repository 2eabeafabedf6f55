"""One request from acceptance to its ending: attempts, recording and delivery."""
