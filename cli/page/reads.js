// Who reads whom: a square for each decode worker and prefill worker, stronger for more bytes.

const SQUARE = { most: 46, least: 7, room: 620, left: 84, top: 46, steps: 5 };

/** Bytes and descriptors by pair of workers: a map from `prefill,decode` to {bytes, descriptors, caches}. */
function edges(plan) {
  const found = new Map();
  plan.reads.forEach((reads, decode) => {
    for (const read of reads) {
      const edge = found.get(`${read.worker},${decode}`) ?? { bytes: 0, descriptors: 0, caches: new Map() };
      edge.bytes += read.bytes;
      edge.descriptors += read.descriptors;
      edge.caches.set(read.cache, (edge.caches.get(read.cache) ?? 0) + read.bytes);
      found.set(`${read.worker},${decode}`, edge);
    }
  });
  return found;
}

/** The section; `choose(decode worker)` is called where a square is chosen. */
function readsSection(plan, choose) {
  const known = edges(plan);
  const told = new Set(plan.tells.flatMap((workers, decode) => workers.map((prefill) => `${prefill},${decode}`)));
  const readout = el("p", { role: "status", "aria-live": "polite" });
  const grid = readsGrid(plan, known, told, readout, choose);
  return el("section", { "aria-labelledby": "reads" },
    el("h2", { id: "reads" }, "Who reads whom"),
    el("p", { class: "quiet" }, `Bytes that a decode worker reads from a prefill worker, of ${number(plan.tokens)} tokens, states included. `,
      told.size ? "Dashed: only told that the decode worker is done, nothing is read." : "No prefill worker is only told that a decode worker is done: each that is told is read from, too."),
    el("div", { class: "reading" }, grid, el("div", {}, readout, contract(plan))));
}

function readsGrid(plan, known, told, readout, choose) {
  const [rows, columns] = [plan.sides[PREFILL].workers.length, plan.reads.length];
  const each = Math.max(SQUARE.least, Math.min(SQUARE.most, Math.floor(SQUARE.room / Math.max(rows, columns))));
  const at = (row, column) => [SQUARE.left + column * each, SQUARE.top + row * each];
  const box = ([x, y], inset = 1) => `M${x + inset} ${y + inset}h${each - 2 * inset}v${each - 2 * inset}h${2 * inset - each}z`;
  const most = Math.max(1, ...[...known.values()].map((edge) => edge.bytes));
  const heat = Array.from({ length: SQUARE.steps }, () => []);
  for (const [key, edge] of known) {
    const step = Math.min(SQUARE.steps - 1, Math.floor((edge.bytes / most) * SQUARE.steps * 0.999));
    heat[step].push(box(at(...key.split(",").map(Number))));
  }
  const dashes = [...told].filter((key) => !known.has(key)).map((key) => box(at(...key.split(",").map(Number)), each > 12 ? each / 4 : 1.5));
  const here = svg("path", { class: "here", d: "" });
  const node = svg("svg", {
    class: "grid", viewBox: `0 0 ${SQUARE.left + columns * each + 4} ${SQUARE.top + rows * each + 4}`, width: SQUARE.left + columns * each + 4,
    tabindex: 0, role: "application", "aria-label": "who reads whom: arrow keys go from worker to worker, Enter shows the decode worker's pages",
  }, heat.map((d, step) => svg("path", { class: "heat", d: d.join(""), "fill-opacity": 0.25 + (0.65 * (step + 1)) / SQUARE.steps })),
  svg("path", { class: "told", d: dashes.join("") }), gridLabels(rows, columns, each), values(known, at, each), here);
  const state = { row: 0, column: 0 };
  const select = (row, column) => {
    Object.assign(state, { row: Math.max(0, Math.min(rows - 1, row)), column: Math.max(0, Math.min(columns - 1, column)) });
    here.setAttribute("d", box(at(state.row, state.column), 0));
    readout.textContent = edgeWords(known.get(`${state.row},${state.column}`), told.has(`${state.row},${state.column}`), state);
  };
  const where = (event) => {
    const view = node.getBoundingClientRect();
    const scale = (SQUARE.left + columns * each + 4) / view.width;
    return [Math.floor(((event.clientY - view.top) * scale - SQUARE.top) / each), Math.floor(((event.clientX - view.left) * scale - SQUARE.left) / each)];
  };
  node.addEventListener("pointermove", (event) => select(...where(event)));
  node.addEventListener("focus", () => select(state.row, state.column));
  node.addEventListener("click", (event) => { select(...where(event)); choose(state.column); });
  node.addEventListener("keydown", (event) => {
    const move = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
    if (move) select(state.row + move[0], state.column + move[1]);
    else if (event.key === "Enter") choose(state.column);
    else return;
    event.preventDefault();
  });
  readout.textContent = "Point at a square.";
  return node;
}

function gridLabels(rows, columns, each) {
  const skip = Math.ceil(20 / each);
  const found = [
    svg("text", { x: SQUARE.left, y: 14 }, "decode worker"),
    svg("text", { x: SQUARE.left - 28, y: SQUARE.top - 6, "text-anchor": "end" }, "prefill"),
  ];
  for (let n = 0; n < columns; n += skip) found.push(svg("text", { x: SQUARE.left + (n + 0.5) * each, y: SQUARE.top - 6, "text-anchor": "middle" }, String(n)));
  for (let n = 0; n < rows; n += skip) found.push(svg("text", { x: SQUARE.left - 8, y: SQUARE.top + (n + 0.5) * each + 4, "text-anchor": "end" }, String(n)));
  return found;
}

/** Bytes in the squares where there is room. */
function values(known, at, each) {
  if (each < 36) return [];
  return [...known].map(([key, edge]) => {
    const [x, y] = at(...key.split(",").map(Number));
    const [count, unit] = size(edge.bytes).split(" ");
    const line = (text, dy) => svg("text", { class: "value", x: x + each / 2, y: y + each / 2 + dy, "text-anchor": "middle" }, text);
    return [line(count, -1), line(unit, 11)];
  }).flat();
}

function edgeWords(edge, told, { row, column }) {
  const who = `decode ${column} ← prefill ${row}`;
  if (!edge) return `${who}: ${told ? "told only that it is done" : "nothing"}`;
  const caches = [...edge.caches].map(([cache, bytes]) => `${cache} ${size(bytes)}`).join(", ");
  return `${who}: ${number(edge.bytes)} B, ${many(edge.descriptors, "descriptor")}${edge.caches.size > 1 ? ` (${caches})` : ""}`;
}

/** How many notifications each prefill worker waits for. */
function contract(plan) {
  const waits = new Map();
  for (const [worker, count] of Object.entries(plan.notifications)) waits.set(count, [...(waits.get(count) ?? []), Number(worker)]);
  return el("div", {}, el("h3", {}, "Contract"), table(["prefill worker", "#waits for"], [...waits].map(([count, workers]) => [ranges(workers), many(count, "notification")])));
}
