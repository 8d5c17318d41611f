"""The part of the explorer's page in which a visitor weighs the models of the mixture."""

from collections.abc import Callable

from nicegui import ui

from nplm_jax.cli.explorer import view
from nplm_jax.cli.explorer.state import PageState
from nplm_jax.cli.loaded_models import LoadedModels


class Weights:
    """One slider for each model; the weights are their shares."""

    def __init__(self, models: LoadedModels, state: PageState, on_change: Callable[[], None]) -> None:
        """Takes the page's models and state, and what to do when the weights have changed."""
        self.state = state
        self.names = models.names
        self.initial = view.initial_weights(models)
        self.on_change = on_change

    @ui.refreshable_method
    def build(self) -> None:
        """Lays out the sliders, one above the list of each model where the page is wide."""
        with ui.element('div').classes('cards weights'):
            with ui.element('div'):
                ui.label('Weights of the mixture').classes('font-medium')
                ui.button('reset', on_click=self._reset).props('flat dense no-caps')
            self.sliders = [self._build_slider(*named) for named in zip(self.names, self.state.weights or self.initial)]
        self._label()

    def _build_slider(self, name: str, weight: float) -> tuple[ui.slider, ui.label]:
        """Returns the slider of a model's weight and the label of its share."""
        with ui.element('div'):
            with ui.element('div').classes('flex no-wrap justify-between gap-2'):
                ui.label(name).classes('text-sm truncate')
                share = ui.label().classes('share number text-sm')
            slider = ui.slider(min=0, max=1, step=0.01, value=round(weight, 2))
            slider.props['aria-label'] = f'weight of {name}'  # a name may hold quotation marks
            slider.on_value_change(self._set)
        return slider, share

    def _set(self) -> None:
        weights = tuple(slider.value for slider, _ in self.sliders)
        if not all(type(weight) in (int, float) and 0 <= weight <= 1 for weight in weights):  # no slider sends this
            return
        self.state.weights = weights if sum(weights) > 0 else None
        self._label()
        self.on_change()

    def _reset(self) -> None:
        """Goes back to the mixture as it was loaded."""
        self.state.weights = None
        self.on_change()
        self.build.refresh()  # last: it replaces the button that was clicked

    def _label(self) -> None:
        """Writes each model's share beside its slider."""
        weights = self.state.weights or self.initial
        for (_, label), weight in zip(self.sliders, weights):
            label.set_text(f'{weight / sum(weights):.0%}')
