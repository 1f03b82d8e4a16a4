"""The dashboard in other languages: all of it, and as the catalogues say it."""

from __future__ import annotations

import gettext
import html
import re
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone, translation

import relay
from relay.models import Queue, Stat
from tests import translations
from tests.dashboard.pages import PAGES, shown, url
from tests.dashboard.test_pages import fill

LANGUAGES = sorted(translations.PLURALS)
TEMPLATES = Path(relay.__file__).parent / "templates" / "relay" / "dashboard"
# What stays as it is in every language.
PLACES = re.compile(r"%\(\w+\)s|%%s|\{\w*\}|</?\w+>|&\w+;")
NAMES = {"relay", "Python", "Django", "PostgreSQL", "min"}
OVERVIEW = {
    "de": "Übersicht",
    "es": "Resumen",
    "fr": "Vue d’ensemble",  # noqa: RUF001 - as French writes it
    "ja": "概要",
    "zh_Hans": "概览",
}


def path_of(language: str) -> Path:
    return translations.catalogues()[language]


def test_there_are_these_languages() -> None:
    assert sorted(translations.catalogues()) == LANGUAGES == sorted(OVERVIEW)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_catalogue_says_all_of_it_and_nothing_else(language: str) -> None:
    catalogue = translations.read(path_of(language))
    said = translations.messages()
    forms = 2 if "nplurals=2" in translations.PLURALS[language] else 1

    remedy = "python -m tests.translations, and translate what is empty"
    assert sorted(said - catalogue.keys()) == [], remedy
    assert sorted(catalogue.keys() - said) == [], remedy
    for message, texts in catalogue.items():
        assert len(texts) == (forms if len(message) > 1 else 1), message
        for text in texts:
            assert text.strip() == text != "", f"{message}: {remedy}"
            assert sorted(PLACES.findall(text)) == sorted(PLACES.findall(message[-1]))


@pytest.mark.parametrize("language", LANGUAGES)
def test_gettext_reads_what_the_catalogue_says(language: str) -> None:
    path = path_of(language)
    catalogue = translations.read(path)
    content = path.with_suffix(".mo").read_bytes()
    found = gettext.GNUTranslations(BytesIO(content))

    assert content == translations.compiled(language, catalogue)
    assert path.read_text() == translations.written(language, catalogue)
    for message, texts in catalogue.items():
        if len(message) == 1:
            assert found.gettext(message[0]) == texts[0]
        else:
            assert found.ngettext(*message, 1) == texts[0]
            assert found.ngettext(*message, 5) == texts[-1]


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_page_speaks_the_language(browser: Client, language: str) -> None:
    job = fill(1)
    catalogue = translations.read(path_of(language))

    with translation.override(language.replace("_H", "-h")):
        for where in (*map(url, PAGES), url("job", job.pk)):
            page = html.unescape(shown(browser.get(where)))
            assert OVERVIEW[language] in page, where
            assert f'lang="{translation.get_language()}"' in page
        page = shown(browser.get(url("jobs")))
        question = shown(browser.post(url("act_on_job", job.pk), {"action": "delete"}))

    assert html.escape(catalogue["All jobs",][0]) not in ("", "All jobs")
    assert catalogue["Which jobs",][0] in page
    said = catalogue["Delete %(count)s job", "Delete %(count)s jobs"][0]
    assert said % {"count": "1"} in question


def test_no_word_of_a_template_is_said_past_gettext() -> None:
    for template in TEMPLATES.rglob("*.html"):
        text = re.sub(
            r"{% blocktranslate.*?endblocktranslate %}|{%.*?%}|{{.*?}}",
            "",
            template.read_text(),
            flags=re.DOTALL,
        )
        text = re.sub(r"<[^>]*>", " ", text)

        words = set(re.findall(r"[A-Za-z]{3,}", html.unescape(text)))

        assert words <= NAMES, template


def test_figures_of_charts_and_choices_are_no_languages_own(
    browser: Client, settings: Any
) -> None:
    settings.LANGUAGE_CODE, settings.USE_THOUSAND_SEPARATOR = "de", True
    Stat.objects.create(
        at=timezone.now().replace(second=0, microsecond=0) - timedelta(minutes=3),
        seconds=60,
        queue="default",
        task="tests.noop",
        outcome="completed",
        count=7,
        run_buckets=[0] * 24,
        wait_buckets=[0] * 24,
    )
    Queue.objects.create(name="default", weight=1000)

    page = browser.get(url("queue", "default")).content.decode()

    assert re.search(r'<rect[^>]* x="\d+\.\d+"', page)
    assert not re.search(r' (?:x|y|x1|width|height)="\d+,', page)
    assert '<option value="1440">' in page
    assert 'value="1000"' in page
