// The picker: one thumbnail for every head, rows are layers and columns are heads.

part((shared) => {
  const { make, inIdleTime, parseColour, chosenHeads, toggleHead, toggleLayer } = shared;

  const THUMBNAIL = 32; // sampled queries and key bins at most: what a cell can show, whatever the text's length

  class HeadGrid {
    constructor({ source, state, colours }) {
      Object.assign(this, { source, state, colours });
      this.element = make("div", { class: "grid", role: "grid", "aria-label": "Choose a layer and a head", "aria-multiselectable": "true" });
      this.canvas = make("canvas", { class: "thumbnails", "aria-hidden": "true" });
      this.context = this.canvas.getContext("2d");
      this.canvas.width = 0;
      new ResizeObserver(() => this.repaint()).observe(this.element);
      this.element.addEventListener("click", (event) => this.onClick(event));
      this.element.addEventListener("keydown", (event) => this.onKey(event));
      this.rebuild();
    }

    // The layers and heads of the kind on show.
    rebuild() {
      const { kind } = this.state.values;
      this.layers = this.source.layers(kind);
      this.counts = new Map(this.layers.map((layer) => [layer, this.source.heads(kind, layer)]));
      const most = Math.max(...this.counts.values());
      this.cells = [];
      this.element.style.setProperty("--heads", most);
      const header = make("div", { class: "grid-row grid-header", role: "row" });
      header.append(make("span", { class: "grid-label", role: "columnheader", "aria-label": "Layer" }));
      for (let head = 0; head < most; head += 1) {
        header.append(make("span", { class: "grid-label", role: "columnheader" }, String(head)));
      }
      this.element.replaceChildren(header, ...this.layers.map((layer) => this.makeRow(layer)), this.canvas);
      this.ringed = [];
      this.mark();
      this.restart();
    }

    makeRow(layer) {
      const row = make("div", { class: "grid-row", role: "row" });
      const label = make("span", { class: "grid-label grid-layer", role: "rowheader", "data-layer": String(layer), title: `All heads of layer ${layer}` }, String(layer));
      row.append(label);
      for (let head = 0; head < this.counts.get(layer); head += 1) {
        const element = make("div", {
          class: "grid-cell",
          role: "gridcell",
          tabindex: "-1",
          "aria-selected": "false",
          "data-cell": String(this.cells.length),
          "aria-label": `Layer ${layer}, head ${head}`,
          title: `Layer ${layer}, head ${head}`,
        });
        row.append(element);
        this.cells.push({ layer, head, element, levels: null });
      }
      return row;
    }

    cell({ layer, head }) {
      return this.cells.find((cell) => cell.layer === layer && cell.head === head);
    }

    mark() {
      for (const { element } of this.ringed) {
        element.setAttribute("aria-selected", "false");
        element.tabIndex = -1;
        delete element.dataset.letter;
      }
      const chosen = chosenHeads(this.state.values);
      this.ringed = chosen.map((each) => this.cell(each));
      chosen.forEach(({ place }, i) => {
        const { element } = this.ringed[i];
        element.setAttribute("aria-selected", "true");
        element.style.setProperty("--ring", this.colours.series(place));
        if (chosen.length > 1) element.dataset.letter = this.colours.letter(place);
      });
      this.current = this.cell(this.state.values);
      this.current.element.tabIndex = 0;
    }

    onClick(event) {
      const label = event.target.closest("[data-layer]");
      if (label) toggleLayer(this.state, Number(label.dataset.layer));
      const element = event.target.closest("[data-cell]");
      if (!element) return;
      const { layer, head } = this.cells[Number(element.dataset.cell)];
      const adding = event.shiftKey || event.ctrlKey || event.metaKey || this.state.values.adding;
      if (adding) toggleHead(this.state, layer, head);
      else this.state.set({ layer, head, also: [] });
    }

    onKey(event) {
      if (event.altKey || event.ctrlKey || event.metaKey) return; // the browser's own keys
      let { layer, head } = this.state.values;
      const at = this.layers.indexOf(layer);
      if (event.key === "ArrowRight") head += 1;
      else if (event.key === "ArrowLeft") head -= 1;
      else if (event.key === "ArrowDown") layer = this.layers[Math.min(this.layers.length - 1, at + 1)];
      else if (event.key === "ArrowUp") layer = this.layers[Math.max(0, at - 1)];
      else if (event.key === "Home") head = 0;
      else if (event.key === "End") head = Infinity;
      else if (event.key === " ") {
        // Kept where the cursor goes on; a second time lets go.
        event.preventDefault();
        const kept = this.state.values.also.some((each) => each.layer === layer && each.head === head);
        if (kept) toggleHead(this.state, layer, head);
        else this.state.set({ also: [...this.state.values.also, { layer, head }] });
        this.current.element.focus();
        return;
      } else if (event.key === "a") {
        toggleLayer(this.state, layer);
        return;
      } else return;
      event.preventDefault();
      head = Math.max(0, Math.min(this.counts.get(layer) - 1, head));
      this.state.set({ layer, head });
      this.current.element.focus();
    }

    // Computes every thumbnail again, in idle time, nearest layers first.
    restart(cells = this.cells) {
      if (this.cancel) this.cancel();
      this.element.classList.remove("drawn");
      const tokens = { queries: this.tokens("query"), keys: this.tokens("key") };
      const { layer } = this.state.values;
      const queue = cells.slice().sort((a, b) => Math.abs(a.layer - layer) - Math.abs(b.layer - layer));
      this.waiting = [];
      this.cancel = inIdleTime((deadline) => {
        while (queue.length > 0) {
          const cell = queue.shift();
          cell.levels = this.levels(cell, tokens);
          if (cell.levels) this.paint(cell);
          else this.waiting.push(cell);
          if (performance.now() > deadline) break;
        }
        this.element.classList.toggle("drawn", queue.length === 0 && this.waiting.length === 0);
        return queue.length === 0;
      });
    }

    // New rows have come.
    resume() {
      if (this.waiting.length > 0) this.restart(this.cells.filter((cell) => !cell.levels));
    }

    // Thumbnails are of tokens, whatever the units: hidden ones are left out.
    tokens(side) {
      const units = this.state.units(side);
      const shown = units.all.filter(({ first }) => this.state.isShown(side, first));
      return shown.flatMap(({ first, last }) => Array.from({ length: last - first + 1 }, (_, i) => first + i));
    }

    // A head's weights between shown tokens as a small picture, 0 to 255. Long texts are sampled: evenly spaced
    // queries, and for each bin of keys its largest weight, so that a single strong link stays visible.
    levels(cell, { queries, keys }) {
      const height = Math.min(THUMBNAIL, queries.length);
      const width = Math.min(THUMBNAIL, keys.length);
      const picture = new Float32Array(width * height);
      let largest = 0;
      for (let y = 0; y < height; y += 1) {
        const query = queries[Math.floor(((y + 0.5) * queries.length) / height)];
        const row = this.source.row(this.state.values.kind, cell.layer, cell.head, query);
        if (!row) return null;
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
      const ink = parseColour(this.colours.of("--query"));
      const image = new ImageData(width, height);
      for (let i = 0; i < pixels.length; i += 1) image.data.set([...ink, pixels[i]], 4 * i);
      canvas.getContext("2d").putImageData(image, 0, 0);
      return canvas;
    }

    // After a change of size or colour.
    repaint() {
      this.ratio = window.devicePixelRatio || 1;
      this.canvas.width = Math.round(this.element.clientWidth * this.ratio);
      this.canvas.height = Math.round(this.element.clientHeight * this.ratio);
      for (const cell of this.cells) this.paint(cell, true);
      this.mark();
    }
  }

  return { HeadGrid };
});
