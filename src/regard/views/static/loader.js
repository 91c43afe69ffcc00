// What a page runs first. Its style, its script and its facts stand in it compressed; the policy names the first two by
// their hash, as they are when they have been unpacked.

const inflate = async (element) => {
  const bytes = Uint8Array.from(atob(element.textContent), (letter) => letter.charCodeAt(0));
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
