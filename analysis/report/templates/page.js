"use strict";
(function () {
  const page = JSON.parse(document.getElementById("page-data").textContent);
  const root = document.documentElement;
  const wantsDark = matchMedia("(prefers-color-scheme: dark)");
  const keep = { get(k) { try { return localStorage.getItem(k); } catch { return null; } }, set(k, v) { try { localStorage.setItem(k, v); } catch { /* file:// may forbid it */ } } };
  let theme = keep.get("fedtune-theme") || (wantsDark.matches ? "dark" : "light");

  // Colours: exact swaps from the light palette to the dark one, also inside rgba(…).
  const numbers = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)).join(",");
  const swaps = new Map(), swapsRgba = new Map();
  for (const [name, light] of Object.entries(page.light)) { swaps.set(light, page.dark[name]); swapsRgba.set(numbers(light), numbers(page.dark[name])); }
  function swapped(value) {
    if (typeof value === "string") {
      if (swaps.has(value)) return swaps.get(value);
      const m = /^rgba\((\d+,\d+,\d+),(.+)\)$/.exec(value);
      return m && swapsRgba.has(m[1]) ? `rgba(${swapsRgba.get(m[1])},${m[2]})` : value;
    }
    if (Array.isArray(value)) return value.map(swapped);
    if (value && typeof value === "object") return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, swapped(v)]));
    return value;
  }
  function assign(layout, path, value) {
    const steps = path.replace(/\[(\d+)\]/g, ".$1").split(".");
    let at = layout;
    for (const step of steps.slice(0, -1)) at = at[step] ?? (at[step] = {});
    at[steps.at(-1)] = value;
  }

  let printing = false;
  const sized = (div) => narrow(div) ? "narrow" : printing || div.parentElement.clientWidth < 900 ? "middle" : "wide";
  const narrow = (div) => !printing && div.parentElement.clientWidth < 640;
  const config = { responsive: true, displaylogo: false, modeBarButtons: [["toImage"], ["zoom2d", "pan2d"], ["zoomIn2d", "zoomOut2d", "resetScale2d"]], toImageButtonOptions: { format: "svg" } };
  const drawn = new Map(), tables = [];
  function draw(div) {
    const least = ((page.figures[div.dataset.figure].layout.meta || {}).least) || 0;
    // On paper nothing can be scrolled: what is wider is made smaller as a whole.
    div.style.minWidth = `${least}px`;
    div.style.zoom = printing && least > PAPER ? PAPER / least : "";
    const source = page.figures[div.dataset.figure];
    const figure = structuredClone(source);
    const layout = figure.layout;
    const small = narrow(div), size = sized(div);
    for (const [path, value] of Object.entries((layout.meta || {})[size] || {})) assign(layout, path, value);
    layout.dragmode = small ? false : layout.dragmode || "zoom";
    const dark = theme === "dark" && !printing;
    const shown = dark ? swapped(figure) : figure;
    shown.layout.hoverlabel = { ...shown.layout.hoverlabel, bgcolor: dark ? "#2b3138" : "#ffffff", bordercolor: dark ? "#59636f" : "#b4bcc5", font: { ...(shown.layout.hoverlabel || {}).font, color: dark ? "#e8ebef" : "#1c2127" } };
    if (printing) shown.layout.width = Math.max(least, PAPER);
    div.style.height = `${shown.layout.height}px`;
    Plotly.react(div, shown.data, shown.layout, { ...config, displayModeBar: small || printing ? false : "hover" });
    drawn.set(div, size);
  }
  const plots = [...document.querySelectorAll(".plot")];
  for (const div of plots) { const meta = page.figures[div.dataset.figure].layout.meta || {}; div.style.minWidth = `${meta.least || 0}px`; const patch = (page.figures[div.dataset.figure].layout.meta || {})[sized(div)]; if (patch) div.style.height = `${patch.height}px`; }
  const seen = new IntersectionObserver((entries) => { for (const e of entries) if (e.isIntersecting && !drawn.has(e.target)) { draw(e.target); seen.unobserve(e.target); } }, { rootMargin: "600px" });
  plots.forEach((div) => seen.observe(div));
  // A4 between its margins, in pixels of the page. Figures are drawn anew at this width, in the light palette.
  const PAPER = 700;
  function onPaper(next) {
    printing = next;
    root.classList.toggle("paper", next);
    root.dataset.theme = next ? "light" : theme;
    plots.forEach((div) => (next || drawn.has(div)) && draw(div));
    for (const show of tables) show();
    for (const table of document.querySelectorAll(".scroll table")) { table.style.zoom = ""; if (next && table.scrollWidth > PAPER) table.style.zoom = PAPER / table.scrollWidth; }
    for (const part of document.querySelectorAll("details")) { if (next && !part.open) { part.dataset.folded = "1"; part.open = true; } else if (!next && part.dataset.folded) { delete part.dataset.folded; part.open = false; } }
  }
  addEventListener("beforeprint", () => onPaper(true));
  addEventListener("afterprint", () => onPaper(false));
  addEventListener("resize", () => { for (const [div, size] of drawn) if (sized(div) !== size) draw(div); });

  function setTheme(next, redraw) {
    theme = next;
    root.dataset.theme = theme;
    document.getElementById("theme-name").textContent = theme === "dark" ? "light" : "dark";
    if (redraw) for (const div of drawn.keys()) draw(div);
  }
  setTheme(theme, false);
  document.getElementById("theme").addEventListener("click", () => { setTheme(theme === "dark" ? "light" : "dark", true); keep.set("fedtune-theme", theme); });
  wantsDark.addEventListener("change", (e) => { if (!keep.get("fedtune-theme")) setTheme(e.matches ? "dark" : "light", true); });

  for (const button of document.querySelectorAll("button.copy")) {
    button.addEventListener("click", async () => {
      const code = button.parentElement.querySelector("code");
      try { await navigator.clipboard.writeText(code.textContent); button.textContent = "copied"; }
      catch { const range = document.createRange(); range.selectNodeContents(code); getSelection().removeAllRanges(); getSelection().addRange(range); button.textContent = "selected"; }
      setTimeout(() => { button.textContent = "copy"; }, 1500);
    });
  }

  // Trials tables: values are raw, texts are what is shown. Cells are set as text, never as HTML.
  const SIZE = 25, LONGEST = 1000;
  for (const box of document.querySelectorAll(".trials")) {
    const table = page.tables[box.dataset.table];
    let order = table.rows.map((_, i) => i), at = 0, column = -1, up = true, wanted = "";
    const head = box.querySelector("thead tr"), body = box.querySelector("tbody"), status = box.querySelector(".status");
    const [before, after] = box.querySelectorAll(".pager button"), select = box.querySelector("select");
    table.columns.forEach((c, i) => {
      const th = document.createElement("th"), button = document.createElement("button");
      button.type = "button"; button.textContent = c.title; th.scope = "col"; if (c.right) th.className = "n";
      button.addEventListener("click", () => { up = column === i ? !up : !c.right; column = i; sort(); });
      th.append(button); head.append(th);
    });
    function sort() {
      order = table.rows.map((_, i) => i).filter((i) => !wanted || table.rows[i].state === wanted);
      if (column >= 0) order.sort((a, b) => {
        const x = table.rows[a].raw[column], y = table.rows[b].raw[column];
        if (x === null || y === null) return (x === null) - (y === null);
        return (x < y ? -1 : x > y ? 1 : 0) * (up ? 1 : -1);
      });
      [...head.children].forEach((th, i) => { if (i === column) th.setAttribute("aria-sort", up ? "ascending" : "descending"); else th.removeAttribute("aria-sort"); th.firstChild.textContent = table.columns[i].title + (i === column ? (up ? " ↑" : " ↓") : ""); });
      at = 0; show();
    }
    function show() {
      const listed = printing ? order.slice(0, LONGEST) : order.slice(at, at + SIZE);
      body.replaceChildren(...listed.map((i) => {
        const row = table.rows[i], tr = document.createElement("tr");
        if (row.best) tr.className = "best";
        row.text.forEach((text, j) => {
          const td = document.createElement("td");
          if (table.columns[j].right) td.className = "n";
          if (table.columns[j].dot) { const dot = document.createElement("span"); dot.className = `dot ${row.state}`; td.append(dot); }
          td.append(text); tr.append(td);
        });
        return tr;
      }));
      status.textContent = order.length ? `${at + 1}–${Math.min(at + SIZE, order.length)} of ${order.length}` : "none";
      before.disabled = at === 0; after.disabled = at + SIZE >= order.length;
    }
    tables.push(show);
    before.addEventListener("click", () => { at = Math.max(0, at - SIZE); show(); });
    after.addEventListener("click", () => { at += SIZE; show(); });
    select.addEventListener("change", () => { wanted = select.value; sort(); });
    if (table.sort >= 0) { column = table.sort; up = table.up; }
    sort();
  }
})();
