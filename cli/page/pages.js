// Both sides' pages beside each other: what lies where, and where each piece comes from.

const MOST_MAPS = 6; // on a side; where there are more the first one follows what is pointed at
const MOST_HEIGHT = 640; // of a side, in pixels

/**
 * The section of a plan's pages, shown first `at` {pair, reader, layer}. If there is an `other` plan, what differs from it is
 * marked. Returns {node, show(reader)}.
 */
function pagesSection(plan, { title, other = null, at = null }) {
  const stage = el("div", { class: "stage" });
  const readout = el("div", { class: "readout", role: "status", "aria-live": "polite" });
  const legend = el("div", { class: "legend" });
  const bar = el("div", { class: "bar" });
  const state = at ?? { pair: plan.group_pairs[0]?.pair, reader: 0, layer: null };
  const view = { plan, other, state, stage, readout, maps: [], pinned: false, at: null };
  const node = el("section", {},
    el("h2", {}, title),
    el("p", { class: "quiet" }, "One page of one plane on either side, the first kernel block of a request, bytes to one scale, in order from left to right and row by row. ",
      "Point at a piece, or go through a page with the arrow keys, to see its coordinate and where it comes from; Enter keeps it, Escape lets it go."),
    bar, legend, readout, stage);
  const set = (name, value) => {
    state[name] = value;
    bar.replaceChildren(...controls(view, set));
    drawStage(view);
    legend.replaceChildren(...legendOf(plan, view));
    if (name === "reader") node.dispatchEvent(new CustomEvent("reader", { detail: value }));
  };
  set("reader", state.reader);
  return { node, show: (reader) => set("reader", reader) };
}

/** Which group, decode worker and layer are shown. */
function controls({ plan, state }, set) {
  const pairs = plan.group_pairs.map((pair) => el("option", { value: pair.pair, selected: pair.pair === state.pair }, pair.pair));
  const layers = layersOf(plan, state);
  if (!layers.includes(state.layer)) state.layer = layers[0] ?? null;
  const numbers = layers.map((n) => el("option", { value: n, selected: n === state.layer }, String(n)));
  const last = plan.reads.length - 1;
  const reader = el("input", { name: "reader", type: "number", min: 0, max: last, value: state.reader,
    onchange: (event) => set("reader", Math.min(last, Math.max(0, Number(event.target.value) || 0))) });
  const found = [
    el("label", {}, "group", el("select", { name: "pair", onchange: (event) => set("pair", event.target.value) }, pairs)),
    el("label", {}, `decode worker, 0–${last}`, reader),
  ];
  return layers.length ? [...found, el("label", {}, "layer", el("select", { name: "layer", onchange: (event) => set("layer", Number(event.target.value)) }, numbers))] : found;
}

/** The layers that a decode worker has planes of their own for. */
function layersOf(plan, state) {
  const found = groupPlanes(plan, state).map(({ plane }) => plane.layer).filter((layer) => layer !== null);
  return [...new Set(found)].sort((a, b) => a - b);
}

/** The planes of the decode worker that the pair writes, by number. */
function groupPlanes(plan, state) {
  const pair = plan.group_pairs.find((each) => each.pair === state.pair);
  const worker = plan.sides[DECODE].workers[state.reader];
  const planes = plan.sides[DECODE].plane_lists[worker.planes].map((plane, number) => ({ plane, number }));
  const caches = new Set(plan.reads[state.reader].filter((read) => read.pair === state.pair).map((read) => read.cache));
  return planes.filter(({ plane }) => plane.group === pair?.decode && (!caches.size || caches.has(plan.sides[DECODE].pages[plane.page].cache)));
}

