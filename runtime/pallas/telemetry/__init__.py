"""What happened: events, traces, the record of wire traffic, and the log."""
