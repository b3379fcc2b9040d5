// The timeline: one lane a rank or a group of ranks, marks by role, the stuck collective as spans.
// Values come from the page's #timeline-data, places from timeline_layout.js, words for marks from the event table.
"use strict";

function startTimeline(words, go) {
  const box = document.getElementById("chart");
  const panel = document.getElementById("chart-panel");
  const tip = document.getElementById("chart-tip");
  const range = document.getElementById("chart-range");
  const aloud = document.getElementById("chart-aloud");
  const data = JSON.parse(document.getElementById("timeline-data").textContent);
  const chart = echarts.init(box, null, { renderer: "canvas" });

  const ROLE_TONE = { cause: "red", either: "amber", symptom: "blue", pointer: "violet", progress: "green" };
  const FATE_TONE = { origin: "red", timed_out: "blue", peer_lost: "violet", silent: "amber", finished: "green" };
  const FATE_SIGN = { origin: "✕", timed_out: "W", peer_lost: "L", torn_down: "S", silent: "…", finished: "✓", not_started: "–" };
  const QUIET_ROLES = ["context", "noise"];
  const ROW = 24, MOST_ROWS = 26;

  const marks = data.marks.map(([key, time, role, row, hollow, error], index) => ({ key, time, role: data.roles[role], row, hollow, error, index }));
  const shown = new Set(data.roles.filter((role) => !QUIET_ROLES.includes(role)));
  let byClock = data.clock, folded = data.lanes.length > 0;
  let lanes = [], placed = [], spans = [], alive = [], extent = [0, 1];
  let selected = null;

  let palette = new Map();
  function colour(name) {
    if (!palette.has(name)) palette.set(name, getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim());
    return palette.get(name);
  }
  const tone = (table, name, soft) => colour((table[name] || "grey") + (soft ? "-soft" : ""));
  const cell = (row) => (row < 0 ? null : document.getElementById("event-" + row));

  // ---------------------------------------------------------------- how it looks

  function polygon(points, fill, stroke) {
    return { type: "polygon", shape: { points }, style: { fill, stroke, lineWidth: 1.5 } };
  }

  function shapeOf(mark, x, y) {
    const stroke = tone(ROLE_TONE, mark.role), fill = mark.hollow ? colour("card") : stroke, s = 6;
    switch (mark.role) {
      case "cause": return polygon([[x, y - s - 2], [x + s + 1, y], [x, y + s + 2], [x - s - 1, y]], fill, stroke);
      case "either": return polygon([[x, y - s - 1], [x + s, y + s - 1], [x - s, y + s - 1]], fill, stroke);
      case "pointer": return polygon([[x - s + 1, y - s + 1], [x + s, y], [x - s + 1, y + s - 1]], fill, stroke);
      case "teardown": return { type: "rect", shape: { x: x - 4.5, y: y - 4.5, width: 9, height: 9 }, style: { fill, stroke, lineWidth: 1.5 } };
      case "progress": return { type: "rect", shape: { x: x - 1, y: y - 6, width: 2, height: 12 }, style: { fill: stroke } };
      case "context": return { type: "rect", shape: { x: x - 2.5, y: y - 2.5, width: 5, height: 5 }, style: { fill: stroke } };
      case "noise": return { type: "circle", shape: { cx: x, cy: y, r: 2 }, style: { fill: stroke } };
      default: return { type: "circle", shape: { cx: x, cy: y, r: 5 }, style: { fill, stroke, lineWidth: 1.5 } };
    }
  }

  // On which side of a mark its name has room: 1 right, -1 left, 0 none.
  function roomFor(mark, x, api, area) {
    const room = widthOf(mark.label) + 30;
    const right = Math.min(mark.next === Infinity ? Infinity : api.coord([mark.next, mark.lane])[0], area.x + area.width);
    const left = Math.max(mark.last === -Infinity ? -Infinity : api.coord([mark.last, mark.lane])[0], area.x);
    return right - x > room ? 1 : x - left > room ? -1 : 0;
  }

  function drawMark(params, api) {
    const mark = placed[params.dataIndex];
    const [x, y] = api.coord([mark.x, mark.lane]);
    const shape = shapeOf(mark, x, y);
    // a generous invisible target makes a two-pixel tick easy to hit
    const children = [{ type: "circle", shape: { cx: x, cy: y, r: 9 }, style: { fill: "transparent" } }, shape];
    if (data.leads[mark.row]) children.push({ type: "circle", silent: true, shape: { cx: x, cy: y, r: 10.5 }, style: { fill: "none", stroke: colour("red"), lineWidth: 1.25 } });
    const side = mark.label ? roomFor(mark, x, api, params.coordSys) : 0;
    if (side) {
      children.push({ type: "text", style: { x: x + side * 15, y, textAlign: side < 0 ? "right" : "left", text: mark.label, fill: colour("red"), stroke: colour("card"), lineWidth: 3, font: "600 12px system-ui, sans-serif", textVerticalAlign: "middle" } });
    }
    return { type: "group", children };
  }

  function bar(api, params, from, to, lane, height, style) {
    const [left, y] = api.coord([from, lane]), right = api.coord([to, lane])[0], area = params.coordSys;
    const x = Math.max(left, area.x), width = Math.min(right, area.x + area.width) - x;
    if (width < 0) return null;
    return { type: "rect", shape: { x, y: y - height / 2, width: Math.max(width, 1.5), height, r: 2 }, style };
  }

  function drawAlive(params, api) {
    const [from, to, lane] = alive[params.dataIndex];
    const fate = lanes[lane].fate;
    return bar(api, params, from, to, lane, 5, { fill: tone(FATE_TONE, fate, true), stroke: tone(FATE_TONE, fate), lineWidth: 0.75 });
  }

  function drawSpan(params, api) {
    const span = spans[params.dataIndex];
    const style = { fill: colour("blue-soft"), stroke: colour("blue"), lineWidth: 1.25, lineDash: span.unsure ? [4, 3] : null };
    const shape = bar(api, params, span.from, span.to, span.lane, 15, style);
    if (!shape) return null;
    const text = span.label + " · " + lasting(span.to - span.from);
    if (shape.shape.width < text.length * 6.2 + 20) return shape;
    const middle = { x: shape.shape.x + shape.shape.width / 2, y: shape.shape.y + 8 };
    return { type: "group", children: [shape, { type: "text", silent: true, style: { ...middle, text, fill: colour("ink"), font: "11px system-ui, sans-serif", textAlign: "center", textVerticalAlign: "middle" } }] };
  }

  function drawCursor(params, api) {
    const [x, y] = api.coord([selected.x, selected.lane]);
    return { type: "circle", silent: true, shape: { cx: x, cy: y, r: 11 }, style: { fill: "none", stroke: colour("focus"), lineWidth: 2.5 } };
  }

  const pen = document.createElement("canvas").getContext("2d");
  const SIGN_ROOM = 26;

  function widthOf(text) {
    pen.font = "12px sans-serif";
    return pen.measureText(text).width;
  }

  function fit(text, room) {
    if (widthOf(text) <= room) return text;
    let most = text.length;
    while (most > 1 && widthOf(text.slice(0, most) + "…") > room) most -= 1;
    return text.slice(0, most) + "…";
  }

  // How wide the lanes' names are, as far as the chart has room for them.
  function labelRoom(width) {
    const widest = lanes.reduce((most, lane) => Math.max(most, widthOf(lane.label) + (lane.note ? widthOf(lane.note) + 8 : 0)), 0);
    return Math.min(Math.max(widest + SIGN_ROOM + 8, 64), Math.max(width * 0.3, 96));
  }

  function laneLabel(place, room) {
    const lane = lanes[place];
    if (!lane) return "";
    // the label is a little language of its own to the chart: its braces and bars must not come from a log
    const plain = (text) => text.replace(/[{}|\n]/g, " ");
    const label = fit(lane.label, room - SIGN_ROOM), left = room - SIGN_ROOM - widthOf(label) - 8;
    const note = lane.note && left > 44 ? `{note|${plain(fit(lane.note, left))}} ` : "";
    const sign = lane.fate ? `{${lane.fate}|${FATE_SIGN[lane.fate] || "?"}} ` : "";
    return `${note}{${lane.fate === "origin" ? "guilty" : "label"}|${plain(label)}} ${sign}`;
  }

  function labelStyles() {
    const styles = { label: { color: colour("ink"), fontSize: 12 }, note: { color: colour("quiet"), fontSize: 11 }, guilty: { color: colour("red"), fontSize: 12, fontWeight: "bold" } };
    for (const fate of data.fates) {
      styles[fate] = { color: tone(FATE_TONE, fate), backgroundColor: tone(FATE_TONE, fate, true), borderRadius: 3, padding: [2, 4], fontSize: 10, fontWeight: "bold", width: 10, align: "center" };
    }
    return styles;
  }

  function clockText(ms, fine) {
    return new Date(ms).toISOString().slice(11, fine ? 23 : 19);
  }

  function lasting(ms) {
    const seconds = ms / 1000;
    if (seconds < 60) return seconds.toFixed(1) + " s";
    return seconds < 3600 ? Math.floor(seconds / 60) + " min " + String(Math.round(seconds % 60)).padStart(2, "0") + " s" : (seconds / 3600).toFixed(1) + " h";
  }

  function timeLines([from, to]) {
    if (!byClock) return [];
    const side = (x) => (x - from > (to - from) * 0.85 ? "right" : x - from < (to - from) * 0.15 ? "left" : "center");
    return data.moments.map(([time, name, kind], place) => ({
      xAxis: data.start + time / 1000,
      lineStyle: { color: colour(kind), type: "dashed", width: 1 },
      // two lines of names, so that moments close to each other can both be read
      label: { formatter: name, position: "start", color: colour("quiet"), fontSize: 11, distance: place % 2 ? 16 : 3, align: side(data.start + time / 1000) },
    }));
  }

  // ---------------------------------------------------------------- drawing

  function draw(keepWindow) {
    const width = box.clientWidth, narrow = width < 600;
    const before = keepWindow ? windowNow() : null;
    palette = new Map();
    ({ lanes, placed, alive, spans, extent } = layOutTimeline(data, marks, words, { byClock, folded, shown }));
    const rows = Math.min(lanes.length, narrow ? 16 : MOST_ROWS), scrolls = lanes.length > rows;
    const room = labelRoom(width);
    const height = rows * ROW + 114;
    box.style.height = height + "px";
    chart.resize();
    const guilty = Math.max(lanes.findIndex((lane) => lane.fate === "origin"), 0);
    const top = Math.min(Math.max(guilty - 4, 0), lanes.length - rows);
    const view = before || opening();
    chart.setOption({
      useUTC: true,
      animation: false,
      grid: { left: room + 12, right: scrolls ? 30 : 14, top: 36, bottom: 70 },
      axisPointer: { show: byClock, triggerTooltip: false },
      xAxis: {
        type: byClock ? "time" : "value",
        min: extent[0],
        max: extent[1],
        minInterval: byClock ? 0 : 1,
        splitNumber: Math.max(Math.floor((width - room) / 110), 2),
        axisLine: { lineStyle: { color: colour("edge") } },
        axisLabel: { color: colour("quiet"), hideOverlap: true, ...(byClock ? {} : { showMinLabel: false, showMaxLabel: false }) },
        splitLine: { show: true, lineStyle: { color: colour("rule") } },
        axisPointer: { show: byClock, snap: false, lineStyle: { color: colour("edge"), type: "dotted" }, label: { show: true, backgroundColor: colour("ink"), color: colour("card"), formatter: ({ value }) => clockText(value, true) } },
      },
      yAxis: {
        type: "category",
        inverse: true,
        data: lanes.map((_, place) => String(place)),
        axisLine: { show: false },
        axisTick: { show: false },
        splitLine: { show: true, interval: 0, lineStyle: { color: colour("rule"), opacity: 0.6 } },
        axisLabel: { interval: 0, formatter: (place) => laneLabel(Number(place), room), rich: labelStyles() },
        axisPointer: { show: false },
      },
      dataZoom: [
        { id: "x", type: "inside", xAxisIndex: 0, filterMode: "weakFilter", startValue: view[0], endValue: view[1], zoomOnMouseWheel: "ctrl", moveOnMouseWheel: false, minValueSpan: byClock ? 2 : 1 },
        { id: "xs", type: "slider", xAxisIndex: 0, filterMode: "weakFilter", startValue: view[0], endValue: view[1], height: 20, bottom: 8, showDetail: false, brushSelect: false, minValueSpan: byClock ? 2 : 1, ...sliderColours() },
        ...(scrolls ? [
          { id: "y", type: "inside", yAxisIndex: 0, filterMode: "weakFilter", startValue: top, endValue: top + rows - 1, zoomLock: true, zoomOnMouseWheel: false, moveOnMouseWheel: "shift" },
          { id: "ys", type: "slider", yAxisIndex: 0, filterMode: "weakFilter", startValue: top, endValue: top + rows - 1, zoomLock: true, width: 14, right: 4, showDetail: false, brushSelect: false, ...sliderColours() },
        ] : []),
      ],
      series: [
        { type: "custom", id: "alive", z: 1, silent: true, clip: true, renderItem: drawAlive, encode: { x: [0, 1], y: 2 }, data: alive },
        { type: "custom", id: "spans", z: 2, clip: true, renderItem: drawSpan, encode: { x: [0, 1], y: 2 }, data: spans.map((span) => [span.from, span.to, span.lane]) },
        { type: "custom", id: "marks", z: 3, clip: true, renderItem: drawMark, encode: { x: 0, y: 1 }, data: placed.map((mark) => [mark.x, mark.lane]), markLine: { symbol: "none", silent: true, animation: false, data: timeLines(view) } },
        { type: "custom", id: "cursor", z: 4, clip: true, renderItem: drawCursor, encode: { x: 0, y: 1 }, data: selected ? [[selected.x, selected.lane]] : [] },
      ],
    }, { notMerge: true });
    tellRange();
  }

  function sliderColours() {
    return {
      borderColor: colour("rule"), backgroundColor: "transparent", fillerColor: colour("blue") + "26", handleStyle: { color: colour("card"), borderColor: colour("edge") },
      moveHandleStyle: { color: colour("edge") }, dataBackground: { lineStyle: { opacity: 0 }, areaStyle: { opacity: 0 } }, selectedDataBackground: { lineStyle: { opacity: 0 }, areaStyle: { opacity: 0 } },
    };
  }

  const opening = () => (byClock && data.window ? data.window.map((time) => data.start + time / 1000) : extent);

  function windowNow() {
    const zoom = (chart.getOption()?.dataZoom || []).find((item) => item.id === "x");
    return zoom ? [zoom.startValue, zoom.endValue] : null;
  }

  function zoomTo(from, to) {
    const length = Math.min(to - from, extent[1] - extent[0]);
    const start = Math.min(Math.max(from, extent[0]), extent[1] - length);
    chart.dispatchAction({ type: "dataZoom", dataZoomId: "x", startValue: start, endValue: start + length });
    chart.dispatchAction({ type: "dataZoom", dataZoomId: "xs", startValue: start, endValue: start + length });
  }

  const ZOOMS = {
    in: ([from, to]) => [from + (to - from) * 0.25, to - (to - from) * 0.25],
    out: ([from, to]) => [from - (to - from) * 0.5, to + (to - from) * 0.5],
    left: ([from, to]) => [from - (to - from) * 0.3, to - (to - from) * 0.3],
    right: ([from, to]) => [from + (to - from) * 0.3, to + (to - from) * 0.3],
    incident: () => opening(),
    all: () => extent,
  };

  function tellRange() {
    const now = windowNow();
    if (!now) return;
    range.textContent = byClock ? words.showing.replace("{from}", clockText(now[0], true)).replace("{to}", clockText(now[1], true)) : words.order;
    range.dataset.from = now[0];
    range.dataset.to = now[1];
  }

  // ---------------------------------------------------------------- hover, click, keys

  function line(className, text) {
    const part = document.createElement("p");
    part.className = className;
    part.textContent = text;
    return part;
  }

  function place(x, lane) {
    return chart.convertToPixel({ xAxisIndex: 0, yAxisIndex: 0 }, [x, lane]);
  }

  function showTip(x, lane, parts) {
    const [left, top] = place(x, lane);
    tip.replaceChildren(...parts);
    tip.hidden = false;
    const room = panel.clientWidth - tip.offsetWidth - 8, below = box.offsetTop + top + 20;
    tip.style.left = Math.max(8, Math.min(box.offsetLeft + left - 24, room)) + "px";
    tip.style.top = (below + tip.offsetHeight > panel.clientHeight ? Math.max(box.offsetTop + top - tip.offsetHeight - 16, 4) : below) + "px";
  }

  function markTip(mark) {
    const row = cell(mark.row), parts = [];
    const head = document.createElement("p");
    if (row) head.append(row.cells[2].firstElementChild.cloneNode(true));
    const who = mark.key >= 0 ? (mark.count > 1 ? lanes[mark.lane].label : words.rank + " " + mark.key) : lanes[mark.lane].label;
    const when = mark.time === null ? "" : (mark.hollow ? "~" : "") + clockText(data.start + mark.time / 1000, true) + (mark.error >= 50 ? " ± " + lasting(mark.error) : "");
    head.append((row ? " · " : "") + [who, when, row?.dataset.category, mark.count > 1 ? "× " + mark.count : ""].filter(Boolean).join(" · "));
    parts.push(head);
    if (row) {
      parts.push(line("said log", row.querySelector(".said").textContent), line("quiet log", row.querySelector(".place").textContent));
      const alike = Number(row.dataset.count);
      if (alike > 1) parts.push(line("quiet", words.alike.replace("{count}", alike.toLocaleString("en"))));
    } else parts.push(line("quiet", words.unplaced));
    const others = placed.filter((other) => other !== mark && other.lane === mark.lane && Math.abs(place(other.x, other.lane)[0] - place(mark.x, mark.lane)[0]) < 7).length;
    if (others) parts.push(line("quiet", words.here.replace("{count}", others)));
    const target = data.leads[mark.row] || (row ? row.id : "");
    if (target && matchMedia("(pointer: coarse)").matches) {
      const link = document.createElement("a");
      link.href = "#" + target;
      link.textContent = words.open;
      parts.push(link);
    }
    return parts;
  }

  function spanTip(span) {
    const said = words.waiting.replace("{seconds}", lasting(span.to - span.from)).replace("{operation}", span.label);
    const parts = [line("", lanes[span.lane].label + " " + said), line("quiet", clockText(span.from, true) + " – " + clockText(span.to, true))];
    if (span.unsure) parts.push(line("quiet", words.unsure));
    return parts;
  }

  function open(row) {
    const target = data.leads[row] || (row >= 0 ? "event-" + row : "");
    if (target) go(target);
  }

  const hideTip = () => { tip.hidden = true; };
  chart.on("mouseover", ({ seriesId, dataIndex }) => {
    if (seriesId === "marks") showTip(placed[dataIndex].x, placed[dataIndex].lane, markTip(placed[dataIndex]));
    if (seriesId === "spans") {
      const span = spans[dataIndex], [from, to] = windowNow();
      showTip((Math.max(span.from, from) + Math.min(span.to, to)) / 2, span.lane, spanTip(span));
    }
  });
  chart.on("mouseout", hideTip);
  chart.on("click", ({ seriesId, dataIndex, event }) => {
    if (event?.event?.pointerType === "touch" || matchMedia("(pointer: coarse)").matches) return;
    if (seriesId === "marks") open(placed[dataIndex].row);
    if (seriesId === "spans") open(spans[dataIndex].row);
  });
  chart.on("datazoom", () => {
    hideTip();
    tellRange();
  });

  function select(mark) {
    selected = mark;
    chart.setOption({ series: [{ id: "cursor", data: mark ? [[mark.x, mark.lane]] : [] }] });
    if (!mark) return hideTip();
    const now = windowNow(), length = now[1] - now[0];
    if (mark.x < now[0] || mark.x > now[1]) zoomTo(mark.x - length / 2, mark.x + length / 2);
    const lanesNow = chart.getOption().dataZoom.find((item) => item.id === "y");
    if (lanesNow && (mark.lane < lanesNow.startValue || mark.lane > lanesNow.endValue)) {
      const rows = lanesNow.endValue - lanesNow.startValue, top = Math.min(Math.max(mark.lane - 4, 0), lanes.length - 1 - rows);
      for (const id of ["y", "ys"]) chart.dispatchAction({ type: "dataZoom", dataZoomId: id, startValue: top, endValue: top + rows });
    }
    showTip(mark.x, mark.lane, markTip(mark));
    aloud.textContent = [...tip.children].map((part) => part.textContent).join(". ");
  }

  function step(by, sameLane) {
    const order = [...placed].sort((a, b) => (sameLane ? a.lane - b.lane : 0) || a.x - b.x || a.index - b.index);
    if (!order.length) return;
    const first = order.findIndex((mark) => mark.label), at = selected ? order.findIndex((mark) => mark.index === selected.index) : -1;
    if (at < 0) return select(order[Math.max(first, 0)]);
    if (!sameLane) return select(order[Math.min(Math.max(at + by, 0), order.length - 1)]);
    const other = order.filter((mark) => (by > 0 ? mark.lane > selected.lane : mark.lane < selected.lane));
    const lane = by > 0 ? other[0]?.lane : other[other.length - 1]?.lane;
    const near = other.filter((mark) => mark.lane === lane).sort((a, b) => Math.abs(a.x - selected.x) - Math.abs(b.x - selected.x))[0];
    if (near) select(near);
  }

  const KEYS = {
    ArrowRight: () => step(1), ArrowLeft: () => step(-1), ArrowDown: () => step(1, true), ArrowUp: () => step(-1, true),
    "+": () => zoomTo(...ZOOMS.in(windowNow())), "=": () => zoomTo(...ZOOMS.in(windowNow())), "-": () => zoomTo(...ZOOMS.out(windowNow())), 0: () => zoomTo(...extent),
    Enter: () => selected && open(selected.row), Escape: () => select(null),
  };
  box.addEventListener("keydown", (event) => {
    if (!KEYS[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    KEYS[event.key]();
  });
  box.addEventListener("blur", () => select(null));

  // ---------------------------------------------------------------- buttons

  function press(name, value) {
    for (const button of panel.querySelectorAll(`[data-${name}]`)) button.setAttribute("aria-pressed", String(button.dataset[name] === value));
  }

  panel.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    const { chart: zoom, axis, lanes: kind, role } = button.dataset;
    if (zoom) return zoomTo(...ZOOMS[zoom](windowNow()));
    selected = null;
    hideTip();
    if (axis) {
      byClock = axis === "clock";
      press("axis", axis);
    }
    if (kind) {
      folded = kind === "folded";
      press("lanes", kind);
    }
    if (role) {
      if (!shown.delete(role)) shown.add(role);
      button.setAttribute("aria-pressed", String(shown.has(role)));
    }
    draw(Boolean(role));
  });

  press("axis", byClock ? "clock" : "order");
  panel.querySelector("[data-axis=clock]").disabled = marks.every((mark) => mark.time === null);
  let known = box.clientWidth;
  new ResizeObserver(() => {
    if (box.clientWidth === known) return;
    known = box.clientWidth;
    draw(true);
  }).observe(box);
  draw(false);
  return () => draw(true);
}
