// Tables that sort and filter, commands that copy, charts in the colours of the page.
"use strict";
(() => {
  const words = (text) => text.toLowerCase().split(/\s+/).filter(Boolean);

  // A number orders by itself, a text as a reader would; rows without a value come last either way.
  function sort(table, column, head) {
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const body = table.tBodies[0];
    const keyed = [...body.rows].map((row) => {
      const cell = row.cells[column];
      const order = cell.dataset.order;
      return { row, number: order === undefined ? null : Number(order), text: cell.textContent.trim() };
    });
    const sign = down ? -1 : 1;
    keyed.sort((one, other) => {
      if (one.number !== null && other.number !== null) return sign * (one.number - other.number);
      if ((one.number === null) !== (other.number === null)) return one.number === null ? 1 : -1;
      return sign * one.text.localeCompare(other.text, "en", { numeric: true });
    });
    body.append(...keyed.map((entry) => entry.row));
  }

  function filter(table, text) {
    const wanted = words(text);
    let shown = 0;
    for (const row of table.tBodies[0].rows) {
      const own = row.textContent.toLowerCase();
      row.hidden = !wanted.every((word) => own.includes(word));
      shown += row.hidden ? 0 : 1;
    }
    const told = document.querySelector(`[data-counts="${table.id}"]`);
    if (told) told.textContent = wanted.length ? `${shown} of ${table.tBodies[0].rows.length} rows` : "";
  }

  for (const table of document.querySelectorAll("table.sortable")) {
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      if (head.classList.contains("plain")) return;
      const button = document.createElement("button");
      button.type = "button";
      button.title = "Sort by this column";
      button.append(...head.childNodes);
      button.addEventListener("click", () => sort(table, column, head));
      head.append(button);
    });
    const box = document.querySelector(`[data-filters="${table.id}"]`);
    if (box) box.addEventListener("input", () => filter(table, box.value));
  }

  // A page from a file may not use the clipboard everywhere; selecting and copying works there, too.
  async function copy(code) {
    const text = code.dataset.text ?? code.textContent;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = document.createElement("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    code.dataset.text = text;
    code.textContent = "copied";
    setTimeout(() => { code.textContent = text; }, 900);
  }

  for (const code of document.querySelectorAll("code")) {
    code.classList.add("copies");
    code.tabIndex = 0;
    code.title = `${code.textContent}\nClick to copy`;
    code.addEventListener("click", () => copy(code));
    code.addEventListener("keydown", (event) => { if (event.key === "Enter") copy(code); });
  }

  // One of several charts at a time.
  for (const select of document.querySelectorAll("select[data-shows]")) {
    const choices = [...document.querySelectorAll(`[data-choice="${select.dataset.shows}"]`)];
    const show = () => choices.forEach((choice, index) => { choice.hidden = index !== select.selectedIndex; });
    select.addEventListener("change", show);
    show();
  }

  if (typeof Bokeh === "undefined") return;

  const dark = window.matchMedia("screen and (prefers-color-scheme: dark)");
  const first = new Map();
  const models = () => Bokeh.documents.flatMap((drawn) => [...(drawn.all_models ?? drawn._all_models.values())]);

  // Every colour of every model, as it was drawn for a white page, or what stands for it on a dark one.
  function paint(isDark) {
    for (const model of models()) {
      if (!first.has(model)) {
        const found = {};
        for (const property of model) {
          if (!/color$/.test(property.attr)) continue;
          const value = property.is_unset ? null : property.get_value();
          const colour = typeof value === "string" ? value : value?.value;
          if (typeof colour === "string" && colour in darkColours) found[property.attr] = [value, colour];
        }
        first.set(model, found);
      }
      const changed = {};
      for (const [name, [value, colour]] of Object.entries(first.get(model))) {
        const now = isDark ? darkColours[colour] : colour;
        changed[name] = typeof value === "string" ? now : { ...value, value: now };
      }
      if (Object.keys(changed).length) model.setv(changed);
    }
  }

  const views = () => [...(Bokeh.index.roots ?? Object.values(Bokeh.index))];

  // A chart as a picture in the colours of paper, with the samples of its legend, which the export leaves out.
  function picture(view) {
    const parts = [...view.renderer_views.values()];
    for (const part of parts) part.set_visuals?.();
    const layer = view.export("png", true);
    const corner = view.el.getBoundingClientRect();
    const scale = layer.canvas.width / view.bbox.width;
    const ink = layer.canvas.getContext("2d");
    ink.resetTransform();
    for (const legend of parts.filter((part) => part.entries && part._paint_glyphs)) {
      legend._paint_glyphs();
      for (const { glyph } of legend.entries) {
        const at = glyph.canvas.getBoundingClientRect();
        const place = [at.left - corner.left, at.top - corner.top, at.width, at.height].map((side) => side * scale);
        if (at.width) ink.drawImage(glyph.canvas, ...place);
      }
    }
    return layer.canvas.toDataURL();
  }

  // Paper has no pixels: each chart goes there as a picture that takes the width of the page.
  function print() {
    for (const details of document.querySelectorAll("details:not([open])")) {
      details.open = true;
      details.dataset.closed = "";
    }
    paint(false);
    for (const view of views()) {
      const chart = view.el.closest(".chart");
      if (!chart?.clientWidth) continue;
      const image = chart.querySelector(":scope > img") ?? chart.appendChild(new Image());
      image.src = picture(view);
      image.alt = "";
      chart.classList.add("printed");
    }
  }

  function back() {
    for (const details of document.querySelectorAll("details[data-closed]")) {
      details.open = false;
      delete details.dataset.closed;
    }
    for (const chart of document.querySelectorAll(".chart.printed")) chart.classList.remove("printed");
    paint(dark.matches);
  }

  // A time of a table is shown by all charts over time, which share one range.
  function lead() {
    const clock = models().find((model) => model.name === "clock");
    const whole = document.querySelector("[data-whole]");
    if (!clock || !whole) return;
    const all = [clock.start, clock.end];
    whole.addEventListener("click", () => { [clock.start, clock.end] = all; whole.hidden = true; });
    for (const link of document.querySelectorAll("a[data-from]")) {
      link.addEventListener("click", () => {
        clock.setv({ start: Number(link.dataset.from), end: Number(link.dataset.to) });
        whole.hidden = false;
      });
    }
  }

  // A folded part has no size: it is open while its charts are drawn first.
  async function drawn(work) {
    const folded = [...document.querySelectorAll("details:not([open])")].filter((part) => part.querySelector(".chart"));
    for (const part of folded) part.open = true;
    await work();
    for (const part of folded) part.open = false;
  }

  async function draw() {
    Bokeh.set_log_level("warn");
    const { documents, items } = JSON.parse(document.getElementById("charts").textContent);
    await drawn(() => Bokeh.embed.embed_items(documents, items));
    lead();
    // A legend has room for more columns than on a phone.
    if (document.body.clientWidth > 800) {
      for (const model of models()) if (model.type === "Legend") model.ncols = model.tags[0];
    }
    // A finger scrolls the page; to zoom it takes a tool first.
    if (window.matchMedia("(pointer: coarse)").matches) {
      for (const model of models()) {
        if (model.type === "Toolbar") model.active_drag = null;
      }
    }
    paint(dark.matches);
    dark.addEventListener("change", () => paint(dark.matches));
    window.addEventListener("beforeprint", print);
    window.addEventListener("afterprint", back);
    document.documentElement.dataset.charts = "drawn";
  }
  draw();
})();
