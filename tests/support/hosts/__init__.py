"""Hosts with a network of their own on this machine, and the wire between them."""
