// What a page runs first. Its style, its script and its facts stand in it compressed; the policy names the first two by
// their hash, as they are when they have been unpacked.

// Base85, five letters for four bytes; see packed() in _assets.py.
const LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%:()*+-;,=.?@^_`{|}~";
const DIGITS = new Uint8Array(128); // of each letter, by its code: a page has half a million letters, and a live page more
Array.from(LETTERS, (letter, digit) => (DIGITS[letter.charCodeAt(0)] = digit));
const bytesOf = (text) => {
  const view = new DataView(new ArrayBuffer(4 * Math.ceil(text.length / 5)));
  for (let at = 0; at < text.length; at += 5) {
    let word = 0;
    for (let i = at; i < at + 5; i += 1) word = 85 * word + (i < text.length ? DIGITS[text.charCodeAt(i)] : 84);
    view.setUint32((at / 5) * 4, word);
  }
  return view.buffer.slice(0, Math.floor((text.length * 4) / 5));
};

const inflate = async (element) => {
  const bytes = bytesOf(element.textContent);
  const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  element.textContent = await new Response(plain).text();
};

const add = (tag) => {
  const element = document.createElement(tag);
  element.textContent = document.getElementById(`regard-${tag}`).textContent;
  document.head.append(element);
};

Promise.all(Array.from(document.querySelectorAll('script[type="application/gzip"]'), inflate)).then(
  () => {
    add("style");
    add("script");
  },
  () => {
    document.getElementById("regard").textContent =
      "This page cannot be unpacked: the file is damaged, or the browser is older than 2023.";
  },
);
