"""Drafter networks, in plain torch: shared by training and by the service."""
