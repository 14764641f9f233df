"""Several streams as one: every item once, errors, and everything closed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from deployments.ingress.stream.merge import merged
from foredraft.errors import Unavailable


class Source:
    def __init__(self, *items: int, error: Exception | None = None) -> None:
        self.items, self.error, self.closed = items, error, False

    async def stream(self) -> AsyncGenerator[int]:
        try:
            for item in self.items:
                await asyncio.sleep(0)
                yield item
            if self.error:
                raise self.error
        finally:
            self.closed = True


@pytest.mark.parametrize("count", [1, 3])
async def test_every_item_comes_once_and_in_its_streams_order(count: int) -> None:
    sources = [Source(*range(n + 2)) for n in range(count)]
    found: list[list[int]] = [[] for _ in sources]
    async for index, item in merged([source.stream() for source in sources]):
        found[index].append(item)
    assert found == [list(source.items) for source in sources]
    assert all(source.closed for source in sources)


@pytest.mark.parametrize("count", [1, 3])
async def test_the_first_error_ends_all(count: int) -> None:
    sources = [Source(error=Unavailable("gone")), *(Source(*range(99)) for _ in range(count - 1))]
    with pytest.raises(Unavailable):
        async for _ in merged([source.stream() for source in sources]):
            pass
    assert all(source.closed for source in sources)


@pytest.mark.parametrize("count", [1, 3])
async def test_who_stops_reading_closes_all(count: int) -> None:
    sources = [Source(*range(99)) for _ in range(count)]
    stream = merged([source.stream() for source in sources])
    await anext(stream)
    await stream.aclose()
    assert all(source.closed for source in sources)
