// The lines between the two columns of tokens. A canvas as high as what is in view, never as the text:
// drawing costs the same for 10 tokens and for 10,000.

const LEVELS = 20;
const MOST_LINES = 4000; // in the overview; beyond it the thinnest are left out
const FLOOR = 0.004; // a thinner line of the overview would be invisible
const ROW_FLOOR = 0.0005;

class LineCanvas {
  constructor(className) {
    this.canvas = make("canvas", { class: className, "aria-hidden": "true" });
    this.context = this.canvas.getContext("2d");
  }

  resize(width, height) {
    // A canvas beyond 32,767 pixels stays empty: a long text on paper is drawn more coarsely.
    const ratio = Math.min(window.devicePixelRatio || 1, 32000 / height);
    this.canvas.width = Math.max(1, Math.round(width * ratio));
    this.canvas.height = Math.max(1, Math.round(height * ratio));
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.drawn = false;
    this.width = width;
    this.height = height;
  }

  // Not what is empty: Chromium prints the recorded steps, and on paper a cleared part wipes what is below it.
  clear() {
    if (this.drawn) this.context.clearRect(0, 0, this.width, this.height);
    this.drawn = false;
  }

  // lines: [y on the left, y on the right, weight] in a flat array; colour as CSS text.
  // One path per level of strength: the canvas strokes a path much faster than its lines one by one.
  // `faint` is for the overview, where hundreds of lines lie over each other.
  draw(lines, color, { faint = false } = {}) {
    this.clear();
    this.drawn = true;
    const paths = new Array(LEVELS + 1).fill(null);
    const middle = this.width / 2;
    for (let i = 0; i < lines.length; i += 3) {
      const level = Math.max(1, Math.round(LEVELS * Math.sqrt(Math.min(1, lines[i + 2]))));
      const path = (paths[level] = paths[level] || new Path2D());
      path.moveTo(0, lines[i]);
      path.bezierCurveTo(middle, lines[i], middle, lines[i + 1], this.width, lines[i + 1]);
    }
    // A fan of 500 thin lines would add up to a solid wedge.
    const least = 0.16 * Math.min(1, Math.sqrt(90 / lines.length));
    const { context } = this;
    context.strokeStyle = color;
    context.lineCap = "round";
    paths.forEach((path, level) => {
      if (!path) return;
      const weight = (level / LEVELS) ** 2;
      context.globalAlpha = faint ? 0.05 + 0.95 * weight ** 0.65 : least + (1 - least) * weight ** 0.5;
      context.lineWidth = faint ? 0.6 + 1.9 * weight : 0.8 + 3.2 * weight;
      context.stroke(path);
    });
    context.globalAlpha = 1;
  }
}

// Keeps the `most` strongest of the lines; says which weight is the smallest that was kept.
function strongestLines(lines, most) {
  if (lines.length <= 3 * most) return { lines, floor: FLOOR };
  const weights = [];
  for (let i = 2; i < lines.length; i += 3) weights.push(lines[i]);
  const floor = Float64Array.from(weights).sort()[weights.length - most];
  const kept = [];
  for (let i = 0; i < lines.length; i += 3) {
    if (lines[i + 2] >= floor) kept.push(lines[i], lines[i + 1], lines[i + 2]);
  }
  return { lines: kept, floor };
}
