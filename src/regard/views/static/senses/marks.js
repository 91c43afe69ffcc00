// A group of uses on the map: its colour and its shape, so that it is told apart without the colour.

const SHAPES = [
  "M-1 0A1 1 0 1 0 1 0A1 1 0 1 0-1 0Z", // circle
  "M-.9-.9H.9V.9H-.9Z", // square
  "M0-1.15L1.1.85H-1.1Z", // triangle
  "M0-1.25L1.25 0L0 1.25L-1.25 0Z", // diamond
  "M0 1.15L-1.1-.85H1.1Z", // triangle on its head
  "M-.4-1.1H.4V-.4H1.1V.4H.4V1.1H-.4V.4H-1.1V-.4H-.4Z", // plus
  "M0-1.2L1.14-.37L.7.97H-.7L-1.14-.37Z", // pentagon
  "M-1.2-.55H1.2V.55H-1.2Z", // bar
];

export const UNSURE = "unsure";

// The place of a group among the others: { d, colour, hollow }; `unsure` has a ring without a colour.
export function markOf(groups, name, colours) {
  if (name === UNSURE) return { d: SHAPES[0], colour: colours.of("--soft"), hollow: true };
  const at = groups.findIndex(({ sense }) => sense === name);
  return { d: SHAPES[at % SHAPES.length], colour: colours.sentence(at), hollow: false };
}
