// What is put together anew while somebody uses it: what had the focus, and what was scrolled, is found again.

/** @param {Element} root @param {Element} element @returns {number[]} the way from the one to the other */
function wayTo(root, element) {
  const way = [];
  for (let at = element; at !== root && at.parentElement; at = at.parentElement) {
    way.unshift([...at.parentElement.children].indexOf(at));
  }
  return way;
}

/** @param {Element} root @returns {() => void} to be called when the new elements are there */
export function whereIsFocus(root) {
  const { activeElement: active } = /** @type {Document | ShadowRoot} */ (root.getRootNode());
  const inside = active && root.contains(active) && active !== root ? active : null;
  const place = inside instanceof HTMLElement ? inside.dataset.place : undefined; // of what may stand elsewhere then
  const found = inside && { way: wayTo(root, inside), tag: inside.tagName };
  const scrolled = [...root.querySelectorAll("*")]
    .filter(({ scrollTop, scrollLeft }) => scrollTop > 0 || scrollLeft > 0)
    .map((each) => ({ way: wayTo(root, each), top: each.scrollTop, left: each.scrollLeft }));
  const at = (/** @type {number[]} */ way) =>
    way.reduce((/** @type {Element | undefined} */ element, place) => element?.children[place], root);
  return () => {
    for (const { way, top, left } of scrolled) at(way)?.scrollTo({ top, left, behavior: "instant" });
    if (!found || document.activeElement === inside) return;
    const again = place ? root.querySelector(`[data-place="${place}"]`) : at(found.way);
    if (again instanceof HTMLElement && again.tagName === found.tag) again.focus({ preventScroll: true });
  };
}
