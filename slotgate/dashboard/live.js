// Keeps the page up to date: the server sends the parts that changed, and only what is different
// in them is touched, so that focus, scroll, selection and what is unfolded stay.
"use strict";

(() => {
  const state = document.getElementById("live");
  let skew = Number(state.dataset.now) - Date.now() / 1000;
  let stream = null;
  let retry = 0;

  function tell(text, kind) {
    if (state.textContent !== text) state.textContent = text;
    state.className = `live ${kind}`;
  }

  function keyOf(node) {
    return node.nodeType === Node.ELEMENT_NODE ? node.id || node.dataset.key || "" : "";
  }

  function alike(a, b) {
    return a.nodeType === b.nodeType && a.nodeName === b.nodeName && keyOf(a) === keyOf(b);
  }

  function patch(old, now) {
    if (old.nodeType !== Node.ELEMENT_NODE) {
      if (old.nodeValue !== now.nodeValue) old.nodeValue = now.nodeValue;
      return;
    }
    for (const { name } of [...old.attributes]) {
      const own = name === "open" && old.nodeName === "DETAILS";
      if (!own && !now.hasAttribute(name)) old.removeAttribute(name);
    }
    for (const { name, value } of now.attributes) {
      if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    patchChildren(old, now);
  }

  function patchChildren(old, now) {
    const known = new Map();
    for (const child of old.childNodes) {
      const key = keyOf(child);
      if (key) known.set(key, child);
    }
    let at = old.firstChild;
    for (const wanted of [...now.childNodes]) {
      const key = keyOf(wanted);
      let found = key ? known.get(key) : at;
      // what has a key of its own is not made into something else
      while (!key && found && keyOf(found)) found = found.nextSibling;
      if (found && alike(found, wanted)) {
        known.delete(key);
        if (found === at) at = at.nextSibling;
        else if (found.contains(document.activeElement)) {
          // what is moved loses the focus, so the others are
          const after = found.nextSibling;
          while (at !== found) {
            const next = at.nextSibling;
            old.insertBefore(at, after);
            at = next;
          }
          at = found.nextSibling;
        } else old.insertBefore(found, at);
        patch(found, wanted);
      } else {
        old.insertBefore(wanted, at);
      }
    }
    while (at) {
      const next = at.nextSibling;
      at.remove();
      at = next;
    }
  }

  function ago(seconds) {
    if (seconds < 1) return "now";
    if (seconds < 60) return `${Math.floor(seconds)} s ago`;
    if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
    if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ago`;
    return `${Math.floor(seconds / 86400)} d ago`;
  }

  function age() {
    const now = Date.now() / 1000 + skew;
    for (const time of document.querySelectorAll("time[data-at]")) {
      const text = ago(now - Number(time.dataset.at));
      if (time.textContent !== text) time.textContent = text;
    }
  }

  function show(event) {
    const { name, html } = JSON.parse(event.data);
    const old = document.getElementById(name);
    if (!old) return;
    const parsed = document.createElement("template");
    parsed.innerHTML = html;
    patch(old, parsed.content.firstElementChild);
    age();
  }

  // not more often than every few seconds, whatever the server says
  function reload() {
    close();
    retry = setTimeout(() => location.reload(), Math.max(0, 3000 - performance.now()));
  }

  // the browser does not tell why a stream did not begin
  async function again() {
    if (document.hidden) return;
    const answer = await fetch(state.dataset.events, { method: "HEAD" }).catch(() => null);
    if (answer && answer.status === 401) reload();
    else open();
  }

  function open() {
    if (stream || document.hidden) return;
    clearTimeout(retry);
    stream = new EventSource(state.dataset.events);
    stream.addEventListener("open", () => tell("live", "on"));
    stream.addEventListener("instance", (event) => {
      // the forms of this page are of a process that is gone
      if (event.data !== state.dataset.instance) reload();
    });
    stream.addEventListener("time", (event) => {
      skew = Number(event.data) - Date.now() / 1000;
    });
    stream.addEventListener("section", show);
    stream.addEventListener("error", () => {
      tell("not connected", "off");
      // after an answer that is no stream the browser would not try again
      if (stream.readyState === EventSource.CLOSED) {
        close();
        retry = setTimeout(again, 2000);
      }
    });
  }

  function close() {
    clearTimeout(retry);
    if (stream) stream.close();
    stream = null;
  }

  // nobody looks at a hidden page
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      close();
      tell("paused", "off");
    } else open();
  });
  addEventListener("pagehide", close);
  addEventListener("pageshow", open);
  setInterval(() => {
    if (!document.hidden) age();
  }, 1000);
  open();
})();
