// Whether it is dark around the widget: what the notebook says, or else the colour behind it.

// By the first that says so: JupyterLab and Notebook, VS Code, Colab, marimo and others.
export function isDark(element) {
  const { body, documentElement: html } = document;
  if (body.dataset.jpThemeLight) return body.dataset.jpThemeLight === "false";
  if (body.dataset.vscodeThemeKind) return !body.dataset.vscodeThemeKind.includes("light");
  for (const theme of [html.getAttribute("theme"), html.dataset.theme, body.dataset.theme]) {
    if (theme === "dark" || theme === "light") return theme === "dark";
  }
  if ([html, body].some(({ classList }) => classList.contains("dark") || classList.contains("dark-theme"))) return true;
  const behind = colourBehind(element);
  return behind
    ? 0.299 * behind[0] + 0.587 * behind[1] + 0.114 * behind[2] < 128
    : matchMedia("(prefers-color-scheme: dark)").matches;
}

function colourBehind(element) {
  for (let at = element; at; at = at.parentNode || at.host) {
    if (at.nodeType !== Node.ELEMENT_NODE) continue;
    const [red, green, blue, alpha = 1] = (getComputedStyle(at).backgroundColor.match(/[\d.]+/g) || []).map(Number);
    if (blue !== undefined && alpha > 0.5) return [red, green, blue];
  }
  return null;
}

// Calls listener when it may have changed; returns a function that stops it.
export function watchTheme(listener) {
  const watch = new MutationObserver(listener);
  for (const element of [document.documentElement, document.body]) watch.observe(element, { attributes: true });
  const system = matchMedia("(prefers-color-scheme: dark)");
  system.addEventListener("change", listener);
  return () => {
    watch.disconnect();
    system.removeEventListener("change", listener);
  };
}