function drawStage(view) {
  const { plan, state } = view;
  const targets = groupPlanes(plan, state).filter(({ plane }) => plane.layer === null || plane.layer === state.layer);
  const decode = targets.map(({ number }) => planeOf(plan, DECODE, state.reader, number));
  const every = [sources(plan, decode), decode];
  const shown = every.map((places) => places.slice(0, MOST_MAPS));
  view.scale = scaleOf(shown);
  view.maps = shown.flat().map((place) => mapOf(view, place));
  view.follow = every.map((places, side) => (places.length > MOST_MAPS ? view.maps.find((map) => map.place.side === side) : null));
  view.links = svg("svg", { class: "links", "aria-hidden": "true" });
  view.stage.replaceChildren(column(view, PREFILL, every[PREFILL].length), column(view, DECODE, every[DECODE].length), view.links);
  leave(view);
}

/** One side: its maps, and what is not drawn to scale or not at all. */
function column(view, side, total) {
  const maps = view.maps.filter((map) => map.place.side === side);
  const small = maps.some((map) => map.place.page.bytes * view.scale < MAP.least);
  const notes = [
    total > MOST_MAPS ? `${many(total, "page")}; ${MOST_MAPS} are drawn, the first one follows what is pointed at.` : null,
    small ? "The smallest pages are drawn higher than to scale." : null,
    total ? null : "Nothing is read for these pages by this worker.",
  ];
  return el("div", { class: "side" },
    el("h3", {}, `${ROLES[side]}  `, el("span", { class: "quiet mono" }, view.plan.sides[side].side)),
    maps.map((map) => map.figure), notes.filter(Boolean).map((note) => el("p", { class: "quiet" }, note)));
}

/** Pixels of a map's height for a byte, on both sides. */
function scaleOf(shown) {
  const most = Math.max(1, ...shown.flat().map((place) => place.page.bytes));
  const sums = shown.map((places) => places.reduce((sum, place) => sum + place.page.bytes, 0));
  return Math.min(MAP.most / most, MOST_HEIGHT / Math.max(1, ...sums));
}

/** Draw the page that a piece comes from in the place of the first one, where it is not drawn. */
function follow(view, side, partner) {
  const drawn = view.maps.some((map) => map.place.side === side && map.place.worker === partner.worker && map.place.number === partner.number);
  const old = view.follow[side];
  if (drawn || !old) return;
  const map = mapOf(view, planeOf(view.plan, side, partner.worker, partner.number));
  old.figure.replaceWith(map.figure);
  view.maps[view.maps.indexOf(old)] = map;
  view.follow[side] = map;
}

/** The prefill pages that the decode pages come from, in the order of workers and planes. */
function sources(plan, decode) {
  const found = new Map();
  for (const place of decode) {
    for (const placed of placedIn(plan, place.worker, DECODE, place.worker, place.number)) {
      if (!tokenTurns(plan, placed, place, placed.read.worker).length) continue;
      found.set(`${placed.read.worker}.${placed.there[0]}`, [placed.read.worker, placed.there[0]]);
    }
  }
  const order = [...found.values()].sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  return order.map(([worker, number]) => planeOf(plan, PREFILL, worker, number));
}

function mapOf(view, place) {
  const height = Math.max(MAP.least, Math.round(place.page.bytes * view.scale));
  const moved = view.other ? movedCells(view.other, place) : [];
  const map = drawMap(place, height, moved, {
    point: (byte) => { if (!view.pinned) point(view, map, byte); },
    leave: () => { if (!view.pinned && document.activeElement !== map.node) leave(view); },
    choose: () => { view.pinned = !view.pinned; map.node.focus({ preventScroll: true }); },
  });
  const apart = place.page.stride === place.page.bytes ? "" : `, blocks ${number(place.page.stride)} B apart`;
  const row = Math.ceil(place.page.bytes / place.page.row) > 1 ? `, a row is ${number(place.page.row)} B` : "";
  const bytes = moved.reduce((sum, [lo, hi]) => sum + hi - lo, 0);
  const change = view.other ? `, ${bytes ? `${number(bytes)} B differ` : "as in the other plan"}` : "";
  const said = ` · ${place.plane.name} · ${number(place.page.bytes)} B${apart}${row}${change}`;
  map.figure = el("figure", {}, el("figcaption", {}, el("strong", {}, `worker ${place.worker}`), said), map.node);
  map.node.addEventListener("focus", () => { if (view.at?.map !== map) point(view, map, 0); });
  map.node.addEventListener("keydown", (event) => keys(view, map, event));
  return map;
}

