"""What the whole cluster keeps under names, in Ray's internal key-value store, which is private."""

from __future__ import annotations

import secrets
from functools import partial

from foredraft.threads import in_thread


def cluster_secret(name: str, size: int) -> bytes:
    """Return the cluster's random bytes of that name, the same in all its processes.

    Whoever runs code on the cluster can read them, nobody else can.
    """
    from ray.experimental import internal_kv

    # Whoever comes first decides.
    internal_kv._internal_kv_put(name, secrets.token_bytes(size), overwrite=False)
    found: bytes = internal_kv._internal_kv_get(name)
    return found


def remember(name: str, value: bytes) -> None:
    """Keep bytes under a name for the whole cluster, in place of what was kept."""
    from ray.experimental import internal_kv

    internal_kv._internal_kv_put(name, value, overwrite=True)


def remembered(name: str) -> bytes | None:
    """Return what the cluster keeps under a name, None for nothing."""
    from ray.experimental import internal_kv

    found: bytes | None = internal_kv._internal_kv_get(name)
    return found


def session_token() -> str:
    """Return what the services of this cluster show each other."""
    return cluster_secret("foredraft-session-token", 32).hex()


def introduce_drafter(address: str) -> None:
    """Make a drafter's address known, so that verifiers connect to it."""
    remember(f"foredraft-drafter {address}", b"1")


async def is_introduced(address: str) -> bool:
    """Return whether a drafter of this cluster has registered an address."""
    return await in_thread(partial(remembered, f"foredraft-drafter {address}")) is not None


class ClusterMemory:
    """What the whole cluster keeps under names: deployments.canary.trial.Board."""

    def put(self, name: str, value: bytes) -> None:
        """Keep a value, in place of what was kept."""
        remember(name, value)

    def get(self, name: str) -> bytes | None:
        """Return what is kept under a name, None for nothing."""
        return remembered(name)

    def claim(self, name: str, value: bytes = b"") -> bool:
        """Keep a value unless there is one already; return whether there was none."""
        from ray.experimental import internal_kv

        return not internal_kv._internal_kv_put(name, value, overwrite=False)

    def below(self, prefix: str) -> list[bytes]:
        """Return all that is kept under names that begin so."""
        from ray.experimental import internal_kv

        found = (remembered(name.decode()) for name in internal_kv._internal_kv_list(prefix))
        return [value for value in found if value is not None]
