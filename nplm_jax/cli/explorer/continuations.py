"""The part of the explorer's page in which a model continues the text."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from nicegui import events, run, ui

from nplm_jax.cli.explorer import parts, view
from nplm_jax.cli.explorer.state import FIELDS, PageState
from nplm_jax.cli.loaded_models import LoadedModels
from nplm_jax.inference.generation import Choice
from nplm_jax.utils.errors import BadInput, require

_WRITERS = asyncio.Semaphore(2)  # visitors for whom models write at once; the others wait


class Continuations:
    """Fields that say how a text is continued, and what a model writes."""

    def __init__(
        self,
        models: LoadedModels,
        state: PageState,
        tokenize: Callable[[], list[str]],
        set_text: Callable[[str], None],
        save_link: Callable[[], None],
    ) -> None:
        """Takes the page's models and state, how it splits and replaces its text, and how it keeps its address."""
        self.models = models
        self.state = state
        self.tokenize = tokenize
        self.set_text = set_text
        self.save_link = save_link

    def build(self) -> None:
        """Lays out the fields and the button."""
        with parts.panel(
            'Let a model continue the text', 'The same seed writes the same words. Click one to go on with it.'
        ):
            with ui.element('div').classes('numbers'):
                names = dict(enumerate(name for name, _ in self.models.with_mixture()))
                source = ui.select(names, value=self.state.source, label='model', on_change=self._change_source)
                source.classes('col-span-2')
                for key, field in FIELDS.items():
                    number = ui.number(field.label, min=field.minimum, max=field.maximum, value=self.state.numbers[key])
                    number.on_value_change(partial(self._change_number, key))
            ui.button('write', icon='edit', on_click=self.write).props('unelevated no-caps').classes('self-start')
            self.lines = ui.element('div').classes('flex flex-col gap-2')

    async def write(self) -> None:
        """Shows what the chosen model writes."""
        self.lines.clear()
        with self.lines:
            ui.spinner()
        text, problem, lines = self.state.text.strip(), '', None
        try:
            words, samples, seed, *choice = (_value(key, value) for key, value in self.state.numbers.items())
            arguments = self.models, self.state.source, self.tokenize(), words, samples, Choice(*choice), seed
            async with _WRITERS:
                if not self.lines.is_deleted:
                    lines = await run.io_bound(view.continue_text, *arguments, self.state.weights)
        except BadInput as error:
            lines, problem = [], str(error)
        if lines is None or self.lines.is_deleted:  # the page was closed meanwhile
            return
        self.lines.clear()
        with self.lines:
            parts.note(problem)
            for line in lines:
                with parts.button(partial(self.set_text, f'{text} {line}'.strip()), 'written'):
                    ui.label(f'… {line}')

    def _change_source(self, event: events.ValueChangeEventArguments) -> None:
        self.state.source = event.value
        self.save_link()

    def _change_number(self, key: str, event: events.ValueChangeEventArguments) -> None:
        self.state.numbers[key] = event.value
        self.save_link()


def _value(key: str, value: float | None) -> Any:
    """Returns the value of a field, as an int if its minimum is one. Raises BadInput if it is empty or out of range."""
    field = FIELDS[key]
    require(value is not None or field.initial is None, field.label, value, 'give a number')
    return None if value is None else field.check(value)