function keys(view, map, event) {
  const { bytes, row } = map.place.page;
  const { lo, hi } = pieceAt(map.place.page, view.at?.map === map ? view.at.byte : 0);
  const moves = { ArrowRight: () => hi, ArrowLeft: () => lo - 1, ArrowDown: () => lo + row, ArrowUp: () => lo - row, Home: () => 0, End: () => bytes - 1 };
  if (event.key === "Enter" || event.key === " ") view.pinned = !view.pinned;
  else if (event.key === "Escape") { view.pinned = false; leave(view); }
  else if (moves[event.key]) point(view, map, pieceAt(map.place.page, Math.max(0, Math.min(bytes - 1, moves[event.key]()))).lo);
  else return;
  event.preventDefault();
}

/** Light up the piece that has a byte, and what it comes from or goes to. */
function point(view, map, byte) {
  const piece = pieceAt(map.place.page, byte);
  const known = view.at?.map === map && view.at.piece.lo === piece.lo;
  view.at = { map, piece, byte };
  if (known) return sayByte(view, map, byte);
  const spans = piece.tensor ? partners(view.plan, view.state.reader, map.place, piece.lo, piece.hi) : [];
  const whole = joined(spans);
  if (whole.length) follow(view, 1 - map.place.side, whole[0]);
  const owner = ownerAt(map.place.page, piece.lo);
  for (const other of view.maps) {
    const there = whole.filter((each) => other.place.side !== map.place.side && each.worker === other.place.worker && each.number === other.place.number);
    other.light(other === map ? [[piece.lo, piece.hi]] : there.map((each) => [each.lo, each.hi]), owner);
  }
  view.stage.classList.add("dim");
  link(view, map, whole);
  say(view, map, piece, spans, whole);
  sayByte(view, map, byte);
}

function leave(view) {
  view.at = null;
  view.pinned = false;
  view.maps.forEach((map) => map.light([]));
  view.stage.classList.remove("dim");
  view.links.replaceChildren();
  view.readout.replaceChildren(el("div", { class: "quiet" }, "prefill"), el("div", { class: "quiet" }, "decode"));
}

/** A line from the piece to each of the first pages that it meets. */
function link(view, map, whole) {
  const box = view.stage.getBoundingClientRect();
  const middle = (node, right) => {
    const at = node.getBoundingClientRect();
    return [(right ? at.right : at.left) - box.left, (at.top + at.bottom) / 2 - box.top];
  };
  const met = view.maps.filter((other) => other !== map && whole.some((each) => other.place.side !== map.place.side && each.worker === other.place.worker && each.number === other.place.number));
  view.links.replaceChildren(...met.slice(0, 8).map((other) => {
    const [left, right] = map.place.side === PREFILL ? [map, other] : [other, map];
    const [x1, y1] = middle(left.lit, true);
    const [x2, y2] = middle(right.lit, false);
    const bend = Math.max(30, (x2 - x1) / 2);
    return svg("path", { d: `M${r2(x1)} ${r2(y1)}C${r2(x1 + bend)} ${r2(y1)} ${r2(x2 - bend)} ${r2(y2)} ${r2(x2)} ${r2(y2)}` });
  }));
}

/** The piece and its partners in words, prefill to the left. */
function say(view, map, piece, spans, whole) {
  const own = el("div", {}, el("strong", {}, words(map.place, piece)), el("br"),
    el("span", { class: "quiet" }, `worker ${map.place.worker} · ${map.place.plane.name} · bytes ${span(piece.lo, piece.hi - 1)}, ${number(piece.hi - piece.lo)} B`));
  const other = el("div", {}, ...partnerWords(view, map, piece, spans, whole));
  view.readout.replaceChildren(...(map.place.side === PREFILL ? [own, other] : [other, own]));
}

