// Keeps an open page as it would be if it were loaded now: the aggregator says when something has changed
// (/events), the page is asked for again, and its sections marked data-live take the place of the old ones.
// Without this script the page shows what it showed when it was loaded.
"use strict";
(() => {
  const said = document.getElementById("live-state");
  const still = document.querySelector("[data-still]"); // the past, which does not change
  let source = null;
  let asking = false;
  let again = false;

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
    said && document.getElementById("as-of").append(said);
  }

  async function refresh() {
    if (asking) {
      again = true;
      return;
    }
    asking = true;
    try {
      const answer = await fetch(location.href, { cache: "no-store", credentials: "same-origin" });
      if (answer.ok) {
        swap(new DOMParser().parseFromString(await answer.text(), "text/html"));
        say("Live.");
      } else {
        say(`Not live: the aggregator answered ${answer.status}.`);
      }
    } catch {
      say("Not live: the aggregator does not answer.");
    }
    asking = false;
    if (again) {
      again = false;
      refresh();
    }
  }

  function listen() {
    if (document.hidden || source || !window.EventSource || still) return;
    source = new EventSource("/events");
    source.addEventListener("change", (event) => {
      if (event.data === document.body.dataset.revision) say("Live.");
      else refresh();
    });
    source.addEventListener("beat", refresh); // nodes come and go in between
    source.addEventListener("error", () => {
      if (source && source.readyState === EventSource.CLOSED) {
        say("Not live: load the page again to see what is new.");
        source = null;
      } else {
        say("Not live: the aggregator does not answer.");
      }
    });
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
})();
