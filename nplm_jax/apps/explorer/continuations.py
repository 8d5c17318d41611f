"""The part of the explorer's page in which a model continues the text."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import pydantic
from nicegui import run, ui

from nplm_jax.apps.explorer import parts, view
from nplm_jax.apps.explorer.state import NUMBERS, PageState
from nplm_jax.data import unspaced_scripts
from nplm_jax.inference.generation import Choice
from nplm_jax.runs.command_models import LoadedModels


@dataclasses.dataclass
class Continuations:
    """Fields that say how a text is continued, and what a model writes.

    Attributes:
        models: The page's models.
        state: The page's state.
        tokenize: Returns the words of the text.
        set_text: Replaces the text.
        save_link: Writes the state into the address.
    """

    models: LoadedModels
    state: PageState
    tokenize: Callable[[], list[str]]
    set_text: Callable[[str], None]
    save_link: Callable[[], None]

    def build(self) -> None:
        """Lays out the fields and the button."""
        hint = 'The same seed writes the same words. Click one to go on with it.'
        with parts.panel('Let a model continue the text', hint):
            with ui.element('div').classes('numbers'):
                names = dict(enumerate(name for name, _ in self.models.with_mixture()))
                source = ui.select(names, value=self.state.source, label='model').classes('col-span-2')
                source.on_value_change(lambda event: self._set('source', event.value))
                self.numbers = [
                    ui.number(key.replace('_', ' '), value=getattr(self.state, key), validation=partial(self._set, key))
                    for key in NUMBERS
                ]
            ui.button('write', icon='edit', on_click=self.write).props('unelevated no-caps').classes('self-start')
            self.lines = ui.element('div').classes('flex flex-col gap-2')

    async def write(self) -> None:
        """Shows what the chosen model writes, once every field has a possible number."""
        self.lines.clear()
        if any(number.error for number in self.numbers):
            return
        with self.lines:
            ui.spinner()
        state = self.state.model_copy()
        choice = Choice(state.temperature, state.top_k, state.top_p)
        arguments = self.models, state.source, self.tokenize(), state.words, state.samples, choice, state.seed
        lines = await run.io_bound(view.continue_text, *arguments, state.weights)
        if lines is None or self.lines.is_deleted:  # the page was closed meanwhile
            return
        self.lines.clear()
        with self.lines:
            tokenizer = self.models.vocabulary.tokenizer
            join = ''.join if tokenizer.is_lossless else tokenizer.decode
            (text,) = unspaced_scripts.join(self.models.vocabulary, [state.text])
            for line in lines:
                with parts.button(partial(self.set_text, join([part for part in (text, line) if part])), 'written'):
                    ui.label(f'… {line}')

    def _set(self, key: str, value: Any) -> str | None:
        """Keeps what a field holds; returns what is wrong with it, if it is impossible."""
        try:
            setattr(self.state, key, value)
        except pydantic.ValidationError as error:
            return error.errors()[0]['msg']
        self.save_link()
        return None
