"""Questions to people: a run waits for the answer, which may be given here or at another replica.

``questions`` asks, waits and takes answers, and ``waiting_question`` is one that waits here.
``question_records`` is how they are stored, in memory where a fleet has no ledger. ``question_events`` is
what is published and recorded of them, ``answer_check`` reads an answer by the form of its question.
"""
