"""Recordings of runs as files, and what differs between two.

A recording is a plain value (``pallas.model.Recording``). What gathers one from a fleet is in ``runs``.
``run_diff`` compares two: ``step_contents`` finds what is new in each step, ``step_alignment`` its
counterpart, ``step_changes`` what differs; ``diff_lines`` shows it.
"""
