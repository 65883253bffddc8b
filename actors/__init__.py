"""Actors: the engines, the brokers, the clients, and the cluster as a user holds it."""
