// Shows times in UTC or, where the reader chose it, in the browser's zone. Every time names its zone.
// Elements <time datetime> and [data-at] (epoch seconds) hold a part of "2026-01-31 12:00:05 UTC", made by the server.
window.laggardTime = (() => {
  "use strict";
  const KEY = "laggard-zone";
  const button = document.getElementById("zone");
  let local = false;
  try {
    local = localStorage.getItem(KEY) === "browser";
  } catch {} // a browser may forbid it: the choice is that of this page, then

  // Minutes ahead of UTC at a time, as daylight saving has it.
  const ahead = (at) => (local ? -new Date(at * 1e3).getTimezoneOffset() : 0);
  const said = (at, minutes) => new Date(at * 1e3 + minutes * 6e4).toISOString().slice(0, 19).replace("T", " ");
  const text = (at) => said(at, ahead(at));

  function zone(at) {
    if (!local) return "UTC";
    const minutes = Math.abs(ahead(at));
    const rest = minutes % 60 ? `:${String(minutes % 60).padStart(2, "0")}` : "";
    return `UTC${ahead(at) < 0 ? "-" : "+"}${Math.floor(minutes / 60)}${rest}`;
  }

  function show() {
    for (const each of document.querySelectorAll("time[datetime], [data-at]")) {
      const at = Number(each.dataset.at) || Date.parse(each.dateTime) / 1e3;
      each.utc ??= each.textContent;
      const part = each.utc.replace(" UTC", "");
      const from = said(at, 0).indexOf(part);
      if (from >= 0) each.textContent = text(at).slice(from, from + part.length) + (part === each.utc ? "" : ` ${zone(at)}`);
    }
    button.textContent = `Times: ${local ? Intl.DateTimeFormat().resolvedOptions().timeZone || "local" : "UTC"}`;
    button.dataset.short = local ? "local" : "UTC";
    button.hidden = false;
  }

  button.addEventListener("click", () => {
    local = !local;
    try {
      localStorage.setItem(KEY, local ? "browser" : "utc");
    } catch {}
    show();
    document.dispatchEvent(new Event("laggard:zone"));
  });
  document.addEventListener("laggard:swapped", show);
  document.addEventListener("DOMContentLoaded", show); // after live.js has noted what the server made
  return { text, zone };
})();