/** The one byte that is pointed at, on both sides. */
function sayByte(view, map, byte) {
  const { side } = map.place;
  const partner = partners(view.plan, view.state.reader, map.place, byte, byte + 1)[0];
  const other = partner && planeOf(view.plan, 1 - side, partner.worker, partner.number);
  const text = [byteWords(map.place, byte), partner ? byteWords(other, partner.lo, partner.block) : ""];
  [...view.readout.children].forEach((node, n) => {
    node.querySelector(".byte")?.remove();
    node.append(el("div", { class: "byte quiet" }, text[n === side ? 0 : 1]));
  });
}

function byteWords(place, byte, block = 0) {
  const at = coordinate(place, byte, block);
  if (!at) return `byte ${number(byte)}: padding`;
  const axes = Object.entries(at).filter(([name]) => name !== "cache" && name !== "tensor");
  return `byte ${number(byte)}: ${at.tensor} ${axes.map(([name, index]) => `${name} ${number(index)}`).join(" ")}`;
}

function partnerWords(view, map, piece, spans, whole) {
  if (!piece.tensor) return [el("span", { class: "quiet" }, "padding is not read")];
  if (!whole.length) return [el("span", { class: "quiet" }, unread(view, map, piece))];
  const side = 1 - map.place.side;
  const where = whole[0];
  const place = planeOf(view.plan, side, where.worker, where.number);
  const more = whole.length > 1 ? ` and ${many(whole.length - 1, "more place")}` : "";
  const block = where.block ? `, the request's kernel block ${where.block}` : "";
  const inSpans = spans.length > 1 ? `, in ${many(spans.length, "span")}` : "";
  const head = words(place, { ...pieceAt(place.page, where.lo), lo: where.lo, hi: where.hi }, where.block);
  return [el("strong", {}, head), el("br"), el("span", { class: "quiet" },
    `worker ${where.worker} · ${place.plane.name} · bytes ${span(where.lo, where.hi - 1)}${more}${inSpans}${block}`)];
}

/** Why a piece has no partner: who else reads it, or that it is read with other tokens. */
function unread(view, map, piece) {
  const { plan, state } = view;
  if (map.place.side === DECODE) return "not written by this plan";
  const readers = plan.reads.map((_, reader) => reader).filter((reader) => reader !== state.reader && partners(plan, reader, map.place, piece.lo, piece.hi).length);
  return readers.length ? `decode worker ${state.reader} does not read this; ${readers.length > 1 ? "workers" : "worker"} ${ranges(readers)} do${readers.length > 1 ? "" : "es"}` : "no decode worker reads this";
}

/** A swatch for each part of the split axes, for each tensor, and for padding where there is any. */
function legendOf(plan, view) {
  const caches = new Set(view.maps.map((map) => map.place.page.cache));
  const pages = plan.sides.flatMap((side) => side.pages).filter((page) => caches.has(page.cache));
  const owners = pages.flatMap((page) => page.owners);
  const tensors = new Map(owners.map((owner) => [owner.tensor, owner]));
  const parts = new Map();
  for (const { hue, part } of owners.filter((owner) => owner.part)) parts.set(hue, new Set([...(parts.get(hue) ?? []), part]));
  const hues = [...parts].sort(([a], [b]) => a - b).map(([hue, names]) => swatch({ hue, strength: 1 }, [...names].join(", ")));
  const shades = [...tensors].map(([name, owner]) => swatch(owner.part ? { shade: owner.strength } : owner, name));
  const holes = pages.some((page) => page.cells.reduce((sum, cells) => sum + cells.loops.reduce((n, [count]) => n * count, cells.bytes), 0) < page.bytes);
  return [...hues, ...(hues.length && tensors.size < 2 ? [] : shades), ...(holes ? [swatch(null, "padding")] : [])];
}

function swatch(owner, text) {
  const look = owner?.shade ? { style: "fill: var(--text)", "fill-opacity": owner.shade * 0.75 } : fill(owner);
  const box = svg("rect", { width: 12, height: 12, rx: 2, ...look });
  return el("span", {}, svg("svg", { width: 12, height: 12 }, box), text);
}
