/** Numbers, of which the smallest comes out first. */
export function makeHeap() {
  /** @type {number[]} */
  const tree = []; // each number is at most those at twice its place and the next
  return {
    /** @param {number} number */
    push(number) {
      let at = tree.length;
      while (at > 0) {
        const above = (at - 1) >> 1;
        if (tree[above] <= number) break;
        tree[at] = tree[above];
        at = above;
      }
      tree[at] = number;
    },

    /** @returns {number | undefined} */
    pop() {
      const [smallest] = tree;
      const last = tree.pop();
      if (tree.length === 0 || last === undefined) return smallest;
      let at = 0;
      for (let below = 1; below < tree.length; below = 2 * at + 1) {
        if (below + 1 < tree.length && tree[below + 1] < tree[below]) below++;
        if (last <= tree[below]) break;
        tree[at] = tree[below];
        at = below;
      }
      tree[at] = last;
      return smallest;
    },
  };
}
