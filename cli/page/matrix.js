// What every pair of sides costs: a table as a heat map, stronger for more.

const FIGURES = {
  descriptors: { title: "descriptors", unit: "what NIXL posts in the worst case (no adjacent blocks)", text: number },
  bytes: { title: "bytes", unit: "written, over all decode workers", text: size },
  shortest_span: { title: "shortest span", unit: "bytes, before spans that follow each other are joined", text: size },
};

function matrixSections(costs, command) {
  const state = { figure: "descriptors" };
  const readout = el("p", { role: "status", "aria-live": "polite", class: "readout" }, "Point at a pair.");
  const place = el("div", { class: "scroll" });
  const buttons = Object.entries(FIGURES).map(([name, { title }]) => el("button", { type: "button", "data-figure": name, onclick: () => draw(name) }, title));
  const note = el("p", { class: "quiet" });
  const draw = (name) => {
    state.figure = name;
    buttons.forEach((button) => button.setAttribute("aria-pressed", String(button.dataset.figure === name)));
    note.textContent = `${FIGURES[name].title}: ${FIGURES[name].unit}; of one request of ${number(costs.tokens)} tokens, states included. Stronger is more, on a logarithmic scale.`;
    place.replaceChildren(matrixTable(costs, FIGURES[name], name, readout));
  };
  draw("descriptors");
  return [
    el("header", {}, el("h1", {}, costs.title), el("p", { class: "quiet mono" }, command)),
    el("section", {}, el("h2", {}, "What every pair of sides costs"), el("div", { class: "bar" }, buttons), note, readout, place),
    costs.refusals.length ? refusedSection(costs) : null,
  ].filter(Boolean);
}

function matrixTable(costs, figure, name, readout) {
  const prefills = [...new Set(costs.cells.map((cell) => cell.prefill))];
  const decodes = [...new Set(costs.cells.map((cell) => cell.decode))];
  const [rows, columns] = [shortened(prefills), shortened(decodes)];
  const known = costs.cells.map((cell) => cell[name]).filter((value) => value > 0);
  const [low, high] = [Math.log(Math.min(...known)), Math.log(Math.max(...known))];
  const strength = (value) => (high > low && value > 0 ? (Math.log(value) - low) / (high - low) : 0.3);
  const cells = new Map(costs.cells.map((cell) => [`${cell.prefill}\n${cell.decode}`, cell]));
  const body = prefills.map((prefill, row) => el("tr", {}, el("th", { scope: "row", class: "mono" }, rows.names[row]), decodes.map((decode) => {
    const cell = cells.get(`${prefill}\n${decode}`);
    const say = () => { readout.textContent = cellWords(costs, cell); };
    const look = cell.refused ? { class: "heat refused" } : { class: "heat", style: `--much: ${Math.round(8 + 62 * strength(cell[name]))}%` };
    return el("td", { ...look, tabindex: 0, onpointerenter: say, onfocus: say, onkeydown: walk }, cell.refused ?? figure.text(cell[name]));
  })));
  const head = el("tr", {}, el("th", {}, "prefill \\ decode"), columns.names.map((text) => el("th", { scope: "col", class: "mono" }, text)));
  const shared = [["prefill", rows.shared], ["decode", columns.shared]].filter(([, text]) => text).map(([side, text]) => `Every ${side} side: ${text}.`);
  return el("div", {}, shared.length ? el("p", { class: "quiet mono" }, shared.join(" ")) : null, el("table", { class: "heats" }, el("thead", {}, head), el("tbody", {}, body)));
}

/** Sides without the items that all of them have, and those. */
function shortened(sides) {
  const items = sides.map((side) => side.split(","));
  const shared = sides.length > 1 ? items[0].filter((item) => items.every((each) => each.includes(item))) : [];
  return { names: items.map((each) => each.filter((item) => !shared.includes(item)).join(",") || "defaults"), shared: shared.join(",") };
}

function cellWords(costs, cell) {
  const who = `${cell.prefill} → ${cell.decode}: `;
  if (cell.refused) {
    const why = costs.refusals.find((each) => each.code === cell.refused && each.pairs.some(([p, d]) => p === cell.prefill && d === cell.decode));
    return `${who}refused, ${cell.refused}: ${why.message}`;
  }
  return `${who}${many(cell.descriptors, "descriptor")}, ${number(cell.bytes)} B, shortest span ${number(cell.shortest_span)} B`;
}

/** Arrow keys go from pair to pair. */
function walk(event) {
  const cell = event.currentTarget;
  const row = cell.parentElement;
  const other = { ArrowRight: cell.nextElementSibling, ArrowLeft: cell.previousElementSibling,
    ArrowDown: row.nextElementSibling?.children[cell.cellIndex], ArrowUp: row.previousElementSibling?.children[cell.cellIndex] }[event.key];
  if (!other?.hasAttribute("tabindex")) return;
  event.preventDefault();
  other.focus();
}

function refusedSection(costs) {
  const rows = costs.refusals.map((each) => [each.code, each.message, each.help, many(each.pairs.length, "pair")]);
  return el("section", {}, el("h2", {}, "Refused"), table(["code", "why", "what to do", "#of"], rows));
}
