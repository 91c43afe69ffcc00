// Equations as they are printed: whoever works one out from its printed numbers gets its printed result, or it says "≈".

// The first of some ways to print an equation in which it holds; where there is none, `otherwise`.
// said(way): the result, as text; worked(way): what comes of the printed numbers, as text.
export function printedIn(ways, said, worked, otherwise = ways.at(-1)) {
  const way = ways.find((each) => worked(each) === said(each));
  return way === undefined ? { way: otherwise, equals: "≈" } : { way, equals: "=" };
}
