// A page drawn to scale: rows of bytes, a path for each owner, however many bytes it has.

const MAP = { width: 470, left: 72, top: 16, most: 300, least: 34, line: 12, character: 6.2 };

/** A map's shape: pixels of a byte's row, the path of a range of bytes, and that of a box. */
function shape(page, height) {
  const rows = Math.ceil(page.bytes / page.row);
  const each = height / rows;
  const x = (byte) => MAP.left + (byte * MAP.width) / page.row;
  const box = (lo, hi, row, down = 1) => `M${r2(x(lo))} ${r2(MAP.top + row * each)}H${r2(x(hi))}v${r2(each * down)}H${r2(x(lo))}z`;
  return { rows, each, x, height, path: (lo, hi) => wrapped(page.row, lo, hi, box), box: ([lo, hi, first, end]) => box(lo, hi, first, end - first) };
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

/** A map of a place. `moved` are ranges of bytes to be marked, `on` are {point(byte), leave(), choose()}. */
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
  hit.addEventListener("pointermove", (event) => on.point(byteOf(event)));
  hit.addEventListener("pointerleave", () => on.leave());
  hit.addEventListener("click", () => on.choose());
  return { node, place, light: (parts, owner) => light(lit, drawn, parts, owner), drawn, lit };
}

/** Show ranges of bytes in the full colour of their owner; nothing where there are none. */
function light(lit, drawn, parts, owner) {
  const { style = "", ...rest } = fill(owner);
  lit.setAttribute("d", parts.map(([lo, hi]) => drawn.path(lo, hi)).join(""));
  lit.setAttribute("style", style);
  lit.setAttribute("fill-opacity", rest["fill-opacity"] ?? 0);
}

/** Padding, and over it the boxes of each owner, with edges if they are large enough. */
function paths({ page }, drawn) {
  const roomy = ([lo, hi, first, end]) => (end - first) * drawn.each > 4 && ((hi - lo) * MAP.width) / page.row > 3;
  const owned = page.owners.map((owner) => {
    const d = owner.boxes.map(drawn.box).join("");
    return [svg("path", { d, class: "under" }), svg("path", { d, class: owner.boxes.every(roomy) ? "edged" : "fine", ...fill(owner) })];
  });
  return [svg("path", { d: drawn.path(0, page.bytes), fill: "url(#hatched)" }), owned];
}

/** How an owner's bytes look; without one, padding. */
function fill(owner) {
  return owner ? { style: `fill: var(--hue${owner.hue})`, "fill-opacity": owner.strength } : { fill: "url(#hatched)" };
}

/** What begins with a row, as far as there is room; what matters most first. */
function rowLabels({ page }, drawn) {
  const taken = [];
  return page.rows.map(([row, name, index]) => {
    const y = drawn.each > MAP.line ? (row + 0.5) * drawn.each : row * drawn.each + MAP.line / 2;
    if (y > Math.max(drawn.height, MAP.line) - MAP.line / 2 + 1 || taken.some((other) => Math.abs(y - other) < MAP.line)) return null;
    taken.push(y);
    return svg("text", { x: MAP.left - 6, y: r2(MAP.top + y + 3.5), "text-anchor": "end" }, name ? `${name} ${index}` : `${number(index)} B`);
  });
}

/** What stands above the first row, as far as there is room; the numbers alone if names do not fit. */
function headLabels({ page }, drawn) {
  const wide = (text) => text.length * MAP.character;
  const rooms = page.heads.map(([lo, hi]) => ((hi - lo) * MAP.width) / page.row);
  let names = page.heads.map(([, , name, index]) => (index === null ? name : `${name} ${index}`));
  const numbered = page.heads.every(([, , , index]) => index !== null) && names.some((name, n) => wide(name) > rooms[n]);
  if (numbered) names = page.heads.map(([, , , index]) => String(index));
  const skip = numbered ? Math.max(1, Math.ceil((wide(names.at(-1)) + 4) / rooms[0])) : 1;
  const left = numbered ? [svg("text", { x: MAP.left - 6, y: MAP.top - 5, "text-anchor": "end" }, page.heads[0][2])] : [];
  return left.concat(page.heads.map(([lo, hi], n) => {
    if (n % skip || wide(names[n]) > rooms[n] * skip) return null;
    return svg("text", { x: r2((drawn.x(lo) + drawn.x(hi)) / 2), y: MAP.top - 5, "text-anchor": "middle" }, names[n]);
  }));
}

/** The tensor's name in boxes that have room for it, where they are few and it does not stand above them. */
function cellLabels({ page }, drawn) {
  const above = page.heads.every(([, , , index]) => index === null) && (!page.rows.length || page.rows[0][1]);
  const boxes = above ? [] : page.owners.flatMap((owner) => owner.boxes.map((box) => [owner, box]));
  const roomy = boxes.filter(([{ tensor }, [lo, hi, first, end]]) =>
    (end - first) * drawn.each >= 13 && drawn.x(hi) - drawn.x(lo) > 9 + MAP.character * tensor.length);
  return (roomy.length > 70 ? [] : roomy).map(([{ tensor, strength }, [lo, hi, first, end]]) => {
    const [x, y] = [(drawn.x(lo) + drawn.x(hi)) / 2, MAP.top + ((first + end) / 2) * drawn.each + 3.5];
    return svg("text", { class: strength > 0.7 ? "name" : "name tint", x: r2(x), y: r2(y), "text-anchor": "middle" }, tensor);
  });
}

/** The pattern of padding, once a page. */
function patterns() {
  const line = svg("path", { d: "M0 6L6 0M-1 1L1 -1M5 7L7 5", style: "stroke: var(--hatch)", "stroke-width": 1 });
  const pattern = svg("pattern", { id: "hatched", width: 6, height: 6, patternUnits: "userSpaceOnUse" }, line);
  return svg("svg", { width: 0, height: 0, style: "position: absolute", "aria-hidden": "true" }, svg("defs", {}, pattern));
}
