"""The docs: links that lead somewhere, a walk that names real files, the field's words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
LIFE = (ROOT / "docs/life_of_a_request.md").read_text()


def anchors(page: Path) -> set[str]:
    """Return the anchors that a page's headings make on GitHub."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-") for title in titles}


def links(page: Path) -> list[str]:
    found = re.findall(r"\]\(([^)\s]+)\)", page.read_text())
    return [link for link in found if not link.startswith("http")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_the_index_has_every_page() -> None:
    named = {link for link in links(ROOT / "docs/index.md") if "/" not in link}
    assert named == {page.name for page in ROOT.glob("docs/*.md")} - {"index.md"}


def steps(text: str) -> list[str]:
    return re.findall(r"^\d+\. \[`([^`]+)`\]", text, re.M)


def test_the_life_of_a_request_names_at_most_40_files_and_returns_at_most_8_times() -> None:
    request, led = LIFE.split("## A verifier-led round")
    assert 30 <= len(steps(request)) == len(set(steps(request))) <= 40
    assert len(re.findall(r"^↩", request, re.M)) <= 8
    assert 10 <= len(steps(led)) <= 15
    assert all((ROOT / path).is_file() for path in steps(LIFE))
    assert f"That is {len(steps(request))} files" in request
    assert f"That is {len(steps(led))} files" in led


def test_a_step_of_a_request_names_the_file_that_it_links() -> None:
    for label, link in re.findall(r"\[`([^`]+\.py)`\]\(([^)]+)\)", LIFE):
        assert link == f"../{label}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_words_are_the_fields(page: Path) -> None:
    words = r"\b(told|tells|heard|hears|heeded|foretold|judge[sd]?)\b"
    found = [match.group() for match in re.finditer(words, page.read_text(), re.I)]
    assert found == []
