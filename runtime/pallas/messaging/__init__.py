"""Messages between handlers: frames, who may send to whom, and the loop that delivers (SPEC 5)."""
