// On the home page, the picture of the live page becomes the page itself where it is clicked: 35 MB, which nobody gets unasked.
for (const link of document.querySelectorAll('a[href$="live.html"]:has(> img)')) {
  link.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const frame = document.createElement("iframe");
    Object.assign(frame, { src: link.href, title: "The live page", className: "live-frame" });
    link.replaceWith(frame);
    frame.focus();
  });
}
