// Below the remark: the address of what is on show, and a picture of it, to be passed on.

import { makeButton, makeCopyLink } from "../base/controls.js";
import { make } from "../base/dom.js";
import { ACROSS, makeStop, onKeys, placeIn } from "../base/keys.js";
import { download, drawnSheet } from "../base/save.js";
import { sheetOf } from "../base/sheet.js";

/**
 * Both buttons, one stop of the Tab key, and what is said when one was pressed.
 * @param {import("../base/types").Page} page
 * @param {HTMLElement} said
 * @param {() => import("./sentence.js").Sentence[]} shown the picture is of these, made anew: it has its own width, whatever the
 *   window's
 * @param {() => { layer: number, head: number } | null} headOf
 */
export function makeShare({ source, colours, link }, said, shown, headOf) {
  const copy = link && makeCopyLink(link);
  const told = copy?.told ?? make("span", { class: "told", "aria-live": "polite" });
  const picture = makeButton("Copy picture", async () => {
    const room = make("div", { class: "door door-picture", inert: true });
    bar.closest(".door").after(room);
    const copies = shown().map((each) => each.copy());
    room.append(...copies.map((each) => each.element), said.cloneNode(true));
    for (const each of copies) each.settle();
    const head = headOf();
    const title = `${source.facts.model}${head ? `, layer ${head.layer}, head ${head.head}` : ""} · regard`;
    const sheet = sheetOf(room, { title, name: "regard" }, colours);
    room.remove();
    told.textContent = await copyPicture(sheet);
  });
  const buttons = copy ? [copy.button, picture] : [picture];
  const bar = make("div", { class: "door-share", role: "toolbar", "aria-label": "Pass on" }, ...buttons);
  const stop = makeStop();
  for (const each of buttons) each.tabIndex = -1;
  stop(buttons[0]);
  onKeys(bar, (key, { target }) => {
    const to = placeIn(buttons.length, buttons.indexOf(target), key, ACROSS);
    if (to === undefined) return false;
    stop(buttons[to]);
    buttons[to].focus();
    return true;
  });
  return make("div", { class: "door-pass" }, bar, told);
}

// As a PNG to the clipboard; where the browser refuses that, into a file.
async function copyPicture(sheet) {
  const drawn = drawnSheet(sheet).then((canvas) => new Promise((resolve) => canvas.toBlob(resolve, "image/png")));
  try {
    await navigator.clipboard.write([new ClipboardItem({ "image/png": drawn })]);
    return "Copied.";
  } catch {
    download(await drawn, `${sheet.name}.png`);
    return "Saved: the browser does not let this page copy a picture.";
  }
}
