"""What a newcomer meets on the first screen: how many words, numbers and controls are in the window."""

from dataclasses import dataclass

from playwright.sync_api import Page

# A word has a letter, a number only digits. A control is a stop of the Tab key: a list, a grid, a row of tabs
# or of radio buttons is one. What lies under something else, or is for screen readers alone, is not seen.
_COUNT = r"""() => {
  const within = ({ width, height, top, right, bottom, left }) =>
    width > 1 && height > 1 && bottom > 0 && top < innerHeight && right > 0 && left < innerWidth;
  const isCut = (element) => element.closest(".sr-only") || getComputedStyle(element).clipPath !== "none";
  const seen = (element) => {
    for (let each = element; each !== document.body; each = each.parentElement) if (isCut(each)) return false;
    return element.checkVisibility({ opacityProperty: true, visibilityProperty: true });
  };
  const there = (thing) => [...thing.getClientRects()].some(within);
  const texts = [];
  const walker = document.createTreeWalker(document.querySelector("#regard"), NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const { currentNode: node } = walker;
    if (!seen(node.parentElement)) continue;
    for (const found of node.data.matchAll(/\S+/g)) {
      const range = document.createRange();
      range.setStart(node, found.index);
      range.setEnd(node, found.index + found[0].length);
      if (there(range)) texts.push(found[0]);
    }
  }
  const all = [...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex]")];
  const controls = all
    .filter((each) => each.tabIndex >= 0 && !each.disabled)
    .map((each) => (each.type === "radio" ? each.closest("fieldset") : each))
    .filter((each) => seen(each) && there(each));
  return [texts, new Set(controls).size];
}"""


@dataclass(frozen=True, kw_only=True)
class FirstScreen:
    """What is in the window."""

    words: int
    numbers: int
    controls: int

    def fits(self, *, words: int, numbers: int, controls: int) -> bool:
        """Whether there are not more of each, and at least a sentence, a number and a control."""
        return 5 < self.words <= words and 0 < self.numbers <= numbers and 0 < self.controls <= controls


def first_screen(page: Page) -> FirstScreen:
    """What is in the window of a page."""
    texts, controls = page.evaluate(_COUNT)
    words = [each for each in texts if any(map(str.isalpha, each))]
    numbers = [each for each in texts if each not in words and any(map(str.isdigit, each))]
    return FirstScreen(words=len(words), numbers=len(numbers), controls=controls)
