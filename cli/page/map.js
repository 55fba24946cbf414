// A page drawn to scale: rows of bytes, a path for each colour, however many cells there are.

const MAP = { width: 470, left: 62, top: 16, most: 300, least: 34 };

/** A map's shape: pixels of a byte's row, and the path of a range of bytes. */
function shape(page, height) {
  const rows = Math.ceil(page.bytes / page.row);
  const each = height / rows;
  const x = (byte) => MAP.left + (byte * MAP.width) / page.row;
  const box = (lo, hi, row, down = 1) => `M${r2(x(lo))} ${r2(MAP.top + row * each)}H${r2(x(hi))}v${r2(each * down)}H${r2(x(lo))}z`;
  return { rows, each, x, height, path: (lo, hi) => wrapped(page.row, lo, hi, box) };
}

function r2(n) {
  return Math.round(n * 100) / 100;
}

/** A range of bytes as boxes: the rest of its first row, whole rows, the beginning of its last one. */
function wrapped(row, lo, hi, box) {
  const [first, last] = [Math.floor(lo / row), Math.floor((hi - 1) / row)];
  if (first === last) return box(lo - first * row, hi - first * row, first);
  const head = lo % row ? box(lo % row, row, first) : "";
  const tail = hi % row ? box(0, hi % row, last) : "";
  const [from, to] = [head ? first + 1 : first, tail ? last : last + 1];
  return head + (to > from ? box(0, row, from, to - from) : "") + tail;
}

/** A map of a place. `moved` are ranges of bytes to be marked, `on` are {point(cell number, byte), leave(), choose()}. */
function drawMap(place, height, moved, on) {
  const { page } = place;
  const drawn = shape(page, height);
  const size = { w: MAP.left + MAP.width + 2, h: MAP.top + height + 2 };
  const hit = svg("rect", { class: "hit", x: MAP.left, y: MAP.top, width: MAP.width, height });
  const lit = svg("path", { class: "lit", d: "" });
  const node = svg("svg", {
    class: "map", viewBox: `0 0 ${size.w} ${size.h}`, tabindex: 0, role: "application",
    "aria-label": `${ROLES[place.side]} worker ${place.worker}, page of ${place.plane.name}, ${number(page.bytes)} bytes: arrow keys go from piece to piece`,
  });
  node.append(
    svg("g", { class: "cells" }, paths(place, drawn)),
    svg("rect", { class: "frame", x: MAP.left, y: MAP.top, width: MAP.width, height }),
    moved.length ? svg("path", { class: "moved", d: moved.map(([lo, hi]) => drawn.path(lo, hi)).join("") }) : "",
    svg("g", {}, rowLabels(place, drawn), headLabels(place, drawn), cellLabels(place, drawn)),
    lit, hit,
  );
  const byteOf = (event) => {
    const box = hit.getBoundingClientRect();
    const row = Math.min(drawn.rows - 1, Math.max(0, Math.floor(((event.clientY - box.top) / box.height) * drawn.rows)));
    const at = Math.min(page.row - 1, Math.max(0, Math.floor(((event.clientX - box.left) / box.width) * page.row)));
    return Math.min(page.bytes - 1, row * page.row + at);
  };
  hit.addEventListener("pointermove", (event) => { const byte = byteOf(event); on.point(cellAt(page, byte), byte); });
  hit.addEventListener("pointerleave", () => on.leave());
  hit.addEventListener("click", () => on.choose());
  return { node, place, light: (parts, key) => light(lit, drawn, parts, key), drawn, lit };
}

/** Show ranges of bytes in their full colour, `key`; nothing where there are none. */
function light(lit, drawn, parts, key = "padding") {
  const { style = "", ...rest } = fill(key);
  lit.setAttribute("d", parts.map(([lo, hi]) => drawn.path(lo, hi)).join(""));
  lit.setAttribute("style", style);
  lit.setAttribute("fill-opacity", rest["fill-opacity"] ?? 0);
}

/** The cells of one colour as one path, and those too small for an edge as another. */
function paths(place, drawn) {
  const found = new Map();
  for (const cell of cellsOf(place.page)) {
    const edged = drawn.each > 4 && ((cell.hi - cell.lo) * MAP.width) / place.page.row > 3;
    const key = `${cell.sort < 0 ? "padding" : colour(place, cell).join()}|${edged ? "edged" : "fine"}`;
    if (!found.has(key)) found.set(key, []);
    found.get(key).push(drawn.path(cell.lo, cell.hi));
  }
  return [...found].map(([key, d]) => svg("path", { d: d.join(""), class: key.split("|")[1], ...fill(key.split("|")[0]) }));
}

function fill(key) {
  if (key === "padding") return { fill: "url(#hatched)" };
  const [hue, strength] = key.split(",");
  return { style: `fill: var(--hue${hue})`, "fill-opacity": strength };
}

