
"use strict";
const frame = document.querySelector(".kills");
const drawing = frame.querySelector("svg");
const tip = frame.querySelector(".tip");
const [reply, program, place] = tip.querySelectorAll("strong, span");
const cross = drawing.querySelector(".cross");
const marks = (selector, axis, size) => [...drawing.querySelectorAll(selector)].map((group) => {
  const rect = group.querySelector("rect"), start = Number(rect.getAttribute(axis));
  const title = group.querySelector("title"), text = title.textContent;
  title.remove();
  return { group, text, start, end: start + Number(rect.getAttribute(size)) };
});
const columns = marks(".case", "x", "width"), rows = marks(".program", "y", "height");
const at = (all, value) => all.find(({ start, end }) => start <= value && value < end);
const hide = () => { tip.hidden = true; cross.setAttribute("d", ""); };

drawing.addEventListener("pointermove", (event) => {
  const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(drawing.getScreenCTM().inverse());
  const column = at(columns, point.x), row = at(rows, point.y);
  if (!column && !row) { hide(); return; }
  const cells = row && row.group.querySelector("path");
  const middle = row && (row.start + row.end) / 2;
  const fails = cells && column && cells.isPointInStroke(new DOMPoint((column.start + column.end) / 2, middle));
  reply.textContent = column && row ? (fails ? "✗ fails" : "passes") : "";
  program.textContent = row ? row.text : "";
  place.textContent = column ? column.text : "";
  const box = drawing.viewBox.baseVal;
  cross.setAttribute("d", (row ? `M0 ${row.start}H${box.width}M0 ${row.end}H${box.width}` : "")
    + (column ? `M${column.start} 0V${box.height}M${column.end} 0V${box.height}` : ""));
  tip.hidden = false;
  const left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
  const above = event.clientY + 18 + tip.offsetHeight > innerHeight;
  tip.style.left = `${Math.max(8, left)}px`;
  tip.style.top = `${above ? event.clientY - tip.offsetHeight - 10 : event.clientY + 18}px`;
});
drawing.addEventListener("pointerleave", hide);
