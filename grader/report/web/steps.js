
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
