"""The part of the explorer's page in which a visitor weighs the models of the mixture."""

import dataclasses
from collections.abc import Callable

from nicegui import ui

from nplm_jax.apps.explorer import view
from nplm_jax.apps.explorer.state import PageState
from nplm_jax.runs.command_models import LoadedModels


@dataclasses.dataclass
class Weights:
    """One slider for each model; the weights are their shares.

    Attributes:
        models: The page's models.
        state: The page's state.
        on_change: Called when the weights have changed.
    """

    models: LoadedModels
    state: PageState
    on_change: Callable[[], None]

    def build(self) -> None:
        """Lays out the sliders, one above the list of each model where the page is wide."""
        self.initial = tuple(round(weight, 2) for weight in view.initial_weights(self.models))
        self.sliders, self.shares = [], []
        with ui.element('div').classes('cards weights'):
            with ui.element('div'):
                ui.label('Weights of the mixture').classes('font-medium')
                ui.button('reset', on_click=self._reset).props('flat dense no-caps')
            for name, weight in zip(self.models.names, self.state.weights or self.initial):
                with ui.element('div'):
                    with ui.element('div').classes('flex no-wrap justify-between gap-2'):
                        ui.label(name).classes('text-sm truncate')
                        self.shares.append(ui.label().classes('share number text-sm'))
                    slider = ui.slider(min=0, max=1, step=0.01, value=round(weight, 2), on_change=self._set)
                    slider.props['aria-label'] = f'weight of {name}'  # a name may hold quotation marks
                    self.sliders.append(slider)
        self._label()

    def _set(self) -> None:
        """Keeps the weights of the sliders; where all are zero or as at first, the mixture is as it was loaded."""
        weights = tuple(slider.value for slider in self.sliders)
        self.state.weights = None if weights == self.initial or not any(weights) else weights
        self._label()
        self.on_change()

    def _reset(self) -> None:
        for slider, weight in zip(self.sliders, self.initial):
            slider.set_value(weight)

    def _label(self) -> None:
        """Writes each model's share beside its slider."""
        weights = self.state.weights or self.initial
        for label, weight in zip(self.shares, weights):
            label.set_text(f'{weight / sum(weights):.0%}')
