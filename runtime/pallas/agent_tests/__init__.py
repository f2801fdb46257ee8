"""Tests of a project's agents: files that say what to ask and what to expect, run from recordings or live.

``agent_test_file`` reads them, ``expectations`` checks a run, ``recorded_bench`` and ``live_bench`` run them.
"""
