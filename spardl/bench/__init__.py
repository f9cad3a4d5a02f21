"""Measuring: contenders that take turns, checked in the same run, as tables, JSON and pictures."""
