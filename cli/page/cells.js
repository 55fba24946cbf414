// A page's cells, and the coordinate of each: what the maps draw and the reader points at.

const PREFILL = 0;
const DECODE = 1;
const ROLES = ["prefill", "decode"];

/** The cells of a page in order of bytes, {lo, hi, sort}; what lies between them is padding, with sort -1. */
function cellsOf(page) {
  if (page.list) return page.list;
  const found = [];
  page.cells.forEach((cells, sort) => turns(cells.loops, cells.offset, (lo) => found.push({ lo, hi: lo + cells.bytes, sort })));
  found.sort((a, b) => a.lo - b.lo);
  page.list = [];
  let end = 0;
  for (const cell of [...found, { lo: page.bytes, hi: page.bytes, sort: -1 }]) {
    if (cell.lo > end) page.list.push({ lo: end, hi: cell.lo, sort: -1 });
    if (cell.hi > cell.lo) page.list.push(cell);
    end = Math.max(end, cell.hi);
  }
  return page.list;
}

function turns(loops, at, emit) {
  if (!loops.length) return emit(at);
  const [[, count, step], ...inner] = loops;
  for (let n = 0; n < count; n++) turns(inner, at + n * step, emit);
}

/** The number of the cell that has a byte. */
function cellAt(page, byte) {
  const cells = cellsOf(page);
  let [low, high] = [0, cells.length - 1];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (cells[middle].lo <= byte) low = middle;
    else high = middle - 1;
  }
  return low;
}

/** Index on every axis of a view, of the element that has a byte of the page, tiles added up; null where none has. */
function indices(view, byte) {
  const found = {};
  let rest = byte - view.offset;
  if (rest < 0) return null;
  for (const [name, count, step] of view.axes) {
    const turn = Math.min(Math.floor(rest / step), count - 1);
    rest -= turn * step;
    const [axis, weight] = name.split("/");
    found[axis] = (found[axis] ?? 0) + turn * Number(weight ?? 1);
  }
  return rest < view.size ? found : null;
}

/** A worker's plane with what is needed to name its bytes. */
function planeOf(plan, side, worker, number) {
  const owner = plan.sides[side].workers[worker];
  const plane = plan.sides[side].plane_lists[owner.planes][number];
  const page = plan.sides[side].pages[plane.page];
  return { side, worker, number, plane, page, owner, group: plan.sides[side].groups.find((g) => g.name === plane.group) };
}

/** The coordinate of byte `byte` of a place, in kernel block `block` of a request: {cache, tensor, layer, token, head …}. */
function coordinate(place, byte, block = 0) {
  const { page, plane, owner, group } = place;
  const view = page.views.find((each) => indices(each, byte));
  if (!view) return null;
  const found = { cache: page.cache, tensor: view.tensor, ...(plane.layer === null ? {} : { layer: plane.layer }) };
  const inside = indices(view, byte);
  for (const [axis, index] of Object.entries({ ...plane.at, ...inside })) {
    if (axis === "layer") found.layer = page.layers[index];
    else if (axis === "token") found.token = tokenOf(group, owner.shard, block * group.kernel + index * rowTokens(view, group));
    else if (!(axis in inside)) found[axis] = index;
    else found[axis] = (plane.at[axis] ?? owner.holds[page.cache]?.[axis]?.[0] ?? 0) + index;
  }
  return found;
}

/** The tokens of a row of a view's token axis. */
function rowTokens(view, group) {
  const rows = view.axes.reduce((n, [name, count]) => (name.split("/")[0] === "token" ? n * count : n), 1);
  return group.kernel ? group.kernel / rows : 1;
}

/** The token of a request that lies `local` tokens from the first one of a worker. */
function tokenOf(group, shard, local) {
  if (group.shards === 1) return local;
  const turn = Math.floor(local / group.chunk);
  return (turn * group.shards + shard) * group.chunk + (local % group.chunk);
}

/** Where a token lies on a worker: tokens from its first one, or null where another worker has it. */
function localOf(group, shard, token) {
  if (group.shards === 1) return token;
  const turn = Math.floor(token / group.chunk);
  if (turn % group.shards !== shard) return null;
  return Math.floor(turn / group.shards) * group.chunk + (token % group.chunk);
}

/** A cell's coordinate in words: `k · layer 0 · head 2 · token 5 · dim 0–127`. */
function words(place, cell, block = 0) {
  if (cell.sort < 0) return "padding";
  const { tensors } = place.page.cells[cell.sort];
  const [first, last] = [coordinate(place, cell.lo, block), coordinate(place, cell.hi - 1, block)];
  const rows = rowTokens(place.page.views.find((view) => view.tensor === first.tensor), place.group) - 1;
  const axes = Object.keys(first).filter((name) => name in last && name !== "cache" && name !== "tensor");
  return [tensors.join("+"), ...axes.map((name) => `${name} ${span(first[name], last[name] + (name === "token" ? rows : 0))}`)].join(" · ");
}

/** The colour of a cell: [hue 0–7, strength]. One hue is one part of an axis that is split over workers, on both sides. */
function colour(place, cell) {
  const { axis, extent, hues, hue, strength } = place.page.cells[cell.sort].colour;
  return [axis ? Math.floor((coordinate(place, cell.lo)[axis] * hues) / extent) : hue, strength];
}
