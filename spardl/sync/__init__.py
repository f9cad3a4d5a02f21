"""Synchronisation that does not wait for the slowest rank."""
