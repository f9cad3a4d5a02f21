"""Partial Reduce: whoever is ready forms a group, and its members average their models."""
