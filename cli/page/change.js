// A change of a plan: what is unlike, and which bytes of a page now stand for something else.

/** [before, after] of a change in words, and the table of all. */
function changeSection(changes) {
  const rows = changes.map(([about, where, before, after]) => [about, where, before ?? "–", after ?? "–"]);
  return el("section", {}, el("h2", {}, "What changes"),
    rows.length ? table(["about", "where", "before", "after"], rows) : el("p", {}, "Nothing: both plans mean the same."));
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
