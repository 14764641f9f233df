"""The playground in a real browser: texts, the race, the drafter's end, a pinned round."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Page, async_playwright, expect

from deployments.serve.cluster import RunningCluster
from tests.support.browser import CHROMIUM, OPTIONS
from tests.support.cluster import replica_pids

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: make packages")

PROMPT = "def add(a, b):\n    return a + b\n\n\ndef sub(a, b):\n"
# Markup that would run if text were ever inserted as anything else.
HOSTILE = "x = '<img src=x onerror=alert(1)><script>alert(2)</script>'\n"
MOST_MS = 60_000


class Watched:
    """A page, what its console said, and where its requests went."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.runs = 0
        self.said: list[str] = []
        self.hosts: set[str] = set()
        page.on("console", lambda message: self.said.append(message.text))
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.on("request", lambda request: self.hosts.add(request.url.split("/")[2]))

    async def set(self, prompt: str, max_tokens: int, temperature: str = "0") -> None:
        await self.page.fill("#prompt", prompt)
        await self.page.fill("#max-tokens", str(max_tokens))
        await self.page.fill("#temperature", temperature)

    async def ended(self) -> None:
        """Wait for the end of the next run."""
        self.runs += 1
        await self.page.wait_for_selector(f"#output[data-ended='{self.runs}']", timeout=MOST_MS)

    async def text(self, lane: str) -> str:
        tokens = self.page.locator(f"#{lane} .token")
        return "".join(await tokens.all_text_contents())

    async def verdict(self) -> str:
        return await self.page.text_content("#verdict") or ""


@pytest.fixture
async def watched(cluster: RunningCluster) -> AsyncIterator[Watched]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        context = await browser.new_context(permissions=["clipboard-read", "clipboard-write"])
        found = Watched(await context.new_page())
        await found.page.goto(cluster.url)
        await expect(found.page.locator("#served")).to_contain_text("drafts by")
        yield found
        await browser.close()
        assert found.said == []
        assert len(found.hosts) == 1


async def test_a_text_streams_in_its_tokens_colours(watched: Watched) -> None:
    await watched.set(PROMPT, 48)
    await watched.page.click("#run")
    await watched.ended()
    assert await watched.page.locator("#fast .token").count() == 48
    assert await watched.page.locator("#fast .token.kept").count() > 0
    assert "48 tokens" in (await watched.page.text_content("#fast .numbers") or "")
    assert await watched.page.locator("#clock .bar.verify").count() > 0
    assert await watched.page.locator("#lengths .bar.kept").count() > 0
    assert await watched.page.locator("#round .node").count() > 0


async def test_a_race_is_identical_at_every_temperature(watched: Watched) -> None:
    await watched.set(PROMPT, 40)
    await watched.page.click("#race")
    await watched.ended()
    assert (await watched.verdict()).startswith("identical 40/40, ")
    assert await watched.text("fast") == await watched.text("plain")
    assert await watched.page.locator("#plain .token:not(.plain)").count() == 0
    # Moving the temperature is a race of its own, and the counter goes on.
    await watched.page.fill("#temperature", "1.2")
    await expect(watched.page.locator("#verdict")).to_contain_text(
        "2 races: 80/80", timeout=MOST_MS
    )


async def test_the_text_goes_on_when_the_drafter_is_killed(
    watched: Watched, cluster: RunningCluster
) -> None:
    before = replica_pids("drafter")
    await watched.set(PROMPT, 200)
    await watched.page.click("#race")
    await watched.page.click("#kill")
    await watched.ended()
    await expect(watched.page.locator("#kill")).to_be_enabled(timeout=MOST_MS)
    assert (await watched.verdict()).startswith("identical 200/200, ")
    assert set(replica_pids("drafter")).isdisjoint(before)
    await watched.page.click("#race")
    await watched.ended()
    assert "2 races: 400/400" in await watched.verdict()


async def test_text_is_only_ever_text(watched: Watched) -> None:
    await watched.set(HOSTILE, 8)
    await watched.page.click("#run")
    await watched.ended()
    assert HOSTILE in (await watched.page.text_content("#fast .text") or "")
    assert await watched.page.locator("#fast img, #fast script").count() == 0


async def test_a_round_is_pinned_copied_and_linked(
    watched: Watched, cluster: RunningCluster
) -> None:
    page = watched.page
    await watched.set(PROMPT, 32)
    await page.click("#run")
    await watched.ended()
    await page.locator("#fast .token.kept").first.click()
    await expect(page.locator("#pin")).to_have_attribute("aria-pressed", "true")
    await page.click("#copy-json")
    await expect(page.locator("#copied")).to_have_text("JSON copied")
    copied = json.loads(await page.evaluate("() => navigator.clipboard.readText()"))
    assert copied["draft"]["kept"] and copied["bought"] <= len(copied["draft"]["tokens"])
    await page.click("#copy-link")
    await expect(page.locator("#copied")).to_have_text("link copied")
    link = await page.evaluate("() => navigator.clipboard.readText()")
    shown = await page.locator("#round .tree").inner_html()
    other = await page.context.new_page()
    await other.goto(link)
    await expect(other.locator("#round-number")).to_have_text(str(copied["round"]))
    assert await other.locator("#round .tree").inner_html() == shown
    # A link that holds something else shows nothing.
    await other.goto(f"{cluster.url}/#round=eyJyb3VuZCI6MX0")
    await other.reload()
    await expect(other.locator("#round-number")).to_have_text("-")


async def test_the_keyboard_suffices(watched: Watched) -> None:
    page = watched.page
    await watched.set(PROMPT, 32)
    await page.focus("#prompt")
    await page.keyboard.press("Control+Shift+Enter")
    await watched.ended()
    assert "32/32" in await watched.verdict()
    await page.focus("#fast .text")
    for key in ("ArrowRight", "ArrowRight", "Enter"):
        await page.keyboard.press(key)
    await expect(page.locator("#tip")).to_be_visible()
    await expect(page.locator("#pin")).to_have_attribute("aria-pressed", "true")
    await page.focus("#prompt")
    await page.keyboard.press("Control+Enter")
    await page.keyboard.press("Escape")
    await expect(page.locator("#stop")).to_be_disabled()


async def test_slow_motion_shows_rounds_later_and_nothing_else(watched: Watched) -> None:
    await watched.set(PROMPT, 24)
    await watched.page.click("#run")
    await watched.ended()
    text = await watched.text("fast")
    await watched.page.select_option("#slow", "16")
    await watched.page.click("#run")
    assert await watched.page.locator("#fast .token").count() < 24
    await watched.ended()
    assert await watched.text("fast") == text


async def test_a_refused_request_is_told(watched: Watched) -> None:
    await watched.set("", 8)
    await watched.page.click("#run")
    await expect(watched.page.locator("#problem")).to_have_text("prompt is empty")
    # Chromium's own line about the status is no error of the page.
    watched.said[:] = [line for line in watched.said if "400" not in line]
