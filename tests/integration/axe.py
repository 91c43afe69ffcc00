"""axe, which looks for what somebody cannot see, hear or reach."""

from typing import Any, NamedTuple

from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Page


class Found(NamedTuple):
    """What axe says: how many rules hold, and each that does not, as axe tells it."""

    passes: int
    violations: list[dict[str, Any]]


# The contrast of text costs more than all other rules together. Texts with the same classes, styles and
# states all the way up have the same colours: the first and the last of each kind are asked. And views that
# are hidden are put aside, since axe walks through them.
_BEGIN = r"""() => {
    const STATES = ["class", "style", "role", "type", "scope", "open", "disabled", "hidden"].concat(
        ["aria-current", "aria-disabled", "aria-expanded", "aria-hidden", "aria-pressed", "aria-selected"],
        ["data-letter", "data-size"],
    );
    const PLACE = /(?<![\w-])(top|left|width|height|flex-grow|background-size):[^;]*;?/g;
    const ways = new Map([[null, ""]]);
    const way = (each) => {
        if (!ways.has(each)) {
            const states = STATES.map((name) => (each.getAttribute(name) ?? "-").replace(PLACE, ""));
            ways.set(each, `${way(each.parentElement)}>${each.tagName} ${states}`);
        }
        return ways.get(each);
    };
    const isText = ({ nodeType, data }) => nodeType === Node.TEXT_NODE && data.trim();
    window.axeAside = Array.from(document.querySelectorAll(".shown > [hidden]"), (view) => {
        const place = document.createComment("");
        view.replaceWith(place);
        return () => place.replaceWith(view);
    });
    const first = new Map(), last = new Map();
    for (const each of document.querySelectorAll("body *")) {
        if (!Array.from(each.childNodes).some(isText) && !each.matches("input, select, textarea")) continue;
        if (!each.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
        const kind = way(each);
        if (!first.has(kind)) first.set(kind, each);
        last.set(kind, each);
    }
    for (const each of [...first.values(), ...last.values()]) each.setAttribute("axe-asks", "");
}"""
_END = """() => {
    for (const each of document.querySelectorAll("[axe-asks]")) each.removeAttribute("axe-asks");
    window.axeAside.forEach((back) => back());
}"""


def axe(page: Page, part: str | None = None, *, colours: bool = True) -> Found:
    """Run it on what is on show, or on a part of it (a selector), with every rule, or all but contrast's."""
    # `Axe.run` brings axe into the page for every question, which takes about as long as the answer.
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE_SCRIPT)
        page.evaluate("axe.configure({ rules: [{ id: 'color-contrast', selector: '[axe-asks]' }] })")
    page.evaluate(_BEGIN)
    found = page.evaluate(
        """async ([part, options]) => {
            const { passes, violations } = await axe.run(part ?? document, options);
            return [passes.length, violations];
        }""",
        [part, {"resultTypes": ["violations"], "rules": {"color-contrast": {"enabled": colours}}}],
    )
    page.evaluate(_END)
    return Found(*found)
