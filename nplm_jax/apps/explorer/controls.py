"""Controls of the explorer's page: mixture weights and options of generated text."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from nplm_jax.apps.explorer import parts, view
from nplm_jax.apps.explorer.state import NUMBERS, PageState
from nplm_jax.data import unspaced_scripts
from nplm_jax.inference.generation import Choice
from nplm_jax.runs.command_models import LoadedModels
from nplm_jax.utils.errors import BadInput
from nplm_jax.utils.packages import OptionalPackage

ui = OptionalPackage('nicegui.ui', 'explore')


def build_weights(models: LoadedModels, state: PageState, on_change: Callable[[], None]) -> None:
    """Lays out one slider per model, above its list on wide pages. The weights are proportional to the sliders.

    Args:
        models: The page's models.
        state: The page's state, which keeps the weights.
        on_change: Called when the weights change.
    """
    initial = tuple(round(weight, 2) for weight in view.initial_weights(models))
    sliders: list[Any] = []
    shares: list[Any] = []

    def keep() -> None:
        """Stores the weights of the sliders; if all are zero or initial, the mixture is reset to the loaded one."""
        weights = tuple(slider.value for slider in sliders)
        state.weights = None if weights == initial or not any(weights) else weights
        show_shares()
        on_change()

    def reset() -> None:
        for slider, weight in zip(sliders, initial):
            slider.set_value(weight)

    def show_shares() -> None:
        weights = state.weights or initial
        for label, weight in zip(shares, weights):
            label.set_text(f'{weight / sum(weights):.0%}')

    with ui.element('div').classes('cards weights'):
        with ui.element('div'):
            ui.label('Weights of the mixture').classes('font-medium')
            ui.button('reset', on_click=reset).props('flat dense no-caps')
        for name, weight in zip(models.names, state.weights or initial):
            with ui.element('div'):
                with ui.element('div').classes('flex no-wrap justify-between gap-2'):
                    ui.label(name).classes('text-sm truncate')
                    shares.append(ui.label().classes('share number text-sm'))
                sliders.append(ui.slider(min=0, max=1, step=0.01, value=round(weight, 2), on_change=keep))
                sliders[-1].props['aria-label'] = f'weight of {name}'  # a name may hold quotation marks
    show_shares()


def build_continuations(
    models: LoadedModels,
    state: PageState,
    tokenize: Callable[[], list[str]],
    set_text: Callable[[str], None],
    save_link: Callable[[], None],
) -> None:
    """Lays out the options of generated text, and a button that generates it.

    Args:
        models: The page's models.
        state: The page's state, which keeps the fields.
        tokenize: Returns the words of the text.
        set_text: Replaces the text.
        save_link: Writes the state into the address.
    """

    def keep(key: str, value: Any) -> str | None:
        """Stores the value of a field; returns the problem if the value is invalid."""
        try:
            setattr(state, key, value)
        except BadInput as error:
            return error.problem
        save_link()
        return None

    async def write() -> None:
        """Shows generated text of the chosen model, if every field is valid."""
        lines.clear()
        if any(number.error for number in numbers):
            return
        with lines:
            ui.spinner()
        choice = Choice(state.temperature, state.top_k, state.top_p)
        arguments = models, state.source, tokenize(), state.words, state.samples, choice, state.seed, state.weights
        tokenizer = models.vocabulary.tokenizer
        join = ''.join if tokenizer.is_lossless else tokenizer.decode
        (text,) = unspaced_scripts.join(models.vocabulary, [state.text])
        written = await asyncio.to_thread(view.continue_text, *arguments)
        if lines.is_deleted:  # the page was closed meanwhile
            return
        lines.clear()
        with lines:
            for line in written:
                with parts.button(partial(set_text, join([part for part in (text, line) if part])), 'written'):
                    ui.label(f'… {line}')

    hint = 'The same seed gives the same text. Click a line to continue from it.'
    with parts.panel('Let a model continue the text', hint):
        with ui.element('div').classes('numbers'):
            names = dict(enumerate(name for name, _ in models.with_mixture()))
            source = ui.select(names, value=state.source, label='model').classes('col-span-2')
            source.on_value_change(lambda event: keep('source', event.value))
            numbers = [
                ui.number(key.replace('_', ' '), value=getattr(state, key), validation=partial(keep, key))
                for key in NUMBERS
            ]
        ui.button('write', icon='edit', on_click=write).props('unelevated no-caps').classes('self-start')
        lines = ui.element('div').classes('flex flex-col gap-2')
