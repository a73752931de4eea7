
"use strict";
const table = document.getElementById("table");
const body = table.tBodies[0];
const search = document.getElementById("search");
const verdict = document.getElementById("verdict");
const only = document.getElementById("only");
let key = "";

const filter = () => {
  const words = search.value.toLowerCase().split(/\s+/);
  let shown = 0;
  for (const row of body.rows) {
    const text = row.textContent.toLowerCase();
    const fits = words.every((word) => text.includes(word)) && (!verdict.value || row.dataset.verdict === verdict.value)
      && (!key || row.dataset.fails.split(" ").includes(key));
    row.hidden = !fits;
    if (fits) shown += 1;
  }
  only.hidden = !key;
  document.getElementById("shown").textContent = `${shown} of ${body.rows.length} shown`;
};
search.addEventListener("input", filter);
verdict.addEventListener("change", filter);
only.querySelector("button").addEventListener("click", () => { key = ""; filter(); search.focus(); });
for (const button of document.querySelectorAll("[data-key]")) {
  button.addEventListener("click", () => {
    key = button.dataset.key;
    only.querySelector("strong").textContent = button.dataset.what;
    filter();
    document.getElementById("students").scrollIntoView();
    only.querySelector("button").focus();
  });
}

const heads = [...table.tHead.rows[0].cells];
const sort = (column, up) => {
  const value = (row) => row.cells[column].dataset.sort;
  const compare = heads[column].className === "number"
    ? (one, other) => Number(value(one)) - Number(value(other))
    : (one, other) => value(one).localeCompare(value(other), undefined, { numeric: true });
  body.append(...[...body.rows].sort((one, other) => (up ? 1 : -1) * compare(one, other)));
  heads.forEach((head, number) => {
    if (number === column) head.setAttribute("aria-sort", up ? "ascending" : "descending");
    else head.removeAttribute("aria-sort");
  });
};
heads.forEach((head, column) => {
  const button = head.querySelector("button");
  if (button) button.addEventListener("click", () => sort(column, head.getAttribute("aria-sort") !== "ascending"));
});
sort(0, true);
