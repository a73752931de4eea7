"""The web pages in a real browser: steps, keys, sorting, filters, nothing on the console, no script of theirs."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from grader.report import FORMATS
from grader.report.class_page import class_page
from grader.report.document import View
from grader.tests.report.test_class_page import CLASS
from grader.tests.support.browser import NO_CHROMIUM, Browser, chromium
from grader.tests.support.graded import drawn
from grader.tests.support.injected import INJECTIONS, filled

pytestmark = pytest.mark.skipif(chromium() is None, reason=NO_CHROMIUM)

_FIRST_SCREENS = {
    "append_pointer_scale": (1, 1),
    "no_copy_on_write": (0, 1),
    "append_without_second_l2_table": (1, 0),
    "sign_compare": (1, 0),
}
"""By sample: lines that are marked, first wrong cells."""

_SHOWN = "document.querySelector('.scene:not([hidden]) .says').innerText"
_ROWS = "[...document.querySelectorAll('#table tbody tr')].filter((row) => row.offsetParent)"
_NAMES = f"{_ROWS}.map((row) => row.cells[0].innerText).join(' ')"


def shown(browser: Browser, folder: Path, name: str) -> Browser:
    """The browser, with the report of a sample."""
    file = folder / f"{name}.html"
    file.write_text(FORMATS["html"](drawn(name), View()), encoding="utf-8")
    browser.open(file)
    return browser


@pytest.fixture
def report(browser: Browser, tmp_path: Path) -> Browser:
    """It shows the report of a failing program."""
    return shown(browser, tmp_path, "no_copy_on_write")


@pytest.fixture
def located(browser: Browser, tmp_path: Path) -> Browser:
    """It shows the report of a program that stores something wrong, at a line that is known."""
    return shown(browser, tmp_path, "append_pointer_scale")


@pytest.fixture
def table(browser: Browser, tmp_path: Path) -> Browser:
    """It shows a class."""
    file = tmp_path / "index.html"
    file.write_text(class_page(CLASS, View(instructor=True)), encoding="utf-8")
    browser.open(file)
    return browser


def test_a_report_opens_at_the_mistake(report: Browser) -> None:
    """One scene of a picture is shown, with the wrong word in it, and nobody complains."""
    assert "After operation 4: append_kv 2 77" in report.ask(_SHOWN)
    assert report.ask("document.querySelectorAll('.picture .scene:not([hidden])').length") == report.ask(
        "document.querySelectorAll('.picture').length"
    )
    assert report.ask("document.querySelector('.scene:not([hidden]) td.wrong').getBoundingClientRect().height") > 20
    assert report.complaints == []


def test_what_is_wrong_is_seen_without_scrolling(browser: Browser, tmp_path: Path) -> None:
    """On a screen of 1300 x 900: the line at fault and the first wrong cell, where there is one."""
    browser.resize(1300)
    for name, (lines, cells) in _FIRST_SCREENS.items():
        shown(browser, tmp_path, name)

        assert browser.ask("document.querySelector('.focus').getBoundingClientRect().bottom") <= 900
        assert browser.ask("document.querySelectorAll('.code .here').length") == lines
        assert browser.ask("document.querySelectorAll('td.first').length") == cells
    browser.resize(0)


def test_a_line_leads_from_the_first_wrong_cell_to_the_source(located: Browser) -> None:
    """It begins at the upper edge of the one and ends at the right of the other, however wide the window is."""
    ends = """(() => {
      const box = (one) => document.querySelector(one).getBoundingClientRect();
      const path = document.querySelector('.thread path'), drawn = path.getBoundingClientRect();
      const cell = box('td.first'), line = box('.code .here');
      return [drawn.bottom - cell.top, drawn.top - (line.top + line.height / 2)].map(Math.abs); })()"""
    for width in (1300, 1000):
        located.resize(width)
        until = time.monotonic() + 20
        while max(located.ask(ends)) >= 3 and time.monotonic() < until:  # the page hears of it with its next frame
            time.sleep(0.05)

        assert max(located.ask(ends)) < 3
    located.resize(0)
    assert located.complaints == []


def test_a_program_is_copied_by_a_button(report: Browser) -> None:
    """Or it is selected, where a page may not write to the clipboard."""
    report.ask("document.querySelector('[data-copy]').closest('details').open = true")
    report.click("[data-copy]")
    until = time.monotonic() + 20
    while report.ask("document.querySelector('[data-copy]').innerText") == "Copy it" and time.monotonic() < until:
        time.sleep(0.05)

    assert report.ask("document.querySelector('[data-copy]').innerText").startswith(("Copied", "Selected"))
    assert "#include" in report.ask("getSelection().toString()")
    assert report.complaints == []


def test_buttons_and_operations_step(report: Browser) -> None:
    """Back, on, to an operation, to the mistake; the ends stay where they are."""
    seen = []
    for button in ("[data-go=back]", "[data-go=back]", "[data-go=mistake]", "[data-go=on]", "[data-scene='0']"):
        report.click(button)
        seen.append(report.ask(_SHOWN).split(":")[0].split()[-1])
    report.click("[data-go=back]")

    assert seen == ["3", "2", "4", "5", "1"]
    assert report.ask("document.querySelector('[data-go=back]').disabled")
    assert report.ask("document.querySelector('[aria-current=step]').innerText").startswith("1")
    assert report.complaints == []


def test_the_keyboard_alone_steps(report: Browser) -> None:
    """Arrows and ends on the slider, which tab reaches; an operation by the enter key."""
    report.ask("document.querySelector('[data-go=back]').focus()")
    report.press("Tab", "ArrowLeft")
    left = report.ask(_SHOWN)
    report.press("Home")
    first = report.ask(_SHOWN)
    report.press("End")
    report.ask("document.querySelector('[data-scene=\"1\"]').focus()")
    report.press("Enter")

    assert "operation 3" in left
    assert "operation 1" in first
    assert "operation 2" in report.ask(_SHOWN)
    assert report.ask("document.querySelector('input[type=range]').getAttribute('aria-valuetext')").startswith("2")


def test_dark_and_light_are_both_readable(located: Browser) -> None:
    """Contrast of text to paper as WCAG asks (4.5), on plain and on wrong cells."""
    lights = """(() => { const light = (text) => {
      const [r, g, b] = text.match(/\\d+/g).map((part) => part / 255)
        .map((part) => part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
      return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
      const pairs = [['body', 'body'], ['.picture td.wrong b', '.picture td.wrong'],
        ['.picture td.wrong i', '.picture td.wrong'], ['.quiet', 'body'], ['.code .here', '.code .here'],
        ['.code .key', '.code pre'], ['.code .here .at', '.code .here'], ['td.first', 'td.first'],
        ['td.right', 'td.right'],
        ['.cells td.dim', 'body'], ['.source .at', 'body'], ['.cells th.at', 'body']];
      return pairs.map(([ink, paper]) => {
        const [one, other] = [light(getComputedStyle(document.querySelector(ink)).color),
          light(getComputedStyle(document.querySelector(paper)).backgroundColor)];
        return (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05); }); })()"""
    papers = []
    for scheme in ("light", "dark"):
        located.prefer(scheme)
        papers.append(located.ask("getComputedStyle(document.body).backgroundColor"))

        assert min(located.ask(lights)) >= 4.5

    located.prefer("light")
    assert papers[0] != papers[1]


def test_a_table_sorts(table: Browser) -> None:
    """By name, by points down and up, said to who does not see the arrow."""
    by_name = table.ask(_NAMES)
    table.click("#table th:nth-child(2) button")
    up = table.ask(_NAMES)
    table.click("#table th:nth-child(2) button")
    down = table.ask(_NAMES)

    assert by_name == "ann bob cem dora eve fay gil hal ida"
    assert up.startswith("eve cem bob")
    assert down.endswith("bob cem eve")
    assert table.ask("document.querySelector('[aria-sort=descending]').innerText").startswith("points")
    assert table.complaints == []


def test_a_table_filters(table: Browser) -> None:
    """By what is typed, by who fails a case, and both; then all are back."""
    table.ask("document.getElementById('search').focus()")
    table.press("e", "v", "e")
    typed = table.ask(_NAMES)
    table.ask("const s = document.getElementById('search'); s.value = ''; s.dispatchEvent(new Event('input'))")
    table.click("[data-key='0']")
    failing, status = table.ask(_NAMES), table.ask("document.getElementById('shown').innerText")
    table.press("Enter")  # the button that shows all has the focus

    assert typed == "eve"
    assert failing == "bob cem eve"
    assert status == "3 of 9 shown"
    assert len(table.ask(_NAMES).split()) == 9
    assert table.complaints == []


def test_nothing_in_a_record_runs(browser: Browser, tmp_path: Path) -> None:
    """Every attack in every text of a report and of a class: no dialog, no script, nothing loaded, no complaint."""
    records = [filled(text) for text in INJECTIONS.values()]
    worst = [filled(INJECTIONS[name]) for name in ("script", "attribute", "template", "link")]
    view = View(instructor=True)
    pages = [class_page(records, view), *(FORMATS["html"](record, view) for record in worst)]
    for number, page in enumerate(pages):
        file = tmp_path / f"{number}.html"
        file.write_text(page, encoding="utf-8")
        browser.open(file)

        assert browser.complaints == []
        assert browser.ask("document.scripts.length") == 1
        assert browser.ask("document.images.length") == 0


def test_a_telephone_shows_all_of_a_page(browser: Browser, tmp_path: Path) -> None:
    """Nothing is wider than 400 pixels but what scrolls in a frame of its own, and no column is a letter wide."""
    widest = "document.documentElement.scrollWidth"
    narrow = (
        "[...document.querySelectorAll('.list td')].filter((one) => one.innerText.length > 9 && one.clientWidth < 60)"
    )
    pages = [FORMATS["html"](drawn("no_copy_on_write"), View()), class_page(CLASS, View(instructor=True))]
    browser.resize(400)
    for number, page in enumerate(pages):
        file = tmp_path / f"{number}.html"
        file.write_text(page, encoding="utf-8")
        browser.open(file)

        assert browser.ask(widest) <= 400
        assert browser.ask(f"{narrow}.length") == 0
    browser.resize(0)


def test_the_browser_would_complain(browser: Browser, tmp_path: Path) -> None:
    """Else the tests above would show nothing: a foreign script, a picture, an error, a message."""
    page = FORMATS["html"](drawn("no_copy_on_write"), View())
    file = tmp_path / "page.html"
    seen = []
    for old, new in (
        ("<main>", "<main><script>document.title = 'x'</script>"),
        ("<main>", "<main><img src='x.png' onerror='alert(1)'>"),
        ("default-src 'none'", "default-src 'none' 'unsafe-inline'"),
    ):
        assert old in page
        file.write_text(page.replace(old, new, 1), encoding="utf-8")
        browser.open(file)
        seen.append(len(browser.complaints))
    browser.ask("setTimeout(() => { throw new Error('x') }); console.log('x')")
    browser.ask("new Promise((done) => setTimeout(done, 50))")

    assert all(seen[:2])
    assert len(browser.complaints) > seen[2]
