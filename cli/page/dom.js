// Elements, and numbers with their units.

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element; `attrs` are attributes, but `on…` are listeners. Texts are never markup. */
function el(tag, attrs = {}, ...children) {
  return filled(document.createElement(tag), attrs, children);
}

/** An SVG element. */
function svg(tag, attrs = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attrs, children);
}

function filled(node, attrs, children) {
  for (const [name, value] of Object.entries(attrs)) {
    if (typeof value === "function") node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null));
  return node;
}

/** 16384 as `16,384`. */
function number(value) {
  return value.toLocaleString("en-US");
}

/** Bytes as `512 B`, `64 KiB`, `42.1 MiB`. */
function size(bytes) {
  const power = Math.min(Math.max(0, Math.floor(Math.log2(Math.max(bytes, 1)) / 10)), 4);
  const text = (bytes / 1024 ** power).toLocaleString("en-US", { maximumFractionDigits: 1 });
  return `${text} ${["B", "KiB", "MiB", "GiB", "TiB"][power]}`;
}

/** `1 head`, `2 heads`. */
function many(count, word) {
  return `${number(count)} ${word}${count === 1 ? "" : "s"}`;
}

/** `5`, or `4–7` with the last one in it. */
function span(first, last) {
  return first === last ? number(first) : `${number(first)}–${number(last)}`;
}

/** [0, 1, 2, 5] as `0–2, 5`. */
function ranges(numbers) {
  const found = [];
  for (const n of [...numbers].sort((a, b) => a - b)) {
    const last = found.at(-1);
    if (last && n === last[1] + 1) last[1] = n;
    else found.push([n, n]);
  }
  return found.map(([a, b]) => span(a, b)).join(", ");
}

/** A table: `head` are names, with a leading `#` where the column is of numbers; cells are texts or nodes. */
function table(head, rows) {
  const right = head.map((name) => (name.startsWith("#") ? "n" : null));
  const names = head.map((name, i) => el("th", { class: right[i], scope: "col" }, name.replace(/^#/, "")));
  const body = rows.map((row) => el("tr", {}, row.map((cell, i) => el("td", { class: right[i] }, cell ?? ""))));
  return el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, names)), el("tbody", {}, body)));
}
