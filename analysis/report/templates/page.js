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
  // A figure that cannot be drawn says so in its place and is not tried again; the others are drawn all the same.
  function draw(div) {
    if (div.classList.contains("undrawn")) return;
    const failed = (error) => {
      console.error(error);
      Plotly.purge(div);
      div.textContent = `This figure could not be drawn: ${error.message}`;
      div.classList.add("undrawn");
    };
    const first = !drawn.has(div);
    drawn.set(div, sized(div));
    try {
      rows(div).catch(failed);
      if (first) link(div);
    } catch (error) { failed(error); }
  }
  function rows(div) {
    const { least = 0, axes = 0 } = page.figures[div.dataset.figure].layout.meta || {};
    for (const row of div.parentElement.querySelectorAll(".row")) { Plotly.purge(row); row.remove(); }
    // On paper nothing can be scrolled: axes that stand side by side go on below, from the last one of the row above.
    const count = printing && least > PAPER && axes ? Math.ceil((axes - 1) / STEPS) : 1, steps = Math.ceil((axes - 1) / count);
    const done = [paint(div, least, count > 1 ? [-0.5, steps + 0.55] : null)];
    for (let i = 1, above = div; i < count; i++) {
      const row = document.createElement("div");
      row.className = "plot row"; row.dataset.figure = div.dataset.figure;
      above.after(row); above = row;
      done.push(paint(row, least, [i * steps - 0.5, (i + 1) * steps + 0.55]));
    }
    return Promise.all(done);
  }
  function paint(div, least, part) {
    const figure = structuredClone(page.figures[div.dataset.figure]);
    const layout = figure.layout;
    const small = narrow(div), size = sized(div);
    for (const [path, value] of Object.entries((layout.meta || {})[size] || {})) assign(layout, path, value);
    layout.dragmode = small ? false : layout.dragmode || "zoom";
    const dark = theme === "dark" && !printing;
    const shown = dark ? swapped(figure) : figure;
    shown.layout.hoverlabel = { ...shown.layout.hoverlabel, bgcolor: dark ? "#2b3138" : "#ffffff", bordercolor: dark ? "#59636f" : "#b4bcc5", font: { ...(shown.layout.hoverlabel || {}).font, color: dark ? "#e8ebef" : "#1c2127" } };
    if (part) shown.layout.xaxis.range = part;
    // What else is wider than paper, or higher than a sheet, is made smaller as a whole.
    const wide = part ? PAPER : Math.max(least, PAPER * Math.max(1, shown.layout.height / SHEET));
    div.style.minWidth = `${part ? 0 : least}px`;
    div.style.zoom = printing && wide > PAPER ? PAPER / wide : "";
    if (printing) shown.layout.width = wide;
    div.style.height = `${shown.layout.height}px`;
    const bar = !small && !printing;
    div.classList.toggle("barred", bar);
    return Plotly.react(div, shown.data, shown.layout, { ...config, displayModeBar: bar ? "hover" : false });
  }
  const plots = [...document.querySelectorAll(".plot")];
  for (const div of plots) { const meta = page.figures[div.dataset.figure].layout.meta || {}; div.style.minWidth = `${meta.least || 0}px`; const patch = (page.figures[div.dataset.figure].layout.meta || {})[sized(div)]; if (patch) div.style.height = `${patch.height}px`; }
  const seen = new IntersectionObserver((entries) => { for (const e of entries) if (e.isIntersecting && !drawn.has(e.target)) { draw(e.target); seen.unobserve(e.target); } }, { rootMargin: "600px" });
  plots.forEach((div) => seen.observe(div));
  // A4 between its margins, in pixels of the page. Figures are drawn anew at this width, in the light palette.
  const PAPER = 700, SHEET = 840, BROAD = 1058, READABLE = 0.8;
  // So many steps from axis to axis are as wide as paper with numbers that can be read.
  const STEPS = 5;
  // On paper a table that is too wide is made smaller; where it could not be read then, its section stands on sheets
  // that lie on their side.
  function fit(table) {
    const section = table.closest("[data-table]")?.closest("section");
    table.style.zoom = ""; section?.classList.remove("broad");
    if (!printing || table.scrollWidth <= PAPER) return;
    if (section && table.scrollWidth > PAPER / READABLE) section.classList.add("broad");
    table.style.zoom = Math.min(1, (section?.classList.contains("broad") ? BROAD : PAPER) / table.scrollWidth);
  }
  function onPaper(next) {
    printing = next;
    root.classList.toggle("paper", next);
    root.dataset.theme = next ? "light" : theme;
    plots.forEach((div) => (next || drawn.has(div)) && draw(div));
    for (const show of tables) show();
    for (const table of document.querySelectorAll(".scroll table")) fit(table);
    for (const part of document.querySelectorAll("details")) { if (next && !part.open) { part.dataset.folded = "1"; part.open = true; } else if (!next && part.dataset.folded) { delete part.dataset.folded; part.open = false; } }
  }
  addEventListener("beforeprint", () => onPaper(true));
  addEventListener("afterprint", () => onPaper(false));
  addEventListener("resize", () => { for (const [div, size] of drawn) if (sized(div) !== size) draw(div); });

  function setTheme(next, redraw) {
    theme = next;
    root.dataset.theme = printing ? "light" : theme;
    document.getElementById("theme-name").textContent = theme === "dark" ? "light" : "dark";
    if (redraw) for (const div of drawn.keys()) draw(div);
  }
  setTheme(theme, false);
  document.getElementById("theme").addEventListener("click", () => { setTheme(theme === "dark" ? "light" : "dark", true); keep.set("fedtune-theme", theme); });
  wantsDark.addEventListener("change", (e) => { if (!keep.get("fedtune-theme")) setTheme(e.matches ? "dark" : "light", true); });

  // A browser would break `--seeds` behind its dashes. A long path has to be broken somewhere.
  for (const code of document.querySelectorAll(".command code")) {
    code.replaceChildren(...code.textContent.split(/(\s+)/).map((word) => {
      if (!word.includes("-") || word.length > 24) return word;
      const whole = document.createElement("span");
      whole.textContent = word;
      return whole;
    }));
  }
  for (const button of document.querySelectorAll("button.copy")) {
    button.addEventListener("click", async () => {
      const code = button.parentElement.querySelector("code");
      try { await navigator.clipboard.writeText(code.textContent); button.textContent = "copied"; }
      catch { const range = document.createRange(); range.selectNodeContents(code); getSelection().removeAllRanges(); getSelection().addRange(range); button.textContent = "selected"; }
      setTimeout(() => { button.textContent = "copy"; }, 1500);
    });
  }

  // One trial, opened from a figure, from the table or by the address (#trial=12; #r2-trial=12 of a page's second run).
  const panel = document.getElementById("trial");
  let opened = null, from = null;
  const prefixOf = (name) => (/^r\d+-/.exec(name) || [""])[0];
  function trialOf(trace, i) {
    const how = (trace.meta || {}).trial;
    const all = { customdata: trace.customdata, x: trace.x, y: trace.y }[how];
    const found = !all ? how : Array.isArray(i) ? (all[i[0]] || [])[i[1]] : all[i];
    const number = Array.isArray(found) || ArrayBuffer.isView(found) ? found[0] : found;
    return Number.isInteger(number) ? number : null;
  }
  const axesOf = (div, trace) => [trace.xaxis, trace.yaxis].map((name) => div._fullLayout[`${name[0]}axis${name.slice(1)}`]);
  const REACH = 6;
  // The trial whose line runs past a place of a figure. Plotly finds the points of a line alone, which may lie far apart.
  function lineAt(div, left, top) {
    let least = REACH, found = null;
    for (const [n, trace] of div._fullData.entries()) {
      if (trace.visible !== true || ((trace.meta || {}).trial ?? null) === null || !(trace.mode || "").includes("lines")) continue;
      const [across, up] = axesOf(div, trace), px = left - across._offset, py = top - up._offset;
      if (px < -REACH || py < -REACH || px > across._length + REACH || py > up._length + REACH) continue;
      const points = div.calcdata[n].map((p) => typeof p.x === "number" && typeof p.y === "number" ? [across.c2p(p.x), up.c2p(p.y)] : null);
      const apart = ([ax, ay], [bx, by]) => { const dx = bx - ax, dy = by - ay, t = Math.min(1, Math.max(0, ((px - ax) * dx + (py - ay) * dy) / (dx * dx + dy * dy || 1))); return Math.hypot(ax + t * dx - px, ay + t * dy - py); };
      for (let i = 1; i < points.length; i++) {
        const [a, b] = [points[i - 1], points[i]];
        if (!a || !b) continue;
        const corner = (trace.line || {}).shape === "hv" ? [b[0], a[1]] : a;
        const distance = Math.min(apart(a, corner), apart(corner, b));
        if (distance < least) [least, found] = [distance, trialOf(trace, i - 1)];
      }
    }
    return found;
  }
  // What is clicked on: a cell or a dot that the pointer is on, or else the nearest line, or else the nearest point.
  function clickedOn(div, event, point) {
    const box = div.getBoundingClientRect(), left = event.clientX - box.left, top = event.clientY - box.top;
    if (!point) return lineAt(div, left, top);
    const trace = point.fullData, own = trialOf(trace, point.pointNumber), [across, up] = axesOf(div, trace);
    const on = trace.type !== "scatter" || !(trace.mode || "").includes("lines") && Math.hypot(across._offset + across.d2p(point.x) - left, up._offset + up.d2p(point.y) - top) <= 2 * REACH;
    return on && own !== null ? own : lineAt(div, left, top) ?? own;
  }
  // The trials of a figure, each with the first point that stands for it.
  function pointsOf(div) {
    const found = new Map();
    for (const [n, trace] of div._fullData.entries()) {
      if (trace.visible !== true || trace.hoverinfo === "skip") continue;
      const add = (i, place) => { const number = trialOf(trace, i); if (number !== null && !found.has(number)) found.set(number, [place, trace.xaxis + trace.yaxis]); };
      // Plotly shows a point by its number, and a cell by where it is.
      if (trace.type === "heatmap") trace.z.forEach((row, j) => row.forEach((_, i) => add([j, i], { xval: trace.x[i], yval: trace.y[j] })));
      else for (let i = 0; i < (trace.x || []).length; i++) add(i, [{ curveNumber: n, pointNumber: i }]);
    }
    return new Map([...found].sort((a, b) => a[0] - b[0]));
  }
  // A figure of trials is opened by the mouse, and by the keyboard: arrows go through its trials, Enter opens one.
  function link(div) {
    const prefix = prefixOf(div.dataset.figure), table = page.tables[`${prefix}trials`];
    if (!table) return;
    const open = (number) => number !== null && openTrial(prefix, number);
    let hovered = null, at = -1, waiting = false;
    div.on("plotly_hover", (e) => { hovered = e.points[0]; });
    div.on("plotly_unhover", () => { hovered = null; });
    div.on("plotly_click", (e) => open(clickedOn(div, e.event, e.points[0])));
    div.addEventListener("click", (e) => { if (!hovered && e.target.closest(".nsewdrag")) open(clickedOn(div, e, null)); });
    div.addEventListener("mousemove", (e) => {
      const area = e.target.closest(".nsewdrag");
      if (!area || waiting) return;
      waiting = true;
      requestAnimationFrame(() => { waiting = false; area.style.cursor = clickedOn(div, e, hovered) === null ? "" : "pointer"; });
    });
    const numbers = [...pointsOf(div).keys()];
    if (!numbers.length) return;
    Object.entries({ role: "slider", tabindex: 0, "aria-valuemin": 1, "aria-valuemax": numbers.length, "aria-valuenow": 1, "aria-valuetext": `${numbers.length} trials: arrow keys go through them, Enter opens one` }).forEach(([name, value]) => div.setAttribute(name, value));
    div.addEventListener("keydown", (e) => {
      if (e.key === "Enter" || e.key === " ") { e.preventDefault(); if (at >= 0) open(numbers[at]); return; }
      const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -Infinity, End: Infinity }[e.key];
      if (!by) return;
      e.preventDefault();
      at = Math.min(numbers.length - 1, Math.max(0, at + by));
      const row = table.rows.find((r) => r.raw[0] === numbers[at]), point = pointsOf(div).get(numbers[at]), sorted = table.columns[table.sort];
      div.setAttribute("aria-valuenow", at + 1);
      div.setAttribute("aria-valuetext", `Trial ${numbers[at]}${row && sorted ? `, ${sorted.title}: ${row.text[table.sort]}` : ""}`);
      if (point) Plotly.Fx.hover(div, ...point);
    });
    div.addEventListener("blur", () => Plotly.Fx.unhover(div));
  }
  function element(name, text, className) { const e = document.createElement(name); if (text !== undefined) e.textContent = text; if (className) e.className = className; return e; }
  function drawing(told) { const holder = document.createElement("template"); holder.innerHTML = "<svg></svg>"; const svg = holder.content.firstChild; svg.setAttribute("viewBox", "0 0 100 100"); svg.setAttribute("preserveAspectRatio", "none"); svg.setAttribute("role", "img"); svg.setAttribute("aria-label", told); return svg; }
  function shape(svg, name, values) { const e = document.createElementNS(svg.namespaceURI, name); for (const [k, v] of Object.entries(values)) e.setAttribute(k, v); svg.append(e); }
  function curve([rounds, values], metric) {
    const low = Math.min(...values), span = Math.max(...values) - low || 1, last = rounds.at(-1) - rounds[0] || 1;
    const told = `${metric}: from ${values[0]} in round ${rounds[0]} to ${values.at(-1)} in round ${rounds.at(-1)}`;
    const svg = drawing(told);
    shape(svg, "path", { d: rounds.map((r, i) => `${i ? "L" : "M"}${(100 * (r - rounds[0])) / last} ${97 - (94 * (values[i] - low)) / span}`).join(" ") });
    return [svg, element("p", `${told}.`, "small")];
  }
  function bars(values, title) {
    const known = values.filter((v) => v !== null), told = `${title}: ${Math.min(...known)} to ${Math.max(...known)} % over ${known.length} clients`;
    const svg = drawing(told);
    values.forEach((v, i) => v === null || shape(svg, "rect", { x: (100 * (i + 0.1)) / values.length, width: 80 / values.length, y: 100 - v, height: v }));
    return known.length ? [svg, element("p", `${told}.`, "small")] : [];
  }
  function openTrial(prefix, number, keepFocus) {
    const known = page.details[prefix], table = page.tables[`${prefix}trials`], row = table && table.rows.find((r) => r.raw[0] === number);
    if (!known || !row) return closeTrial();
    if (!opened) from = document.activeElement;
    opened = { prefix, number };
    history.replaceState(null, "", `#${prefix}trial=${number}`);
    const found = known[number], head = element("div", undefined, "row"), title = element("h2", `Trial ${number}`);
    title.id = "trial-title";
    const step = (text, by) => { const b = element("button", text); b.type = "button"; const at = table.rows.indexOf(row) + by; b.disabled = !table.rows[at]; b.setAttribute("aria-label", by < 0 ? "Previous trial" : "Next trial"); b.addEventListener("click", () => openTrial(prefix, table.rows[at].raw[0])); return b; };
    const close = element("button", "close"); close.type = "button"; close.addEventListener("click", closeTrial);
    head.append(title, step("‹", -1), step("›", 1), close);
    const facts = element("table"), body = element("tbody"); facts.append(body);
    table.columns.forEach((c, i) => { if (i === 0 || row.text[i] === "–" || row.text[i] === "") return; const tr = element("tr"), th = element("th", c.title); th.scope = "row"; tr.append(th, element("td", row.text[i])); body.append(tr); });
    panel.replaceChildren(head, facts);
    if (!found) panel.append(element("p", `This page holds curves and logs of a part of the ${known.of} trials only; this one's are in its folder.`, "small"));
    else {
      if (found.curve) panel.append(element("h3", "Curve"), ...curve(found.curve, known.metric));
      for (const [kind, title] of [["global", "Global model by client"], ["local", "Clients' own models"]]) if (found.clients[kind]) panel.append(element("h3", title), ...bars(found.clients[kind], title));
      if (found.log) panel.append(element("h3", "End of its log"), element("pre", found.log));
    }
    panel.hidden = false;
    if (!keepFocus) panel.focus();
    for (const show of tables) show();
  }
  function closeTrial() {
    if (!opened) return;
    const prefix = opened.prefix;
    opened = null; panel.hidden = true;
    history.replaceState(null, "", location.href.split("#")[0]);
    for (const show of tables) show();
    // A row is made anew whenever its table is shown, so its button is looked for again.
    const back = from && !from.isConnected ? document.querySelector(`[data-table="${prefix}trials"] [data-trial="${from.dataset.trial}"]`) : from;
    if (back) back.focus();
  }
  function readAddress() { const m = /^#(r\d+-)?trial=(\d+)$/.exec(location.hash); if (m) openTrial(m[1] || "", Number(m[2])); }
  addEventListener("hashchange", readAddress);
  addEventListener("keydown", (e) => {
    if (!opened) return;
    if (e.key === "Escape") return closeTrial();
    const by = e.target === panel ? { ArrowLeft: -1, ArrowRight: 1 }[e.key] : 0;
    const rows = page.tables[`${opened.prefix}trials`].rows, at = by ? rows.findIndex((r) => r.raw[0] === opened.number) + by : -1;
    if (rows[at]) openTrial(opened.prefix, rows[at].raw[0]);
  });

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
        if (opened && opened.prefix === prefixOf(box.dataset.table) && opened.number === row.raw[0]) tr.classList.add("chosen");
        row.text.forEach((text, j) => {
          const td = document.createElement("td");
          if (table.columns[j].right) td.className = "n";
          if (table.columns[j].dot) { const dot = document.createElement("span"); dot.className = `dot ${row.state}`; td.append(dot); }
          if (j === 0) { const button = document.createElement("button"); button.type = "button"; button.className = "open"; button.dataset.trial = row.raw[0]; button.textContent = text; button.setAttribute("aria-label", `Open trial ${text}`); button.addEventListener("click", () => openTrial(prefixOf(box.dataset.table), row.raw[0])); td.append(button); }
          else td.append(text);
          tr.append(td);
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
  readAddress();
})();