/** What a row is, where rows are turns of a loop: `head 2`; otherwise the byte that it begins at. */
function rowLabels(place, drawn) {
  const { page } = place;
  const skip = Math.ceil(11 / drawn.each);
  const found = [];
  for (let row = 0; row < drawn.rows; row += skip) {
    const y = MAP.top + row * drawn.each + Math.min(drawn.each / 2, 9) + 3.5;
    found.push(svg("text", { x: MAP.left - 6, y: r2(y), "text-anchor": "end" }, rowName(place, row * page.row)));
  }
  return drawn.rows > 1 ? found : [];
}

function rowName(place, byte) {
  const cell = cellsOf(place.page)[cellAt(place.page, byte)];
  const loops = cell.sort < 0 ? [] : place.page.cells[cell.sort].loops.filter(([, , step]) => step >= place.page.row);
  const whole = cell.sort >= 0 && cell.lo === byte && loops.length;
  if (!whole) return `${number(byte)} B`;
  const at = coordinate(place, cell.lo);
  const axis = loops.at(-1)[0].split("/")[0];
  return `${axis} ${at[axis]}`;
}

/** Above the first row: the turns of the outermost loop inside a row. */
function headLabels(place, drawn) {
  const { page } = place;
  const parts = [];
  for (const cell of cellsOf(page).filter((each) => each.lo < page.row)) {
    const name = headName(place, cell);
    if (parts.at(-1)?.name === name) parts.at(-1).hi = Math.min(cell.hi, page.row);
    else parts.push({ name, lo: cell.lo, hi: Math.min(cell.hi, page.row) });
  }
  const wide = drawn.x(parts[0].hi) - drawn.x(parts[0].lo);
  const axis = parts.length > 1 && parts[0].name.includes(" ") && parts.some((part) => part.name.length * 6.2 > wide) ? parts[0].name.split(" ")[0] : null;
  const texts = parts.map((part) => (axis ? part.name.split(" ").at(-1) : part.name));
  const skip = axis ? Math.ceil((Math.max(...texts.map((text) => text.length)) * 6.2 + 4) / wide) : 1;
  const left = axis ? [svg("text", { x: MAP.left - 6, y: MAP.top - 5, "text-anchor": "end" }, axis)] : [];
  return left.concat(parts.map((part, n) => {
    const room = (drawn.x(part.hi) - drawn.x(part.lo)) * skip;
    if (n % skip || texts[n].length * 6 > room) return null;
    return svg("text", { x: r2((drawn.x(part.lo) + drawn.x(part.hi)) / 2), y: MAP.top - 5, "text-anchor": "middle" }, texts[n]);
  }));
}

function headName(place, cell) {
  if (cell.sort < 0) return "padding";
  const loop = place.page.cells[cell.sort].loops.find(([, , step]) => step < place.page.row);
  const axis = loop?.[0].split("/")[0];
  return axis && place.page.row % loop[2] === 0 ? `${axis} ${coordinate(place, cell.lo)[axis]}` : place.page.cells[cell.sort].tensors.join("+");
}

/** The tensor's name in cells that have room for it, where they are few. */
function cellLabels(place, drawn) {
  const { page } = place;
  if (page.views.some((view) => headName(place, cellsOf(page)[0]) === view.tensor) && drawn.rows > 1 && page.row * drawn.rows === page.bytes) return [];
  const roomy = cellsOf(page).filter((cell) => cell.sort >= 0 && widest(page, drawn, cell).wide > 9 + 6 * page.cells[cell.sort].tensors.join("+").length);
  if (drawn.each < 13 || roomy.length > 70) return [];
  return roomy.map((cell) => {
    const { row, lo, hi } = widest(page, drawn, cell);
    const y = MAP.top + (row + 0.5) * drawn.each + 3.5;
    const x = (drawn.x(lo) + drawn.x(hi)) / 2;
    return svg("text", { class: colour(place, cell)[1] > 0.7 ? "name" : "name tint", x: r2(x), y: r2(y), "text-anchor": "middle" }, page.cells[cell.sort].tensors.join("+"));
  });
}

/** The row in which most of a cell lies, and which bytes of that row it has. */
function widest(page, drawn, cell) {
  const rows = [];
  for (let row = Math.floor(cell.lo / page.row); row <= Math.floor((cell.hi - 1) / page.row) && rows.length < 3; row++) {
    const [lo, hi] = [Math.max(0, cell.lo - row * page.row), Math.min(page.row, cell.hi - row * page.row)];
    rows.push({ row, lo, hi, wide: drawn.x(hi) - drawn.x(lo) });
  }
  return rows.reduce((a, b) => (b.wide > a.wide ? b : a));
}

/** The pattern of padding, once a page. */
function patterns() {
  const line = svg("path", { d: "M0 6L6 0M-1 1L1 -1M5 7L7 5", style: "stroke: var(--hatch)", "stroke-width": 1 });
  const pattern = svg("pattern", { id: "hatched", width: 6, height: 6, patternUnits: "userSpaceOnUse" }, line);
  return svg("svg", { width: 0, height: 0, style: "position: absolute", "aria-hidden": "true" }, svg("defs", {}, pattern));
}
