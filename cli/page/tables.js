// Tables: cost, groups, spans, and what was proved.

/** The head of a page: what it is of, and its figures, those of the plan `before` beside them where they differ. */
function headSection(plan, command, before = null) {
  const [known, old] = [factsOf(plan), before ? factsOf(before) : null];
  const facts = Object.entries(known).map(([name, value]) => {
    const changed = old && old[name] !== value;
    return el("div", {}, el("dt", {}, name), el("dd", {}, changed ? el("span", { class: "before" }, `${old[name]} → `) : null, value));
  });
  const sides = (each) => `${each.sides[PREFILL].side}  →  ${each.sides[DECODE].side}`;
  return el("header", {}, el("h1", {}, plan.title), el("p", { class: "mono" }, sides(plan)),
    before && sides(before) !== sides(plan) ? el("p", { class: "mono before" }, `before: ${sides(before)}`) : null,
    command ? el("p", { class: "quiet mono" }, command) : null, el("dl", { class: "facts" }, facts));
}

function factsOf(plan) {
  const sum = (name) => plan.moves.reduce((total, move) => total + move[name] * move.workers.length, 0);
  return {
    [`bytes per ${number(plan.tokens)} tokens`]: size(sum("bytes")), [`descriptors per ${number(plan.tokens)} tokens`]: number(sum("descriptors")),
    "prefill workers": number(plan.sides[PREFILL].workers.length), "decode workers": number(plan.reads.length),
    reads: number(plan.reads.flat().length), plan: plan.digests.plan.slice(0, 12),
  };
}

function costSection(plan) {
  const rows = plan.moves.map((move) => [
    ranges(move.workers), move.groups, number(move.reads), `${number(move.spans)} a ${move.unit}`, number(move.descriptors), number(move.bytes),
    move.store === "tokens" ? `${number(plan.tokens)} tokens` : "request",
  ]);
  return el("section", {}, el("h2", {}, "What moves"),
    el("p", { class: "quiet" }, "For each decode worker. A span is contiguous on both sides; NIXL posts one descriptor for a span, or for several that adjoin. Descriptors in the worst case (no adjacent blocks)."),
    table(["decode worker", "group", "#reads", "spans", "#descriptors", "#bytes", "per"], rows),
    plan.readings.map((said) => el("p", {}, said)));
}

function groupsSection(plan) {
  const tables = plan.sides.map((side, role) => [el("h3", {}, `${ROLES[role]} `, el("span", { class: "quiet mono" }, side.side)), table(
    ["group", "store", "#tokens of a block", "#kernel block", "over workers", "ring", "memory shared with"],
    side.groups.map((group) => [
      group.name, group.store, group.tokens ? number(group.tokens) : "–", group.kernel ? `${group.ratio} × ${number(group.kernel)}` : "–",
      group.shards > 1 ? `turns of ${group.chunk} over ${group.shards}` : "–", group.ring ? `${number(group.ring)} tokens` : "–", group.overlays.join(", ") || "–",
    ]))]);
  return el("section", {}, el("h2", {}, "Groups and workers"), tables, el("details", {}, el("summary", {}, "What each worker holds"), plan.sides.map(holders)));
}

/** Workers that hold the same are said once. */
function holders(side, role) {
  const alike = new Map();
  side.workers.forEach((worker, n) => {
    const axes = Object.entries(worker.holds).flatMap(([cache, held]) => Object.entries(held).map(([axis, [a, b]]) => `${cache} ${axis} ${b > a ? span(a, b - 1) : "none"}`));
    const text = (axes.join("; ") || "everything") + (side.groups.some((group) => group.shards > 1) ? `; turn ${worker.shard} of the tokens` : "");
    alike.set(text, [...(alike.get(text) ?? []), n]);
  });
  return [el("h3", {}, ROLES[role]), table(["worker", "holds"], [...alike].map(([text, workers]) => [ranges(workers), text]))];
}

/** The spans of one decode worker, a row for each nest. */
function spansSection(plan, reader) {
  const rows = plan.reads[reader].flatMap((read) => plan.tables[read.table].map((nest) => [
    `prefill ${read.worker}`, read.pair, layersOfRead(read), takes(read), nest.tensors.join("+"),
    number(first(read, nest, PREFILL)[1]), number(first(read, nest, DECODE)[1]), number(nest.bytes),
    nest.loops.map(([axis, count]) => `× ${many(count, axis)}`).join(" ") + (nest.token ? " × each token" : ""),
  ]));
  const head = ["from", "group", "layers", "takes", "tensors", "#prefill at, B", "#decode at, B", "#span, B", "how often"];
  return el("section", {}, el("h2", {}, `Spans of decode worker ${reader}`),
    el("details", rows.length < 40 ? { open: "" } : {}, el("summary", {}, many(rows.length, "row")), table(head, rows.slice(0, 400)),
      rows.length > 400 ? el("p", { class: "quiet" }, `… and ${many(rows.length - 400, "row")} more: kvplan explain --worker ${reader}`) : null));
}

/** `0–31`, or how many where they do not follow each other. */
function layersOfRead(read) {
  const parts = read.layers.split(", ");
  return parts.length < 5 ? read.layers.replaceAll("-", "–") : `${parts[0].split("-")[0]} … ${parts.at(-1).split("-").at(-1)}`;
}

function takes(read) {
  return Object.entries(read.holds).map(([axis, [a, b]]) => `${axis} ${span(a, b - 1)}`).join(", ") || "all of it";
}

function proofSection(plan) {
  const options = Object.entries(plan.options).map(([name, value]) => `${name} ${value}`).join(", ");
  return el("section", {}, el("h2", {}, "Proof and notes"), plan.proof ? el("p", {}, plan.proof) : null, el("p", {}, `Strategy: ${plan.strategy}.`),
    plan.notes.length ? el("ul", {}, plan.notes.map((note) => el("li", {}, note))) : null,
    plan.skipped.length ? el("p", {}, `Skipped, one side lacks it: ${plan.skipped.join(", ")}.`) : null,
    el("p", { class: "quiet mono" }, `plan ${plan.digests.plan} · model ${plan.digests.model} · ${options}`));
}
