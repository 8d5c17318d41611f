"""The head of the explorer's page: its title, the link to copy, the keys, light and dark."""

from collections.abc import Callable

from nicegui import ui

from nplm_jax.cli.explorer import parts
from nplm_jax.cli.loaded_models import LoadedModels

TITLE = 'nplm-jax explorer'
KEYS = {
    '1 … 9, 0': 'append a word of the framed list',
    '← →': 'frame the list of another model',
    'Backspace': 'drop the last word',
    '/': 'go to the text field; Esc leaves it',
    '↑ ↓': 'in the text field: choose a word of the framed list',
    'Enter': 'in the text field: append the chosen word',
}
THEMES = {  # by the name that the browser keeps
    'auto': ('brightness_auto', 'colours as the system has them', None),
    'light': ('light_mode', 'light colours', False),
    'dark': ('dark_mode', 'dark colours', True),
}


def build_header(models: LoadedModels) -> None:
    """Lays out the title and the buttons."""
    corpus = ', '.join(dict.fromkeys(settings.corpus.name for settings in models.settings))
    with ui.element('header').classes('w-full flex items-start no-wrap gap-1'):
        with ui.element('div').classes('grow'):
            parts.heading('h1', TITLE)
            text = f'What models trained on {corpus} expect, word by word: {len(models.vocabulary):,} words'
            ui.label(text).classes('quiet')
        _icon_button('link', 'copy a link to this view', _copy_link)
        _icon_button('keyboard', 'keys', _keys().open).classes('keys')
        _theme_button()


def _icon_button(icon: str, label: str, on_click: Callable[[], object]) -> ui.button:
    button = ui.button(icon=icon, on_click=lambda: on_click()).props(f'flat round aria-label="{label}"')
    with button:
        ui.tooltip(label)
    return button


def _copy_link() -> None:
    """Copies the address in the browser, which knows it."""
    ui.run_javascript('navigator.clipboard.writeText(location.href)')
    ui.notify('The link restores the text, the weights and the selected word.', type='positive')


def _keys() -> ui.dialog:
    """Returns the list of keys, closed."""
    with ui.dialog() as dialog, ui.element('div').classes('panel'):
        parts.heading('h2', 'Keys')
        with ui.element('div').classes('grid gap-x-4 gap-y-2 items-baseline').style('grid-template-columns: auto 1fr'):
            for key, action in KEYS.items():
                with ui.element('kbd').classes('justify-self-start'):
                    ui.label(key)
                ui.label(action)
    return dialog


def _theme_button() -> None:
    """Lays out a button that goes from the system's colours to light and dark; the browser keeps the choice."""
    dark = ui.dark_mode(None)
    names = list(THEMES)

    def show(name: str) -> None:
        icon, label, value = THEMES[name]
        dark.set_value(value)
        button.props(f'icon={icon} aria-label="{label}"')
        tooltip.set_text(label)

    def choose_next() -> None:
        name = names[([value for _, _, value in THEMES.values()].index(dark.value) + 1) % len(names)]
        ui.run_javascript(f'localStorage.setItem("theme", "{name}")')
        show(name)

    button = ui.button(on_click=choose_next).props('flat round').classes('theme')
    with button:
        tooltip = ui.tooltip('')
    show('auto')
    ui.on('theme', lambda event: show(event.args if event.args in names else 'auto'))
    ui.run_javascript('emitEvent("theme", localStorage.getItem("theme"))')
