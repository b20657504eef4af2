"use strict";
const all = (q, root = document) => [...root.querySelectorAll(q)];
const field = document.querySelector("#search"), info = document.querySelector("#info");
const rows = all("tr[data-a]"), searched = all("tr[data-a], tr[data-f]"), sections = all("details");
rows.forEach(r => { r.tabIndex = 0; });
const wereOpen = sections.map(s => s.open);
// Search: only rows with all words of the field are shown, and only sections with such rows.
field.addEventListener("input", () => {
  const words = field.value.toLowerCase().split(/\s+/).filter(w => w);
  for (const r of searched) {
    const s = r.closest("details");
    const text = ((s.dataset.ns || s.querySelector("summary").textContent) + " " + r.textContent).toLowerCase();
    r.hidden = !words.every(w => text.includes(w));
  }
  sections.forEach((s, i) => {
    const hits = all("tr[data-a]:not([hidden]), tr[data-f]:not([hidden])", s).length;
    s.hidden = words.length > 0 && hits === 0;
    s.open = words.length > 0 ? hits > 0 : wereOpen[i];
  });
  info.textContent = words.length ? all("tr[data-a]:not([hidden])").length + " of " + rows.length + " flows" : "";
});
// A row shows its lines, and a line its rows and their events.
const choose = e => {
  const el = e.target.closest && e.target.closest("[data-a], [data-s]"), s = el && el.closest("details");
  if (!s) return;
  for (const old of all(".on")) old.classList.remove("on");
  const same = o => ["a", "s"].every(k => !(k in el.dataset) || !(k in o.dataset) || el.dataset[k] === o.dataset[k]);
  const on = all("[data-a], [data-s]", s).filter(same);
  on.forEach(o => o.classList.add("on"));
  info.textContent = on.filter(o => o.tagName === "TR").slice(0, 5).map(r => [...r.cells].slice(0, 3).map(c => c.textContent).join(" ")).join("; ");
};
for (const kind of ["focusin", "click", "mouseover"]) document.addEventListener(kind, choose);
// A link to a row opens its section.
const follow = () => {
  const to = location.hash && document.getElementById(location.hash.slice(1));
  if (!to) return;
  to.closest("details").open = true;
  to.scrollIntoView({ block: "center" });
  to.focus();
};
addEventListener("hashchange", follow);
follow();
