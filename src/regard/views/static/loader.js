// What a page runs first. Its style and its script stand in it compressed; the policy names both by their hash, as
// they are when they have been unpacked.

const inflate = (name) => {
  const packed = atob(document.getElementById(`regard-${name}`).textContent);
  const bytes = Uint8Array.from(packed, (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
};

const add = (tag, text) => {
  const element = document.createElement(tag);
  element.textContent = text;
  document.head.append(element);
};

Promise.all(["style", "script"].map(inflate)).then(
  ([style, script]) => {
    add("style", style);
    add("script", script);
  },
  () => {
    document.getElementById("regard").textContent =
      "This page cannot be unpacked: the file is damaged, or the browser is older than 2023.";
  },
);
