"""Lays out the header of the explorer's page: title, link button, keyboard shortcuts and colour scheme."""

import json
from collections.abc import Callable
from typing import Any

from nplm_jax.apps.explorer import parts
from nplm_jax.runs.command_models import LoadedModels
from nplm_jax.utils.packages import OptionalPackage

ui = OptionalPackage('nicegui.ui', 'explore')
TITLE = 'nplm-jax explorer'
KEYS = {
    '1 … 9, 0': 'append a word from the framed list',
    '← →': 'switch to the list of another model',
    'Backspace': 'delete the last word',
    '/': 'go to the text field; Esc leaves it',
    '↑ ↓': 'in the text field: choose a word from the framed list',
    'Enter': 'in the text field: append the chosen word',
}
NEXT_THEME = {None: False, False: True, True: None}  # values of `ui.dark_mode`; None follows the system


def build_header(models: LoadedModels) -> None:
    """Lays out the title and the buttons."""
    corpus = ', '.join(dict.fromkeys(settings.corpus.name for settings in models.settings))
    with ui.element('header').classes('w-full flex items-start no-wrap gap-1'):
        with ui.element('div').classes('grow'):
            parts.tagged('h1', TITLE)
            unit = 'token' if models.vocabulary.tokenizer.tokens else 'word'
            vocabulary = f'{len(models.vocabulary):,} {unit}s'
            text = f'Predictions of models trained on {corpus}, {unit} by {unit}. Vocabulary: {vocabulary}.'
            ui.label(text).classes('quiet')
        _icon_button('link', 'copy a link to this view', _copy_link)
        _icon_button('keyboard', 'keyboard shortcuts', _keys().open).classes('keys')
        _theme_button()


def _icon_button(icon: str, label: str, on_click: Callable[[], object]) -> Any:
    """Shows a button with only an icon."""
    return ui.button(icon=icon, on_click=on_click).props(f'flat round aria-label="{label}"').tooltip(label)


def _copy_link() -> None:
    """Copies the URL of the page to the clipboard."""
    ui.run_javascript('navigator.clipboard.writeText(location.href)')
    ui.notify('The link restores the text, the weights and the selected word.', type='positive')


def _keys() -> Any:
    """Returns the closed dialog that lists the keyboard shortcuts."""
    with ui.dialog() as dialog, ui.element('div').classes('panel'):
        parts.tagged('h2', 'Keyboard shortcuts')
        with ui.element('div').classes('grid gap-x-4 gap-y-2 items-baseline').style('grid-template-columns: auto 1fr'):
            for key, action in KEYS.items():
                parts.tagged('kbd', key).classes('justify-self-start')
                ui.label(action)
    return dialog


def _theme_button() -> None:
    """Lays out a button that cycles through system, light and dark colours. The browser stores the choice."""

    def choose_next() -> None:
        dark.set_value(NEXT_THEME[dark.value])
        ui.run_javascript(f'localStorage.setItem("theme", "{json.dumps(dark.value)}")')

    dark = ui.dark_mode(None)
    _icon_button('contrast', 'light, dark or system colours', choose_next).classes('theme')
    ui.on('theme', lambda event: dark.set_value(event.args))
    ui.run_javascript('emitEvent("theme", JSON.parse(localStorage.getItem("theme")))')
