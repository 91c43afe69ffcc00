"""axe, which looks for what somebody cannot see, hear or reach."""

from typing import Any, NamedTuple

from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Page


class Found(NamedTuple):
    """What axe says: how many rules hold, and each that does not, as axe tells it."""

    passes: int
    violations: list[dict[str, Any]]


def axe(page: Page, part: str | None = None, **options: Any) -> Found:
    """Run it on what is on show, or on a part of it (a selector); options are those of `axe.run`."""
    # `Axe.run` brings axe into the page for every question, which takes about as long as the answer.
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE_SCRIPT)
    found = page.evaluate(
        """async ([part, options]) => {
            const { passes, violations } = await axe.run(part ?? document, options);
            return [passes.length, violations];
        }""",
        [part, {"resultTypes": ["violations"], **options}],
    )
    return Found(*found)
