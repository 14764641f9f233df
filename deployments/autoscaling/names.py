"""Under which names the cluster keeps what a policy decided, and its settings."""

from __future__ import annotations


def settings_key(application: str) -> str:
    """Return the name of the settings of an application's policy: ScalingConfig as JSON."""
    return f"foredraft:autoscaling_settings:{application}"


def decisions_key(application: str) -> str:
    """Return the name of an application's decisions.

    They are JSON: the `newest` of each pool, and the `changes` of numbers in order.
    """
    return f"foredraft:autoscaling:{application}"
