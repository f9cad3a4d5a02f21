"""Hop: training on a graph, where every worker averages its model with its neighbours' only."""
