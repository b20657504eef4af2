"use strict";
document.documentElement.classList.add("js");
const get = s => document.querySelector(s), field = get("#search"), info = get("#info"), now = get("#now");
const every = 2000, typing = 150;
// like makes a node what another one is, and keeps what is the same: focus, selections and what a
// person has opened stay.
const like = (a, b) => {
  if (a.nodeType === 3) { if (a.data !== b.data) a.data = b.data; return; }
  if (a.nodeType !== 1) return;
  for (const { name } of [...a.attributes]) if (!b.hasAttribute(name) && name !== "open") a.removeAttribute(name);
  for (const { name, value } of b.attributes) if (a.getAttribute(name) !== value && name !== "open") a.setAttribute(name, value);
  const known = new Map([...a.children].filter(c => c.id).map(c => [c.id, c]));
  let at = a.firstChild;
  for (const wanted of [...b.childNodes]) {
    let same = wanted.id ? known.get(wanted.id) : at;
    if (!same || same.nodeName !== wanted.nodeName || !wanted.id && same.id) { a.insertBefore(wanted, at); continue; }
    if (same === at) at = at.nextSibling; else a.insertBefore(same, at);
    like(same, wanted);
  }
  while (at) { const next = at.nextSibling; at.remove(); at = next; }
};
const show = parts => {
  const focused = document.activeElement && document.activeElement.id;
  for (const { name, version, html } of parts) {
    const section = document.getElementById(name), read = new DOMParser().parseFromString("<section>" + html + "</section>", "text/html").body.firstChild;
    read.id = name;
    read.dataset.version = version;
    like(section, read);
  }
  // An element that was moved has lost the focus.
  const element = focused && document.activeElement === document.body && document.getElementById(focused);
  if (element) element.focus({ preventScroll: true });
};
let turn = 0, timer = 0, tag = "", last = new Date().toLocaleTimeString();
const ask = async () => {
  const mine = ++turn, q = field.value.trim();
  clearTimeout(timer);
  const have = [...document.querySelectorAll("section[data-version]")].map(s => s.dataset.version).join(".");
  try {
    const answer = await fetch("state?" + new URLSearchParams({ q, have }), { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store" });
    const read = answer.status === 304 ? null : await answer.json();
    if (mine !== turn) return;
    if (read && !answer.ok) throw new Error(read.error || "the answer is " + answer.status);
    if (read) {
      show(read.parts);
      info.textContent = read.info;
      tag = answer.headers.get("ETag") || "";
    }
    now.classList.remove("old");
    last = new Date().toLocaleTimeString();
    now.textContent = "live, as of " + last;
  } catch (e) {
    if (mine !== turn) return;
    now.classList.add("old");
    now.textContent = "not live since " + last + ": " + e.message;
  }
  // What nobody looks at is not asked for.
  if (!document.hidden) timer = setTimeout(ask, every);
};
field.addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(() => {
    history.replaceState(null, "", "./" + (field.value.trim() ? "?" + new URLSearchParams({ q: field.value.trim() }) : ""));
    ask();
  }, typing);
});
field.form.addEventListener("submit", e => e.preventDefault());
addEventListener("keydown", e => {
  if (e.key === "/" && document.activeElement !== field && !e.ctrlKey && !e.metaKey && !e.altKey) { e.preventDefault(); field.focus(); }
});
document.addEventListener("visibilitychange", () => { if (!document.hidden) ask(); });
ask();
