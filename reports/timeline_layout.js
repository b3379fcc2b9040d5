// Where on the timeline everything goes: lanes, marks, waits. Only values, nothing is drawn here.
"use strict";

// data: the page's #timeline-data. view: {byClock, folded, shown (a set of roles)}.
function layOutTimeline(data, marks, words, { byClock, folded, shown }) {
  const at = (time) => data.start + time / 1000;
  const lanes = namedLanes(data, words, folded);
  const laneOf = new Map();
  lanes.forEach((lane, place) => lane.keys.forEach((key) => laneOf.set(key, place)));
  const placed = placedMarks();
  const alive = byClock ? lives() : [];
  const spans = byClock ? waits() : [];
  return { lanes, placed, alive, spans, extent: extentOf() };

  // Like marks of a folded lane are one mark; by order, each lane counts its own marks from one.
  function placedMarks() {
    const seen = new Map(), counts = new Map(), found = [];
    for (const mark of marks) {
      if (!(shown.has(mark.role) || data.leads[mark.row]) || (byClock && mark.time === null)) continue;
      const lane = laneOf.get(mark.key);
      const alike = folded && mark.row >= 0 ? lane + "/" + mark.row : "own/" + mark.index;
      if (seen.has(alike)) {
        seen.get(alike).count += 1;
        continue;
      }
      const order = (counts.get(lane) || 0) + 1;
      counts.set(lane, order);
      const here = { ...mark, lane, x: byClock ? at(mark.time) : order, count: 1 };
      seen.set(alike, here);
      found.push(here);
    }
    // what matters most is drawn last, on top
    found.sort((a, b) => data.roles.indexOf(b.role) - data.roles.indexOf(a.role));
    nameTheFirst(found);
    return found;
  }

  // The evidence that comes first carries the category's name, where its neighbours leave room.
  function nameTheFirst(found) {
    const first = found.find((mark) => data.leads[mark.row] === "evidence-1");
    if (!first) return;
    const others = found.filter((mark) => mark.lane === first.lane && mark !== first).map((mark) => mark.x);
    first.label = data.category;
    first.next = Math.min(...others.filter((x) => x >= first.x), Infinity);
    first.last = Math.max(...others.filter((x) => x <= first.x), -Infinity);
  }

  // For each lane the first and the last line about any of its ranks: [from, to, lane].
  function lives() {
    const found = new Map();
    for (const [key, from, to] of data.alive) {
      const lane = laneOf.get(key), known = found.get(lane);
      if (known) {
        known[0] = Math.min(known[0], at(from));
        known[1] = Math.max(known[1], at(to));
      } else found.set(lane, [at(from), at(to), lane]);
    }
    return [...found.values()];
  }

  function waits() {
    const found = new Map();
    for (const [key, from, to, label, row, unsure] of data.spans) {
      const lane = laneOf.get(key), name = folded ? lane + "/" + label : found.size, known = found.get(name);
      if (known) {
        known.from = Math.min(known.from, at(from));
        known.to = Math.max(known.to, at(to));
      } else found.set(name, { lane, from: at(from), to: at(to), label: data.labels[label], row, unsure });
    }
    return [...found.values()];
  }

  function extentOf() {
    let low = Infinity, high = -Infinity;
    const take = (x) => {
      low = Math.min(low, x);
      high = Math.max(high, x);
    };
    for (const mark of placed) take(mark.x);
    for (const [from, to] of alive) [from, to].forEach(take);
    for (const span of spans) [span.from, span.to].forEach(take);
    if (low > high) [low, high] = [0, 1];
    const margin = byClock ? Math.max((high - low) * 0.03, 20) : 0.7;
    return [low - margin, high + margin];
  }
}

function namedLanes(data, words, folded) {
  const several = data.nodes.length > 1;
  const lanes = folded
    ? data.lanes.map(([label, note, fate, keys]) => ({ label, note, fate: data.fates[fate], keys }))
    : data.ranks.map((rank, place) => ({
      label: words.rank + " " + rank,
      note: several && data.node[place] >= 0 ? data.nodes[data.node[place]] : "",
      fate: data.fates[data.fate[place]],
      keys: [rank],
    }));
  data.writers.forEach((name, place) => lanes.push({ label: name, note: "", fate: "", keys: [-1 - place] }));
  return lanes;
}
