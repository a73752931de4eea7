
"use strict";
for (const picture of document.querySelectorAll(".picture")) {
  const slider = picture.querySelector("input");
  const scenes = [...picture.querySelectorAll(".scene")];
  const steps = [...picture.querySelectorAll("[data-scene]")];
  const [back, on, mistake] = picture.querySelectorAll("[data-go]");
  const bad = Number(picture.dataset.bad);
  const show = (wanted) => {
    const now = Math.max(0, Math.min(scenes.length - 1, wanted));
    scenes.forEach((scene, number) => { scene.hidden = number !== now; });
    steps.forEach((step, number) => {
      if (number === now) step.setAttribute("aria-current", "step"); else step.removeAttribute("aria-current");
    });
    slider.value = now;
    slider.setAttribute("aria-valuetext", steps[now].textContent.replace(/\s+/g, " ").trim());
    back.disabled = now === 0;
    on.disabled = now === scenes.length - 1;
    mistake.disabled = now === bad;
  };
  slider.addEventListener("input", () => show(Number(slider.value)));
  back.addEventListener("click", () => show(Number(slider.value) - 1));
  on.addEventListener("click", () => show(Number(slider.value) + 1));
  mistake.addEventListener("click", () => show(bad));
  steps.forEach((step, number) => step.addEventListener("click", () => show(number)));
  show(bad);
}
for (const button of document.querySelectorAll("[data-copy]")) {
  const program = button.closest("details").querySelector("pre");
  button.addEventListener("click", async () => {
    const all = document.createRange();
    all.selectNodeContents(program);
    getSelection().removeAllRanges();
    getSelection().addRange(all);
    try {
      await navigator.clipboard.writeText(program.textContent);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Selected: copy it with Ctrl-C";
    }
  });
}
const fit = (frame) => {
  const tables = frame.querySelectorAll(":scope > .cells");
  for (const table of tables) table.classList.remove("folds");
  for (const table of tables) table.classList.toggle("folds", table.offsetWidth > frame.clientWidth);
  frame.classList.toggle("scrolls", frame.scrollWidth > frame.clientWidth + 1);
};
const widths = new WeakMap();
const watcher = new ResizeObserver((entries) => {
  for (const { target, contentRect } of entries) {
    if (!contentRect.width || widths.get(target) === contentRect.width) continue;
    widths.set(target, contentRect.width);
    fit(target);
  }
  draw();
});
const draw = () => {
  for (const focus of document.querySelectorAll(".focus")) {
    const from = focus.querySelector(".code .here"), to = focus.querySelector("td.first");
    const path = focus.querySelector(".thread path");
    if (!path || !to) continue;
    const whole = focus.getBoundingClientRect(), line = from.getBoundingClientRect(), cell = to.getBoundingClientRect();
    const left = whole.left + focus.clientLeft, top = whole.top + focus.clientTop;
    const beside = to.closest(".state").getBoundingClientRect().right - left + 8;
    const between = to.closest(".states").getBoundingClientRect().top - top - 4;
    const right = from.closest("pre").getBoundingClientRect().right - left, height = line.top + line.height / 2 - top;
    path.setAttribute("d", `M ${cell.left + cell.width / 2 - left} ${cell.top - top} v -3 H ${beside} V ${between} H ${right + 8} ` +
      `V ${height} H ${right}`);
  }
};
for (const frame of document.querySelectorAll(".panel, .state, .scroll, pre")) watcher.observe(frame);
draw();
addEventListener("resize", draw);
