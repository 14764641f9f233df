"""Which replica a session opens on, where some are lost or full."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from deployments.serve.routing import PinnedReplicas
from foredraft.errors import ForedraftError, Overloaded, Unauthenticated, Unavailable


class Cluster:
    """Serve's choices, one after the other, and what each address answers."""

    def __init__(self, choices: Sequence[str]) -> None:
        self.choices = list(choices)
        self.faults: dict[str, ForedraftError] = {}
        self.retired: list[str] = []
        self.opens: list[str] = []
        self.stalled: set[str] = set()
        self.sessions: dict[str, int] = {}
        self.now = 0.0

    def replicas(self) -> PinnedReplicas[str, str]:
        return PinnedReplicas(self.choose, lambda address: Client(self, address), lambda: self.now)

    async def choose(self) -> str:
        return self.choices.pop(0) if len(self.choices) > 1 else self.choices[0]


class Client:
    def __init__(self, cluster: Cluster, address: str) -> None:
        self.cluster, self.address = cluster, address

    @property
    def num_sessions(self) -> int:
        return self.cluster.sessions.get(self.address, 0)

    @property
    def lost(self) -> bool:
        return self.address in self.cluster.stalled

    async def open(self, request: str) -> str:
        self.cluster.opens.append(self.address)
        if fault := self.cluster.faults.get(self.address):
            raise fault
        return f"{request} on {self.address}"

    def retire(self) -> None:
        self.cluster.retired.append(self.address)


async def test_a_lost_replica_is_not_tried_again_while_serve_still_chooses_it() -> None:
    cluster = Cluster(["lost", "lost", "lost", "well"])
    cluster.faults["lost"] = Unavailable("stopped")
    replicas = cluster.replicas()
    assert await replicas.open("s") == "s on well"
    assert cluster.opens == ["lost", "well"] and cluster.retired == ["lost"]


async def test_a_replica_that_comes_back_is_used_again() -> None:
    cluster = Cluster(["lost"])
    cluster.faults["lost"] = Unavailable("stopped")
    replicas = cluster.replicas()
    with pytest.raises(Unavailable, match="stopped"):
        await replicas.open("a")
    # There is no other one: it is tried for all that.
    assert cluster.opens == ["lost"] * 3
    cluster.faults.clear()
    cluster.now += 60
    assert await replicas.open("b") == "b on lost"


async def test_a_full_replica_is_passed_over_and_not_avoided() -> None:
    cluster = Cluster(["full"] * 5 + ["well", "full"])
    cluster.faults["full"] = Overloaded("no session left")
    replicas = cluster.replicas()
    assert await replicas.open("a") == "a on well"
    assert not cluster.retired and cluster.opens == ["full", "well"]


async def test_a_replica_that_refuses_the_ingress_is_no_fault_of_the_clients() -> None:
    cluster = Cluster(["a"])
    cluster.faults["a"] = Unauthenticated("a valid token is needed")
    with pytest.raises(ForedraftError, match="refuses this ingress") as refused:
        await cluster.replicas().open("s")
    assert refused.value.http_code == 500


async def test_a_replica_whose_connection_is_lost_is_passed_over_and_connected_to_anew() -> None:
    cluster = Cluster(["a", "a", "a", "b", "a"])
    replicas = cluster.replicas()
    assert await replicas.open("s") == "s on a"
    cluster.stalled = {"a"}
    assert await replicas.open("s") == "s on b"
    assert cluster.retired == ["a"]
    cluster.stalled.clear()
    cluster.now += 60
    assert await replicas.open("s") == "s on a"


async def test_of_replicas_that_were_all_lost_the_first_one_may_be_back() -> None:
    cluster = Cluster(["a", "b"] * 20)
    replicas = cluster.replicas()
    assert await replicas.open("s") == "s on a"
    for lost, other in (("a", "b"), ("b", "a"), ("a", "b")):
        cluster.stalled = {lost}
        cluster.now += 1
        assert await replicas.open("s") == f"s on {other}"


async def test_of_two_replicas_the_less_used_one_is_taken() -> None:
    cluster = Cluster(["a", "b", "b", "a", "b"])
    replicas = cluster.replicas()
    assert [await replicas.open("s") for _ in range(2)] == ["s on a", "s on b"]
    cluster.sessions = {"a": 2, "b": 1}
    assert await replicas.open("s") == "s on b"
