"""Ray's object store as a carrier: between replicas of an application, and what it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import ray
import torch

from deployments.config import ServeFile
from deployments.serve.cluster import RunningCluster, running
from deployments.serve.tensors import ObjectStore
from foredraft.errors import TensorLost
from foredraft_align.drafter.start import drafter_config, drafter_from_target
from tests.support.checkpoints import VOCABULARY, write_target
from tests.support.cluster import free_port, post
from tests.support.storing_replica import EVERY, Replica
from tests.support.waiting import eventually


@pytest.fixture(scope="module")
def reading_features(
    cluster: RunningCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningCluster]:
    """An application beside the ring's own, whose drafter reads features from the store."""
    folder = tmp_path_factory.mktemp("features")
    target = write_target(folder / "target", "llama").folder
    config = replace(drafter_config(target, 2, 12, 0, (0,)), shortlist_size=128)
    model = drafter_from_target(config, target, tuple(range(0, VOCABULARY, 2))[:128], seed=0)
    with torch.no_grad():
        model.hidden_norm.weight.fill_(0.5)
    drafter = folder / "drafter"
    model.save(drafter)
    args = {
        "orchestrator": {"proposal": "tree", "adl": {"name": "fixed", "k": 6}},
        "drafter": {"service": {"model": str(drafter), "target": str(target)}},
        "verifier": {
            "service": {
                "model": str(target),
                "kv_tokens": 4096,
                "features": {"model": str(drafter)},
            }
        },
        "tensors": EVERY.model_dump(),
        "ingress": {"direct": {"port": free_port()}},
    }
    entry = {
        "name": "tensors",
        "route_prefix": "/tensors",
        "import_path": "deployments.app:build",
        "args": args,
    }
    values = {"proxy_location": "Disabled", "applications": [entry]}
    with running(ServeFile.model_validate(values)) as app:
        yield app


async def health(of: RunningCluster) -> dict[str, Any]:
    async with aiohttp.ClientSession() as http, http.get(f"{of.url}/health") as answer:
        found: dict[str, Any] = (await answer.json())["verifier"]
        return found


async def test_features_through_the_store_draft_and_change_no_token(
    reading_features: RunningCluster,
) -> None:
    texts = []
    for led in (0, 8):
        for enabled in (False, True, True):
            speculative = {"enabled": enabled, "verifier_led_rounds": led}
            status, answer = await post(
                reading_features,
                {
                    "prompt": "def mean(values):\n    return",
                    "max_tokens": 40,
                    "temperature": 0.8,
                    "seed": 3,
                    "ignore_eos": True,
                    "return_token_ids": True,
                    "speculative": speculative,
                },
            )
            assert status == 200, answer
            texts.append(answer["choices"][0]["token_ids"])
            report = answer["metrics"]["speculative_decoding"]
        assert report["num_spec_steps"] > 0
        assert (await health(reading_features))["stored_tensors"] > 0
    assert len(texts[0]) == 40 and all(text == texts[0] for text in texts)

    async def freed() -> bool:
        return (await health(reading_features))["stored_tensor_bytes"] == 0

    # The sessions have ended.
    await eventually(freed, every_s=0.1)


@pytest.fixture
def replica(cluster: RunningCluster) -> Iterator[Any]:
    made: Any = ray.remote(Replica)
    actor = made.options(num_cpus=0).remote()
    yield actor
    ray.kill(actor)


async def test_bytes_of_another_process_are_read_until_they_are_freed(replica: Any) -> None:
    store = ObjectStore(EVERY)
    for size in (10, 3 << 20):
        reference = await replica.put.remote(size)
        assert await store.get(reference, size) == bytes(size)
        with pytest.raises(TensorLost):
            await store.get(reference, size + 1)
        assert (await replica.free.remote(reference))["stored_tensor_bytes"] == 0
        with pytest.raises(TensorLost):
            await store.get(reference, size)


async def test_nothing_is_unpickled_and_no_forged_reference_is_followed(
    replica: Any, tmp_path: Path
) -> None:
    store = ObjectStore(EVERY)
    planted = tmp_path / "planted"
    reference = await replica.put_pickled.remote(str(planted))
    for size in (1, 100):
        with pytest.raises(TensorLost):
            await store.get(reference, size)
    good = await replica.put.remote(100)
    first, last = bytes([good[0] ^ 1]), bytes([good[-1] ^ 1])
    for forged in (first + good[1:], good[:-1] + last, b"", bytes(600)):
        with pytest.raises(TensorLost, match="not from this cluster"):
            await store.get(forged, 100)
    assert not planted.exists()


async def test_what_a_lost_process_owned_is_lost_and_no_more(replica: Any) -> None:
    store = ObjectStore(EVERY.model_copy(update={"timeout_s": 0.5}))
    reference = await replica.put.remote(3 << 20)
    ray.kill(replica)

    async def lost() -> bool:
        try:
            await store.get(reference, 3 << 20)
        except TensorLost:
            return True
        return False

    # Until Ray has noticed, its copy can still be read.
    await eventually(lost, every_s=0.1)


async def test_beyond_its_bound_it_leaves_chunks(cluster: RunningCluster) -> None:
    store = ObjectStore(EVERY.model_copy(update={"max_mib": 1}))
    kept = await store.put(bytes(1 << 20))
    assert kept is not None and await store.put(b"1") is None
    store.free([kept, b"unknown"])
    assert await store.put(b"1") is not None
