"""The web pages in a real browser: steps, keys, sorting, filters, nothing on the console, no script of theirs."""

from __future__ import annotations

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
