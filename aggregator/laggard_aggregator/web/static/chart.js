// Lets charts of windows be read by pointing at them and be zoomed by dragging (uPlot). The SVG that the server
// drew stays for those who use no script, and for screen readers.
"use strict";
(() => {
  if (!window.uPlot) return;
  const charts = new Set();
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const faint = (name, share) => colour(name) + Math.round(share * 255).toString(16).padStart(2, "0");

  function shown(unit) {
    return (_, value) => (value == null ? "–" : `${Number(value.toPrecision(4))} ${unit}`);
  }

  // Hours as everywhere on the page: UTC, of 24; with seconds where they differ, with the date where a day begins.
  function times(_, splits, axis, space, seconds) {
    const end = seconds < 60 ? 19 : 16;
    let day = "";
    return splits.map((at) => {
      const text = new Date(at * 1e3).toISOString();
      const same = text.slice(0, 10) === day;
      day = text.slice(0, 10);
      return same ? text.slice(11, end) : `${text.slice(11, end)}\n${day}`;
    });
  }

  function draw(figure) {
    const svg = figure.querySelector("svg.chart");
    if (!svg || figure.querySelector(".plot")) return;
    const data = JSON.parse(figure.dataset.chart);
    const unit = figure.dataset.unit;
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
        height: 260,
        tzDate: (at) => uPlot.tzDate(new Date(at * 1e3), "UTC"),
        scales: { y: { range: (_, least, most) => [Math.min(0, least), most * 1.05 || 1] } },
        axes: [{ ...axis, values: times }, { ...axis, size: 60, values: (_, splits) => splits.map((each) => `${each} ${unit}`) }],
        series: [
          { label: "window that ended at (UTC)", value: "{YYYY}-{MM}-{DD} {HH}:{mm}:{ss}" },
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
        hooks: {
          setScale: [
            (self, key) => {
              if (key !== "x") return;
              const whole = self.scales.x.min <= end[0] && self.scales.x.max >= end[end.length - 1];
              figure.toggleAttribute("data-hold", !whole);
            },
          ],
        },
      },
      [end, own, low, quarter, middle, threeQuarters, high, hot],
      div,
    );
    const hint = document.createElement("p");
    hint.className = "hint";
    hint.textContent = "Drag to zoom, double-click to see all again.";
    div.append(hint);
    svg.classList.add("hidden");
    charts.add({ plot, div, figure, svg });
  }

  function drawAll() {
    for (const each of charts) if (!each.figure.isConnected) (each.plot.destroy(), charts.delete(each));
    document.querySelectorAll("figure[data-chart]").forEach(draw);
  }

  addEventListener("resize", () => {
    for (const { plot, div } of charts) plot.setSize({ width: div.clientWidth, height: 260 });
  });
  dark.addEventListener("change", () => {
    for (const each of charts) {
      each.plot.destroy();
      each.div.remove();
      each.svg.classList.remove("hidden");
    }
    charts.clear();
    drawAll();
  });
  document.addEventListener("laggard:swapped", drawAll);
  drawAll();
})();
