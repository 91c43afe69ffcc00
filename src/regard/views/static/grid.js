// The picker: one thumbnail for every head, rows are layers and columns are heads.

const THUMBNAIL = 32; // sampled queries and key bins at most: what a cell can show, whatever the text's length

class HeadGrid {
  constructor(attention, state) {
    this.attention = attention;
    this.state = state;
    const { layers, heads } = attention.facts;
    this.cells = [];
    this.element = make("div", { class: "grid", role: "grid", "aria-label": "Choose a layer and a head" });
    this.element.style.setProperty("--heads", heads);
    const header = make("div", { class: "grid-row grid-header", role: "row" });
    header.append(make("span", { class: "grid-label", role: "columnheader", "aria-label": "Layer" }));
    for (let head = 0; head < heads; head += 1) {
      header.append(make("span", { class: "grid-label", role: "columnheader" }, String(head)));
    }
    this.element.append(header);
    for (let layer = 0; layer < layers; layer += 1) this.element.append(this.makeRow(layer, heads));
    this.canvas = make("canvas", { class: "thumbnails", "aria-hidden": "true" });
    this.context = this.canvas.getContext("2d");
    this.canvas.width = 0;
    this.element.append(this.canvas);
    new ResizeObserver(() => this.repaint()).observe(this.element);
    this.element.addEventListener("click", (event) => this.onClick(event));
    this.element.addEventListener("keydown", (event) => this.onKey(event));
    this.mark();
    this.restart();
  }

  makeRow(layer, heads) {
    const row = make("div", { class: "grid-row", role: "row" });
    row.append(make("span", { class: "grid-label", role: "rowheader" }, String(layer)));
    for (let head = 0; head < heads; head += 1) {
      const element = make("div", {
        class: "grid-cell",
        role: "gridcell",
        tabindex: "-1",
        "data-cell": String(this.cells.length),
        "aria-label": `Layer ${layer}, head ${head}`,
        title: `Layer ${layer}, head ${head}`,
      });
      row.append(element);
      this.cells.push({ layer, head, element, levels: null });
    }
    return row;
  }

  cell(layer, head) {
    return this.cells[layer * this.attention.facts.heads + head];
  }

  mark() {
    const { layer, head } = this.state.values;
    if (this.current) {
      this.current.element.setAttribute("aria-selected", "false");
      this.current.element.tabIndex = -1;
    }
    this.current = this.cell(layer, head);
    this.current.element.setAttribute("aria-selected", "true");
    this.current.element.tabIndex = 0;
  }

  onClick(event) {
    const element = event.target.closest("[data-cell]");
    if (!element) return;
    const { layer, head } = this.cells[Number(element.dataset.cell)];
    this.state.set({ layer, head });
  }

  onKey(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return; // the browser's own keys
    const { layers, heads } = this.attention.facts;
    let { layer, head } = this.state.values;
    if (event.key === "ArrowRight") head = Math.min(heads - 1, head + 1);
    else if (event.key === "ArrowLeft") head = Math.max(0, head - 1);
    else if (event.key === "ArrowDown") layer = Math.min(layers - 1, layer + 1);
    else if (event.key === "ArrowUp") layer = Math.max(0, layer - 1);
    else if (event.key === "Home") head = 0;
    else if (event.key === "End") head = heads - 1;
    else return;
    event.preventDefault();
    this.state.set({ layer, head });
    this.current.element.focus();
  }

  // Computes every thumbnail again, in idle time, nearest layers first.
  restart() {
    if (this.cancel) this.cancel();
    this.element.classList.remove("drawn");
    const shown = this.state.shown();
    const { layer } = this.state.values;
    const queue = this.cells.slice().sort((a, b) => Math.abs(a.layer - layer) - Math.abs(b.layer - layer));
    this.cancel = inIdleTime((deadline) => {
      while (queue.length > 0) {
        const cell = queue.shift();
        cell.levels = this.levels(cell, shown);
        this.paint(cell);
        if (performance.now() > deadline) break;
      }
      this.element.classList.toggle("drawn", queue.length === 0);
      return queue.length === 0;
    });
  }

  // A head's weights between shown tokens as a small picture, 0 to 255. Long texts are sampled: evenly spaced
  // queries, and for each bin of keys its largest weight, so that a single strong link stays visible.
  levels(cell, { queries, keys }) {
    const height = Math.min(THUMBNAIL, queries.length);
    const width = Math.min(THUMBNAIL, keys.length);
    const picture = new Float32Array(width * height);
    const row = (this.scratch = this.scratch || new Float64Array(this.attention.size));
    let largest = 0;
    for (let y = 0; y < height; y += 1) {
      const query = queries[Math.floor(((y + 0.5) * queries.length) / height)];
      this.attention.row(cell.layer, cell.head, query, row);
      for (let i = 0; i < keys.length; i += 1) {
        const at = y * width + Math.floor((i * width) / keys.length);
        if (row[keys[i]] > picture[at]) picture[at] = row[keys[i]];
      }
    }
    for (const weight of picture) if (weight > largest) largest = weight;
    // Square root: a weight of 0.1 beside one of 1 would otherwise vanish.
    const pixels = Uint8Array.from(picture, (weight) => (largest > 0 ? 255 * Math.sqrt(weight / largest) : 0));
    return { width, height, pixels };
  }

  // All thumbnails are on one canvas behind the cells: a canvas of its own for each of 72 or 384 heads would be
  // a layer of its own for the browser, in every frame of everything else on the page.
  // `fresh`: on an empty canvas. Clearing it would wipe the paper, see LineCanvas.
  paint(cell, fresh = false) {
    if (!cell.levels || this.canvas.width === 0) return;
    const { context, ratio } = this;
    const { element } = cell;
    const [x, y, width, height] = [
      element.offsetLeft,
      element.parentElement.offsetTop,
      element.offsetWidth,
      element.offsetHeight,
    ].map((length) => Math.round(length * ratio));
    if (!fresh) context.clearRect(x, y, width, height);
    if (cell.levels.pixels.length === 0) return;
    context.save();
    context.beginPath();
    context.roundRect(x, y, width, height, 3 * ratio);
    context.clip();
    // Sharp squares where there is room for them; where there is not, dropping pixels would drop weights.
    context.imageSmoothingEnabled = cell.levels.width > width || cell.levels.height > height;
    context.drawImage(this.picture(cell.levels), x, y, width, height);
    context.restore();
  }

  // The levels as the strength of one colour, on a canvas that is only ever copied from.
  picture({ width, height, pixels }) {
    const canvas = (this.stamp = this.stamp || make("canvas"));
    canvas.width = width;
    canvas.height = height;
    this.ink = this.ink || parseColor(getComputedStyle(this.element).getPropertyValue("--query"));
    const image = new ImageData(width, height);
    for (let i = 0; i < pixels.length; i += 1) image.data.set([...this.ink, pixels[i]], 4 * i);
    canvas.getContext("2d").putImageData(image, 0, 0);
    return canvas;
  }

  // After a change of size or colour.
  repaint() {
    this.ink = null;
    this.ratio = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(this.element.clientWidth * this.ratio);
    this.canvas.height = Math.round(this.element.clientHeight * this.ratio);
    for (const cell of this.cells) this.paint(cell, true);
  }
}

// "#rrggbb" to [r, g, b]: the style sheet writes its line colours so.
function parseColor(text) {
  const value = parseInt(text.trim().slice(1), 16);
  return [(value >> 16) & 255, (value >> 8) & 255, value & 255];
}
