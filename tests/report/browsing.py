"""What tests of the page in a browser share."""

import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page

from lntrust.core.text import score_text
from lntrust.report.page.html import with_minus

Opened = Callable[..., Any]  # see conftest.py


def option(page: Page, selector: str) -> dict[str, Any]:
    """What a chart draws."""
    script = "s => JSON.stringify(Charts.known.get(document.querySelector(s)).chart.getOption())"
    return dict(json.loads(page.evaluate(script, selector)))


def drawn(page: Page) -> int:
    return int(page.evaluate("[...Charts.known.values()].filter(entry => entry.chart).length"))


def until(page: Page, script: str) -> None:
    """Wait until this is true. Not Playwright's own waiting: the page's policy forbids to evaluate text."""
    for _ in range(100):
        if page.evaluate(script):
            return
        page.wait_for_timeout(50)
    pytest.fail(f"never came true: {script}")


def contrast(page: Page, selector: str) -> float:
    """WCAG's contrast between an element's text and what it stands on."""
    colours = page.evaluate(
        """selector => {
            let element = document.querySelector(selector);
            const text = getComputedStyle(element).color;
            const clear = colour => colour === "rgba(0, 0, 0, 0)";
            const ground = () => getComputedStyle(element).backgroundColor;
            while (clear(ground()) && element !== document.body) element = element.parentElement;
            return [text, ground()];
        }""",
        selector,
    )
    light, dark = sorted((luminance(colour) for colour in colours), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def number(value: float) -> str:
    """As the page writes scores."""
    return with_minus(score_text(value))


def luminance(colour: str) -> float:
    parts = np.array([float(x) / 255 for x in re.findall(r"[\d.]+", colour)[:3]])
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])
