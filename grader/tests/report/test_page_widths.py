"""The page of one submission, wide and narrow, for seven kinds of failure in each lab: nothing is cut off or crossed.

The states of two engines stand beside each other, before the call and after it.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from grader.report import FORMATS
from grader.report.document import View
from grader.tests.support.browser import NO_CHROMIUM, Browser, chromium
from grader.tests.support.chosen import few
from grader.tests.support.graded import drawn_public

pytestmark = pytest.mark.skipif(chromium() is None, reason=NO_CHROMIUM)

_WIDTHS = (1300, 400)
_SAMPLES = {
    "paged_kv": (
        "wrong_answer/no_copy_on_write",
        "wrong_answer/append_pointer_scale",
        "wrong_answer/all_null",
        "run_time_error/append_without_second_l2_table",
        "memory_leak/destroy_keeps_l2_tables",
        "memory_error/l2_tables_freed_twice",
        "compile_error/sign_compare",
        "rejected/constructor_attribute",
    ),
    "block_pool": (
        "wrong_answer/append_hashes_one_block",
        "wrong_answer/hash_ignores_parent",
        "wrong_answer/misspelt_names",
        "wrong_answer/copies_nothing",
        "compile_error/does_not_compile",
        "run_time_error/second_allocation_crashes",
        "time_limit_exceeded/remove_searches_forever",
    ),
    "scheduler": (
        "wrong_answer/caps_before_hits",
        "wrong_answer/abort_wipes_fields",
        "wrong_answer/percent_by_floats",
        "compile_error/no_compile",
        "run_time_error/crashes_on_preemption",
        "run_time_error/half_written",
        "time_limit_exceeded/hostile_running_without_end",
    ),
    "hybrid": (
        "wrong_answer/caches_every_full_block",
        "wrong_answer/fills_holes_first",
        "wrong_answer/gcd_entries_are_pages",
        "compile_error/does_not_compile",
        "run_time_error/second_allocation_crashes",
        "run_time_error/unfinished_and_misspelt",
        "time_limit_exceeded/hostile_table_without_end",
    ),
    "offload": (
        "wrong_answer/attention_before_the_load",
        "wrong_answer/causal_mask_in_decode",
        "wrong_answer/blocks_not_returned",
        "wrong_answer/flush_event_early",
        "run_time_error/ring_larger_than_model",
        "run_time_error/freed_then_recorded",
        "time_limit_exceeded/hostile_log_without_end",
    ),
}
_EACH = [sample for lab, samples in _SAMPLES.items() for sample in few(f"{lab}/{name}" for name in samples)]

_OPEN_ALL = """document.querySelectorAll('details').forEach((details) => { details.open = true; });
document.querySelectorAll('.scene').forEach((scene) => { scene.hidden = false; });
window.settled = false;
requestAnimationFrame(() => requestAnimationFrame(() => { window.settled = true; }));"""

_CUT_OFF = """(() => {
  const scrolls = (element) => /auto|scroll/.test(getComputedStyle(element).overflowX);
  const all = [...document.querySelectorAll('body *')];
  const beyond = all.filter((element) => {
    if (element.closest('.unseen') || element.getBoundingClientRect().right <= innerWidth + 1) return false;
    for (let frame = element.parentElement; frame; frame = frame.parentElement) if (scrolls(frame)) return false;
    return true; });
  const silent = all.filter((element) =>
    scrolls(element) && element.scrollWidth > element.clientWidth + 1 && !element.classList.contains('scrolls'));
  return [...beyond, ...silent].map((element) => element.outerHTML.slice(0, 100)); })()"""
"""What is cut off by the window, and frames that scroll without saying so."""

_CROSSED = """(() => {
  const texts = (root) => {
    const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT), boxes = [];
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      const range = document.createRange();
      range.selectNodeContents(node);
      if (node.data.trim()) for (const box of range.getClientRects()) boxes.push([box, node.data.trim()]);
    }
    return boxes;
  };
  const boxes = (root, selector) =>
    [...root.querySelectorAll(selector)].map((element) => [element.getBoundingClientRect(), element.textContent]);
  const crossed = (path, obstacles) => {
    const length = path.getTotalLength(), matrix = path.getScreenCTM(), names = new Set();
    for (let at = 2; at < length - 2; at += 1) {
      const { x, y } = path.getPointAtLength(at).matrixTransform(matrix);
      for (const [box, name] of obstacles) {
        const inside = x > box.left + 1 && x < box.right - 1 && y > box.top + 1 && y < box.bottom - 1;
        if (inside) names.add(name);
      }
    }
    return [...names];
  };
  const lines = (frame, selector, solid) => [...document.querySelectorAll(frame)].flatMap((root) =>
    [...root.querySelectorAll(selector)]
      .filter((path) => path.checkVisibility() && path.getTotalLength() > 1)
      .map((path) => crossed(path, [...texts(root), ...boxes(root, solid)])));
  const threads = lines('.focus', '.thread path', '.state td, pre'), arrows = lines('.chart svg', '.arrow', 'rect');
  return { threads, arrows }; })()"""
"""By each line of the page: the texts and boxes that it crosses."""


def show(browser: Browser, file: Path, sample: str, width: int) -> None:
    """Show the page of a sample (`LAB/VERDICT/NAME`), all of it open, and wait until its script has reacted."""
    file.write_text(FORMATS["html"](drawn_public(*sample.split("/", 1)), View()), encoding="utf-8")
    browser.resize(width)
    browser.open(file)
    browser.ask(_OPEN_ALL)
    until = time.monotonic() + 20
    while not browser.ask("window.settled"):
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.parametrize("sample", _EACH)
def test_nothing_is_cut_off(browser: Browser, tmp_path: Path, sample: str) -> None:
    """The page is as wide as the window; what is wider folds, or says that its frame scrolls. Lines cross nothing."""
    for width in _WIDTHS:
        show(browser, tmp_path / "page.html", sample, width)

        assert browser.ask("document.documentElement.scrollWidth <= innerWidth")
        assert browser.ask(_CUT_OFF) == []
        lines: dict[str, list[list[str]]] = browser.ask(_CROSSED)
        assert [names for names in lines["threads"] + lines["arrows"] if names] == []
        assert browser.complaints == []
    browser.resize(0)
