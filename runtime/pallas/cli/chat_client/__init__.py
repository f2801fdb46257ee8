"""`pallas chat`: one message, or a conversation at a prompt, with an agent of a fleet (SPEC 6.3)."""
