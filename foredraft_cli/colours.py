"""How a token's origin looks on a terminal."""

from __future__ import annotations

from rich.text import Text

from foredraft.types import Origin

STYLES = {
    Origin.KEPT: "green",
    Origin.BONUS: "bold cyan",
    Origin.CORRECTION: "yellow",
    Origin.PLAIN: "white",
}
_MEANING = {
    Origin.KEPT: "drafted and kept",
    Origin.BONUS: "bonus",
    Origin.CORRECTION: "corrected",
    Origin.PLAIN: "plain",
}


def legend() -> Text:
    """Return one line that explains the colours."""
    text = Text()
    for origin, style in STYLES.items():
        text.append("■ ", style).append(f"{_MEANING[origin]}   ")
    return text
