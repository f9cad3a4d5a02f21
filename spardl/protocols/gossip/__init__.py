"""Gossip without iterations (AD-PSGD): after every step a worker averages its model with one neighbour's."""
