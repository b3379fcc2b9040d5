// What makes the report pleasant: theme, copy buttons, a searchable table, links that open what they lead to.
// Every fact is in the page without it.
"use strict";

(() => {
  const root = document.documentElement;
  const words = JSON.parse(document.getElementById("words").textContent);
  const PAGE = 50;

  // No string becomes markup in this page; the chart's library may empty its own element, that is all.
  if (window.trustedTypes?.createPolicy) {
    trustedTypes.createPolicy("default", { createHTML: (text) => (text === "" ? "" : null) });
  }

  // ---------------------------------------------------------------- theme

  const themes = ["system", "light", "dark"], store = "logforensics-theme";
  const themeButton = document.querySelector(".theme");
  let redraw = () => {};

  function wear(theme) {
    if (theme === "system") delete root.dataset.theme;
    else root.dataset.theme = theme;
    themeButton.textContent = themeButton.dataset.themeWords.split("|")[themes.indexOf(theme)];
    themeButton.value = theme;
    redraw();
  }

  wear(root.dataset.theme ?? "system");
  themeButton.addEventListener("click", () => {
    const next = themes[(themes.indexOf(themeButton.value) + 1) % themes.length];
    wear(next);
    try {
      localStorage.setItem(store, next);
    } catch {
      // then it holds for this view only
    }
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => redraw());
  addEventListener("beforeprint", () => {
    root.dataset.theme = "light";
    redraw();
  });
  addEventListener("afterprint", () => wear(themeButton.value));

  // ---------------------------------------------------------------- copying

  function copied(button) {
    const before = button.textContent;
    button.textContent = button.dataset.copied;
    setTimeout(() => { button.textContent = before; }, 1500);
  }

  for (const button of document.querySelectorAll(".copy")) {
    const code = button.previousElementSibling;
    button.addEventListener("click", () => {
      const mark = () => getSelection().selectAllChildren(code);
      if (!navigator.clipboard) return mark();
      navigator.clipboard.writeText(code.textContent).then(() => copied(button), mark);
    });
  }

  // ---------------------------------------------------------------- the event table

  const rows = [...document.querySelectorAll("tr.event")];
  const filter = document.querySelector(".filter");
  const more = document.querySelector(".more");
  const roles = new Set(rows.map((row) => row.dataset.role));
  const texts = new Map();
  let limit = PAGE;

  const ranges = (text) => [...text.matchAll(/(\d+)(?:\s*-\s*(\d+))?/g)].map(([, from, to]) => [Number(from), Number(to ?? from)]);

  function textOf(row) {
    if (!texts.has(row)) texts.set(row, row.textContent.toLowerCase());
    return texts.get(row);
  }

  function fits(row, words, wanted, category) {
    if (!roles.has(row.dataset.role) || (category && row.dataset.category !== category)) return false;
    if (wanted.length && !ranges(row.dataset.ranks).some(([a, b]) => wanted.some(([c, d]) => a <= d && c <= b))) return false;
    return words.every((word) => textOf(row).includes(word));
  }

  function sift() {
    const words = filter.elements.text.value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = ranges(filter.elements.rank.value), category = filter.elements.category.value;
    let found = 0;
    for (const row of rows) {
      const fit = fits(row, words, wanted, category);
      row.hidden = !(fit && found < limit);
      found += fit;
    }
    const status = filter.querySelector(".range");
    status.textContent = status.dataset.found.replace("{found}", Math.min(found, limit).toLocaleString("en") + (found > limit ? " / " + found.toLocaleString("en") : "")).replace("{total}", rows.length.toLocaleString("en"));
    more.hidden = found <= limit;
  }

  function again() {
    limit = PAGE;
    sift();
  }

  function everything() {
    filter.reset();
    for (const chip of filter.querySelectorAll("[data-filter-role]")) {
      roles.add(chip.dataset.filterRole);
      chip.setAttribute("aria-pressed", "true");
    }
  }

  if (filter) {
    let waiting = 0;
    filter.addEventListener("input", () => {
      clearTimeout(waiting);
      waiting = setTimeout(again, 80);
    });
    filter.addEventListener("submit", (event) => event.preventDefault());
    filter.addEventListener("click", (event) => {
      const chip = event.target.closest("[data-filter-role]");
      if (!chip) return;
      const role = chip.dataset.filterRole;
      if (!roles.delete(role)) roles.add(role);
      chip.setAttribute("aria-pressed", String(roles.has(role)));
      again();
    });
    more.addEventListener("click", () => {
      limit += PAGE * 4;
      sift();
    });
    sift();
  }

  // ---------------------------------------------------------------- links that open what they lead to

  let last = null;

  function show(id) {
    const target = document.getElementById(id);
    if (!target) return;
    if (target.matches("tr.event") && target.hidden) {
      everything();
      limit = Math.max(limit, rows.indexOf(target) + 10);
      sift();
    }
    target.closest("details")?.setAttribute("open", "");
    last?.classList.remove("shown");
    if (target.matches("tr, figure")) {
      last = target;
      target.classList.add("shown");
      target.scrollIntoView({ block: "center" });
      target.focus({ preventScroll: true });
    }
  }

  function go(id) {
    if (location.hash === "#" + id) show(id);
    else location.hash = id;
  }

  addEventListener("hashchange", () => show(location.hash.slice(1)));
  document.addEventListener("click", (event) => {
    const link = event.target.closest('a[href^="#"]');
    if (link && link.hash === location.hash) show(link.hash.slice(1));
  });
  if (location.hash) show(location.hash.slice(1));

  // ---------------------------------------------------------------- where in the report the reader is

  const entries = new Map([...document.querySelectorAll(".contents a")].map((link) => [link.hash.slice(1), link]));
  const seen = new Set();
  const watch = new IntersectionObserver((changes) => {
    for (const { target, isIntersecting } of changes) {
      if (isIntersecting) seen.add(target.id);
      else seen.delete(target.id);
    }
    const first = [...entries.keys()].find((id) => seen.has(id));
    for (const [id, link] of entries) {
      if (id === first) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
  }, { rootMargin: "-10% 0px -60% 0px" });
  for (const id of entries.keys()) watch.observe(document.getElementById(id));

  if (document.getElementById("chart")) redraw = startTimeline(words, go);
  root.dataset.ready = Math.round(performance.now());
})();
