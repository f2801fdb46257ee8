"""The REST API of a fleet: agents and what they are made of, threads, runs, and chat, below ``/api/v1``.

``app`` puts it together and is what imports FastAPI; ``endpoints`` says what there is and who may use it.
"""
