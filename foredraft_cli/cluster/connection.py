"""A Ray cluster that runs already, as commands reach it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from deployments.serve.platform.local_ray import importing_this_code
from foredraft.errors import Unavailable

AddressOption = Annotated[
    str, typer.Option(help="Address of the Ray cluster; auto: the one on this machine.")
]


@contextmanager
def connected(address: str) -> Iterator[None]:
    """Connect to a Ray cluster; raise Unavailable where none answers."""
    import ray

    try:
        with importing_this_code():
            ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError) as error:
        raise Unavailable(f"no Ray cluster at {address}: {error}") from None
    try:
        yield
    finally:
        ray.shutdown()
