// The plan's spans: which bytes of which page on the other side a byte belongs to.

/** What is read between a decode worker and one plane: nests placed there, {read, nest, here, there, loops}. */
function placedIn(plan, reader, side, worker, number) {
  plan.placed ??= new Map();
  const key = [reader, side, worker, number].join();
  if (!plan.placed.has(key)) plan.placed.set(key, [...placements(plan, reader, side, worker, number)]);
  return plan.placed.get(key);
}

function* placements(plan, reader, side, worker, number) {
  for (const read of plan.reads[reader]) {
    if (side === PREFILL && read.worker !== worker) continue;
    for (const nest of plan.tables[read.table]) {
      const over = nest.loops.filter(([, , ...steps]) => steps[PREFILL][0] || steps[DECODE][0]);
      const inside = nest.loops.filter((loop) => !over.includes(loop));
      for (const at of overPlanes(over, [first(read, nest, PREFILL), first(read, nest, DECODE)])) {
        if (at[side][0] === number) yield { read, nest, here: at[side], there: at[1 - side], loops: steps(inside, side) };
      }
    }
  }
}

function first(read, nest, side) {
  return [read.first[side] + nest.at[side][0], read.offset[side] + nest.at[side][1]];
}

function overPlanes(loops, at) {
  let found = [at];
  for (const [, count, ...steps] of loops) {
    const moved = (place, side, n) => [place[0] + n * steps[side][0], place[1] + n * steps[side][1]];
    found = found.flatMap((each) => Array.from({ length: count }, (_, n) => each.map((place, side) => moved(place, side, n))));
  }
  return found;
}

/** Loops as [count, step here, step there], the longest step here first. */
function steps(loops, side) {
  return loops.map(([, count, ...both]) => [count, both[side][1], both[1 - side][1]]).sort((a, b) => b[1] - a[1]);
}

/** The bytes that [lo, hi) of a place are moved from or to: [{worker, number, lo, hi, block, here, read}], as spans. */
function partners(plan, reader, place, lo, hi) {
  const found = [];
  for (const placed of placedIn(plan, reader, place.side, place.worker, place.number)) {
    const worker = place.side === DECODE ? placed.read.worker : reader;
    const emit = (from, size, to, block) => {
      const [start, end] = [Math.max(from, lo), Math.min(from + size, hi)];
      const at = to + start - from;
      found.push({ worker, number: placed.there[0], lo: at, hi: at + end - start, block, here: start, read: placed.read });
    };
    for (const turn of tokenTurns(plan, placed, place, worker)) {
      inside(placed.loops, placed.nest.bytes, placed.here[1] + turn.here, placed.there[1] + turn.there, lo, hi, (a, b) =>
        emit(a, placed.nest.bytes, b, turn.block));
    }
  }
  return found;
}

/** Spans of loops that touch [lo, hi): emit(offset here, offset there). */
function inside(loops, bytes, here, there, lo, hi, emit) {
  if (here >= hi || here + reach(loops, bytes) <= lo) return;
  if (!loops.length) return emit(here, there);
  const [[count, step, other], ...rest] = loops;
  const size = reach(rest, bytes);
  const low = step > 0 ? Math.max(0, Math.floor((lo - here - size) / step) + 1) : 0;
  const high = step > 0 ? Math.min(count - 1, Math.floor((hi - 1 - here) / step)) : count - 1;
  for (let n = low; n <= high; n++) inside(rest, bytes, here + n * step, there + n * other, lo, hi, emit);
}

function reach(loops, bytes) {
  return loops.reduce((sum, [count, step]) => sum + (count - 1) * step, bytes);
}

/**
 * The rows of tokens of a page, in kernel block 0 of a request, as offsets on both sides, with the kernel block on the
 * other one; one turn for a table of pages and for a state. Rows whose tokens another worker has are left out.
 */
function tokenTurns(plan, placed, place, worker) {
  const pair = plan.group_pairs.find((each) => each.pair === placed.read.pair);
  const other = plan.sides[1 - place.side];
  const group = other.groups.find((each) => each.name === pair[ROLES[1 - place.side]]);
  if (!group.kernel) return [{ here: 0, there: 0, block: 0 }];
  const rows = placed.nest.token ? Math.max(1, place.group.kernel / pair.rows) : 1;
  const found = [];
  for (let row = 0; row < rows; row++) {
    const local = localOf(group, other.workers[worker].shard, tokenOf(place.group, place.owner.shard, row * pair.rows));
    if (local === null) continue;
    const there = Math.floor((local % group.kernel) / pair.rows);
    found.push({ here: rowAt(placed.nest, place.side, row), there: rowAt(placed.nest, 1 - place.side, there), block: Math.floor(local / group.kernel) });
  }
  return found;
}

/** How many bytes row `row` of a page lies behind the first one. */
function rowAt(nest, side, row) {
  if (!nest.token) return 0;
  return nest.hops.reduce((sum, hop) => sum + Math.floor(row / hop[0]) * hop[1 + side], row * nest.token[side]);
}

/** Spans that follow each other in one plane as one. */
function joined(spans) {
  const found = [];
  for (const each of [...spans].sort((a, b) => a.worker - b.worker || a.number - b.number || a.block - b.block || a.lo - b.lo)) {
    const last = found.at(-1);
    const follows = last && ["worker", "number", "block"].every((name) => last[name] === each[name]) && last.hi === each.lo;
    if (follows) last.hi = each.hi;
    else found.push({ ...each });
  }
  return found;
}
