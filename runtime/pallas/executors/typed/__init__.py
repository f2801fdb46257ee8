"""Typed handlers: functions that take a payload and say where the next message goes."""
