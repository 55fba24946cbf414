// The pieces of a page that a reader points at, and the coordinate of each byte.

const PREFILL = 0;
const DECODE = 1;
const ROLES = ["prefill", "decode"];

/** The piece that has a byte, {lo, hi, tensor}; of padding, which is of no tensor, all that lies together. */
function pieceAt(page, byte) {
  let [lo, hi] = [0, page.bytes];
  for (const { tensor, offset, bytes, loops } of page.cells) {
    const [before, after] = around(loops, offset, byte);
    if (before !== null && byte < before + bytes) return { lo: before, hi: before + bytes, tensor };
    if (before !== null) lo = Math.max(lo, before + bytes);
    if (after !== null) hi = Math.min(hi, after);
  }
  return { lo, hi, tensor: null };
}

/** Where the last turn begins that does not begin after a byte, and the first one that does; null if there is none. */
function around(loops, at, byte) {
  if (byte < at) return [null, at];
  if (!loops.length) return [at, null];
  const [[count, step], ...inner] = loops;
  const turn = Math.min(count - 1, Math.floor((byte - at) / step));
  const [before, after] = around(inner, at + turn * step, byte);
  return [before, after ?? (turn + 1 < count ? at + (turn + 1) * step : null)];
}

/** Every piece of a page that is of a tensor, in order. */
function piecesOf(page) {
  const found = [];
  for (let at = 0; at < page.bytes; at = found.at(-1).hi) found.push(pieceAt(page, at));
  return found.filter((piece) => piece.tensor);
}

/** The owner of a byte, {tensor, part, hue, strength}; null if it is padding. */
function ownerAt(page, byte) {
  const [row, at] = [Math.floor(byte / page.row), byte % page.row];
  return page.owners.find(({ boxes }) => boxes.some(([lo, hi, first, end]) => lo <= at && at < hi && first <= row && row < end)) ?? null;
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

/** A piece's coordinate in words: `k · layer 0 · head 2 · token 5 · dim 0–127`. */
function words(place, piece, block = 0) {
  if (!piece.tensor) return "padding";
  const [first, last] = [coordinate(place, piece.lo, block), coordinate(place, piece.hi - 1, block)];
  const rows = rowTokens(place.page.views.find((view) => view.tensor === first.tensor), place.group) - 1;
  const axes = Object.keys(first).filter((name) => name in last && name !== "cache" && name !== "tensor");
  return [piece.tensor, ...axes.map((name) => `${name} ${span(first[name], last[name] + (name === "token" ? rows : 0))}`)].join(" · ");
}
