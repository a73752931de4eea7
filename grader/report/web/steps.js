
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
for (const focus of document.querySelectorAll(".focus")) {
  const from = focus.querySelector(".code .here"), to = focus.querySelector("td.first");
  const path = focus.querySelector(".thread path");
  if (!path || !to) continue;
  const draw = () => {
    const whole = focus.getBoundingClientRect(), line = from.getBoundingClientRect(), cell = to.getBoundingClientRect();
    const left = whole.left + focus.clientLeft, top = whole.top + focus.clientTop;
    const x = cell.left + cell.width / 2 - left, between = to.closest(".states").getBoundingClientRect().top - top - 4;
    const right = from.closest("pre").getBoundingClientRect().right - left, height = line.top + line.height / 2 - top;
    path.setAttribute("d", `M ${x} ${cell.top - top} V ${between} H ${right + 8} V ${height} H ${right}`);
  };
  draw();
  addEventListener("resize", draw);
}
