// A change of a plan: what is unlike, and which bytes of a page now stand for something else.

/** The verdict, then causes, effects and costs, as `kvplan diff` says them. */
function changeSection({ verdict, blocks }) {
  const said = blocks.map(([heading, changes]) => [el("h3", {}, heading), el("ul", { class: "told" }, changes.map(([rule, text]) =>
    el("li", {}, text, rule ? el("span", { class: "rule" }, rule) : null)))]);
  return el("section", {}, el("h2", {}, "What changes"), el("p", {}, blocks.length ? el("strong", {}, verdict) : "Nothing: both plans mean the same."), said);
}

/** Where the first page is that differs from the other plan's, {pair, reader, layer}; null if none does. */
function firstMoved(plan, other) {
  const alike = new Map();
  for (const { pair } of plan.group_pairs) {
    for (let reader = 0; reader < plan.reads.length; reader++) {
      const decode = groupPlanes(plan, { pair, reader }).map(({ number }) => planeOf(plan, DECODE, reader, number));
      for (const place of [...decode, ...sources(plan, decode.slice(0, 1))]) {
        const key = [place.side, place.plane.page, place.plane.layer === null].join();
        if (!alike.has(key)) alike.set(key, movedCells(other, place).length);
        if (alike.get(key)) return { pair, reader, layer: place.plane.layer };
      }
    }
  }
  return null;
}

/** The cells of a place that were another coordinate, or none, in the other plan: ranges of bytes. */
function movedCells(other, place) {
  const worker = other.sides[place.side].workers[place.worker];
  const planes = worker ? other.sides[place.side].plane_lists[worker.planes] : [];
  const number = planes.findIndex((plane) => plane.name === place.plane.name);
  const cells = piecesOf(place.page);
  if (number < 0) return cells.map((cell) => [cell.lo, cell.hi]);
  const old = planeOf(other, place.side, place.worker, number);
  const same = (byte) => byte < old.page.bytes && JSON.stringify(coordinate(old, byte)) === JSON.stringify(coordinate(place, byte));
  return cells.filter((cell) => !same(cell.lo) || !same(cell.hi - 1)).map((cell) => [cell.lo, cell.hi]);
}
