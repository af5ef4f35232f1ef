// Keeps an open page as it would be if it were loaded now: the aggregator says when something has changed
// (/events), the page is asked for again, and its sections marked data-live take the place of the old ones.
// Without this script the page shows what it showed when it was loaded. A page that is no longer kept so says that
// it is stale; the aggregator's own banner, for windows that are not judged, comes with the page.
(() => {
  "use strict";
  const QUIET_MS = 60e3; // longer than the interval of beats; then the page is asked for unprompted
  const ANSWER_MS = 30e3;
  const AGAIN_MS = 10e3; // until a lost aggregator is sought again
  const STALE = "Stale · ";
  const events = new URL("../events", document.currentScript.src); // the pages may be below any path
  const said = document.getElementById("live-state");
  const still = document.querySelector("[data-still]"); // the past, which does not change
  const banner = document.getElementById("stale");
  let source = null;
  let asking = false;
  let again = false;
  let lost = false;
  let heard = Date.now(); // the latest sign of the aggregator
  let sought = Date.now(); // when it was listened to last
  let took = 0;

  function say(text) {
    if (said && said.textContent !== text) said.textContent = text;
  }

  // What has the focus, told in a way that finds it in the new section, too.
  function place(section) {
    const element = document.activeElement;
    if (!section.contains(element) || element === section) return null;
    const same = (other) =>
      other.tagName === element.tagName &&
      (element.id ? other.id === element.id : other.getAttribute("href") === element.getAttribute("href"));
    return () => [...section.querySelectorAll("a, button, summary, [tabindex]")].find(same)?.focus({ preventScroll: true });
  }

  function replace(section, fresh) {
    const open = new Set([...section.querySelectorAll("details[open]")].map((each) => each.id));
    const refocus = place(section);
    section.className = fresh.className;
    section.replaceChildren(...document.adoptNode(fresh).childNodes);
    for (const each of section.querySelectorAll("details")) each.open = open.has(each.id);
    if (refocus) refocus();
  }

  function swap(page) {
    for (const section of document.querySelectorAll("[data-live]")) {
      const fresh = page.getElementById(section.id);
      if (!fresh || section.source === fresh.innerHTML) continue;
      const text = fresh.innerHTML;
      replace(section, fresh);
      section.source = text;
    }
    document.body.dataset.revision = page.body.dataset.revision;
    document.title = page.title;
    document.dispatchEvent(new Event("laggard:swapped"));
  }

  function lose(why) {
    say(`Not live: ${why}.`);
    lost = true;
    const text = document.createElement("p");
    text.className = "banner";
    text.textContent = `Stale: ${why}. ${document.getElementById("as-of").textContent}`;
    if (banner.textContent !== text.textContent) banner.replaceChildren(text);
    banner.source = null; // the next page that comes takes its place
    if (!document.title.startsWith(STALE)) document.title = STALE + document.title;
  }

  async function refresh() {
    if (asking) {
      again = true;
      return;
    }
    asking = true;
    const begun = Date.now();
    const limit = new AbortController();
    const timer = setTimeout(() => limit.abort(), ANSWER_MS);
    try {
      const answer = await fetch(location.href, { cache: "no-store", credentials: "same-origin", signal: limit.signal });
      const page = answer.ok ? new DOMParser().parseFromString(await answer.text(), "text/html") : null;
      if (page?.body.dataset.revision) {
        lost = false;
        swap(page);
        say(source ? "Live." : "Up to date; renewed every minute.");
      } else {
        lose(page ? "the answer is not this page" : `the aggregator answered ${answer.status}`);
      }
    } catch {
      lose("the aggregator does not answer");
    }
    clearTimeout(timer);
    heard = Date.now();
    took = heard - begun;
    asking = false;
    if (again) {
      again = false;
      refresh();
    }
  }

  function listen() {
    if (document.hidden || source || !window.EventSource || still) return;
    sought = Date.now();
    source = new EventSource(events);
    source.addEventListener("change", (event) => {
      heard = Date.now();
      if (event.data === document.body.dataset.revision && !lost) say("Live.");
      else refresh();
    });
    source.addEventListener("beat", refresh); // nodes come and go in between
    source.addEventListener("error", () => {
      if (source?.readyState === EventSource.CLOSED) source = null; // as when too many pages are live
      if (!document.hidden) refresh();
    });
  }

  // A stalled aggregator closes nothing and says nothing.
  function watch() {
    if (document.hidden || asking) return;
    const now = Date.now();
    const quiet = lost ? AGAIN_MS : Math.max(QUIET_MS, 25 * took); // ingest goes first, as with the events
    if (!source && now - sought > quiet) listen();
    if (now - heard > quiet) refresh();
  }

  // A page that nobody looks at takes no connection.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden && source) {
      source.close();
      source = null;
    }
    listen();
  });
  for (const section of document.querySelectorAll("[data-live]")) section.source = section.innerHTML;
  if (still) say("Not live: the page shows a range of time.");
  listen();
  setInterval(watch, 5e3);
})();
