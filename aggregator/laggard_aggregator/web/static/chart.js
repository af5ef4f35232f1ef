// Lets charts be read by pointing at them and be zoomed by dragging (uPlot): the range goes into the address, and the
// server answers it, so that it can be pasted into a ticket and the back button works. The SVG that the server
// drew stays for those who use no script, and for screen readers.
(() => {
  "use strict";
  if (!window.uPlot) return;
  const charts = new Set();
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const faint = (name, share) => colour(name) + Math.round(share * 255).toString(16).padStart(2, "0");

  function shown(unit) {
    return (_, value) => (value == null ? "–" : `${Number(value.toPrecision(4))} ${unit}`);
  }

  // Hours as everywhere on the page; with seconds where they differ, with date and zone where a day begins.
  function times(plot, splits, axis, space, seconds) {
    const small = plot.height <= 150; // the same times as its neighbours: they are said once, above
    const end = seconds < 60 ? 19 : 16;
    let day = "";
    return splits.map((at) => {
      const text = laggardTime.text(at);
      const same = text.slice(0, 10) === day;
      day = text.slice(0, 10);
      return same || small ? text.slice(11, end) : `${text.slice(11, end)}\n${day} ${laggardTime.zone(at)}`;
    });
  }

  function show(from, to) {
    const url = new URL(location.href);
    for (const [name, at] of [["from", from], ["to", to]]) {
      if (at == null) url.searchParams.delete(name);
      else url.searchParams.set(name, new Date(at * 1e3).toISOString().slice(0, 19) + "Z");
    }
    url.searchParams.delete("page");
    url.hash = from == null ? "" : "past";
    location.assign(url.href.replaceAll("%3A", ":"));
  }

  function zoom(plot) {
    const { left, width } = plot.select;
    if (width < 4) return;
    const [from, to] = [left, left + width].map((x) => plot.posToVal(x, "x"));
    show(Math.floor(from), Math.max(Math.ceil(to), Math.floor(from) + 2));
  }

  // A section that takes long to make, as its data are in the archive: of another page, once this one is there.
  async function complete(section) {
    try {
      const answer = await fetch(section.dataset.fetch, { credentials: "same-origin" });
      if (!answer.ok) return;
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const fresh = page.getElementById("past");
      const load = page.getElementById("load"); // the windows are above it already
      if (load) section.replaceChildren(...document.adoptNode(load).childNodes);
      else if (fresh) {
        const why = page.querySelector(".notice:last-of-type");
        section.querySelector("p").textContent = why ? why.textContent : "The archive has no load of it yet.";
      }
      document.dispatchEvent(new Event("laggard:swapped"));
    } catch {
      // the link in the section stays
    }
  }

  function draw(figure) {
    const svg = figure.querySelector("svg.chart");
    if (!svg || figure.querySelector(".plot")) return;
    const data = JSON.parse(figure.dataset.chart);
    const unit = figure.dataset.unit;
    const height = Number(figure.dataset.height || 260);
    const div = document.createElement("div");
    div.className = "plot";
    div.setAttribute("aria-hidden", "true"); // the SVG has a label, the table the figures
    figure.append(div);
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
    const line = (label, extra) => ({ label, value: shown(unit), points: { show: false }, ...extra });
    const [end, own, low, quarter, middle, threeQuarters, high, hot] = data;
    const plot = new uPlot(
      {
        width: div.clientWidth,
        height,
        padding: [null, 30, null, null], // the last time is not cut off
        cursor: { drag: { setScale: false }, sync: { key: "time" } },
        legend: { show: height > 150 },
        tzDate: (at) => new Date(laggardTime.text(at).replace(" ", "T")), // its local parts are those shown
        scales: { y: { range: (_, least, most) => [Math.min(0, least), most * 1.05 || 1] } },
        axes: [{ ...axis, values: times, space: 90, size: height > 150 ? 50 : 26 }, { ...axis, size: 60, space: height > 150 ? 30 : 18, values: (_, splits) => splits.map((each) => (height > 150 ? `${each} ${unit}` : each)) }],
        series: [
          { label: "window that ended at", value: (_, at) => (at == null ? "–" : `${laggardTime.text(at)} ${laggardTime.zone(at)}`) },
          line("this", { stroke: colour("--own"), width: 2.2 }),
          line("5 %", {}),
          line("25 %", {}),
          line("median", { stroke: colour("--band"), dash: [5, 3] }),
          line("75 %", {}),
          line("95 %", {}),
          line("as anomalous", { stroke: colour("--own"), paths: () => null, points: { show: true, size: 8, fill: colour("--own") } }),
        ],
        bands: [
          { series: [6, 2], fill: faint("--band", 0.16) },
          { series: [5, 3], fill: faint("--band", 0.16) },
        ],
        hooks: { setSelect: [zoom] },
      },
      [end, own, low, quarter, middle, threeQuarters, high, hot],
      div,
    );
    if (height > 150) {
      const hint = document.createElement("p");
      hint.className = "hint";
      hint.textContent = "Drag to zoom, double-click to see all again.";
      div.append(hint);
    }
    div.addEventListener("dblclick", () => show(null, null));
    svg.classList.add("hidden");
    charts.add({ plot, div, figure, svg, height });
  }

  function drawAll() {
    for (const each of charts) if (!each.figure.isConnected) (each.plot.destroy(), charts.delete(each));
    document.querySelectorAll("figure[data-chart]").forEach(draw);
  }

  addEventListener("resize", () => {
    for (const { plot, div, height } of charts) plot.setSize({ width: div.clientWidth, height });
  });
  function drawAnew() {
    for (const each of charts) {
      each.plot.destroy();
      each.div.remove();
      each.svg.classList.remove("hidden");
    }
    charts.clear();
    drawAll();
  }

  dark.addEventListener("change", drawAnew);
  document.addEventListener("laggard:zone", drawAnew);
  document.addEventListener("laggard:swapped", drawAll);
  drawAll();
  document.querySelectorAll("[data-fetch]").forEach(complete);
})();
