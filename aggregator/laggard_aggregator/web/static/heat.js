// Heat maps: the pointer names component, time and verdict of a cell; a click leads to the component at that time,
// or where the row's link with data-cells leads.
(() => {
  "use strict";
  const AROUND = 12; // columns shown before and behind the cell
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  tip.setAttribute("aria-hidden", "true"); // the strip has a label, the row a link
  document.body.append(tip);

  const utc = (at) => new Date(at * 1e3).toISOString().slice(0, 19).replace("T", " ");
  const time = (at) => (window.laggardTime ? window.laggardTime.text(at) : utc(at));
  const zone = (at) => (window.laggardTime ? window.laggardTime.zone(at) : "UTC");

  // Starts and ends of a table's columns; data-spans has each less the one before it.
  function spans(table) {
    let at = 0;
    return table.dataset.spans.split(" ").map((step) => (at += Number(step)));
  }

  function cell(event) {
    const strip = event.target.closest?.("svg.strip");
    const table = strip?.closest("table[data-spans]");
    if (!table) return null;
    const edges = spans(table);
    const box = strip.getBoundingClientRect();
    const count = edges.length / 2;
    const column = Math.min(Math.max(Math.floor(((event.clientX - box.left) / box.width) * count), 0), count - 1);
    const row = strip.closest("tr");
    const name = row.querySelector("th a");
    return { edges, column, count, strip, name, link: row.querySelector("a[data-cells]") ?? name };
  }

  function verdict(target) {
    const level = target.closest("path")?.getAttribute("class");
    const key = document.querySelector(level ? `.legend .${level}` : ".legend li:last-child");
    return key ? key.closest("li").textContent : "";
  }

  addEventListener("pointermove", (event) => {
    const over = event.target instanceof Element ? cell(event) : null;
    tip.hidden = !over;
    if (!over) return;
    const [start, end] = over.edges.slice(2 * over.column, 2 * over.column + 2);
    tip.textContent = `${over.name.textContent}, ${time(start)} to ${time(end).slice(11)} ${zone(end)}: ${verdict(event.target)}`;
    const left = Math.min(event.pageX + 14, document.documentElement.clientWidth - tip.offsetWidth - 8);
    tip.style.left = `${Math.max(left, 8)}px`;
    tip.style.top = `${event.pageY + 16}px`;
  });

  addEventListener("click", (event) => {
    const over = event.target instanceof Element ? cell(event) : null;
    if (!over) return;
    const url = new URL(over.link.href);
    const first = over.edges[2 * Math.max(over.column - AROUND, 0)];
    const last = over.edges[2 * Math.min(over.column + AROUND, over.count - 1) + 1];
    url.searchParams.set("from", new Date(first * 1e3).toISOString().slice(0, 19) + "Z");
    url.searchParams.set("to", new Date(last * 1e3).toISOString().slice(0, 19) + "Z");
    location.href = url;
  });
})();
