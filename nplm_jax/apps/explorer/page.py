"""Builds the explorer's page. Each visitor has their own text, which is stored in the URL of the page."""

import dataclasses
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from nplm_jax.apps.explorer import feature_map, parts, view
from nplm_jax.apps.explorer.controls import build_continuations, build_weights
from nplm_jax.apps.explorer.header import build_header
from nplm_jax.apps.explorer.state import MAX_COUNT, MAX_TEXT, MAX_WORD, PageState
from nplm_jax.data.stream import RARE
from nplm_jax.data.tokenizers import cutting
from nplm_jax.inference import embeddings
from nplm_jax.runs.command_models import LoadedModels
from nplm_jax.utils.packages import OptionalPackage

ui = OptionalPackage('nicegui.ui', 'explore')
PRIMARY = '#2563eb'  # the colour of buttons and sliders; style.css has the others
NUM_EXPECTED = 5  # number of expected words in an explanation
TEXT_LABEL = 'beginning of a text'  # used by tests and tools to find the field


@dataclasses.dataclass(eq=False)  # NiceGUI compares pages, and no two pages are equal
class ExplorerPage:
    """The page of one visitor.

    Attributes:
        models: The models to explore.
        kind: How to tokenize text. See `words.reading`.
        state: The visitor's choices.
        maps: The feature map of each network, by network name.
        beginnings: Example texts.
        score: A function that scores a text.
        scores: The scores of the text shown on the page.
        lit: The row of the framed list that is selected with the arrow keys. -1 if no row is selected.
    """

    models: LoadedModels
    kind: str
    state: PageState
    maps: Mapping[str, feature_map.FeatureMap]
    beginnings: Sequence[str]
    score: Callable[[Sequence[str]], Awaitable[view.Scores]]
    scores: view.Scores
    lit: int = -1

    # --- layout ------------------------------------------------------------------------------------------

    def build(self, problem: str = '') -> None:
        """Lays out the page, with a note that describes the problem, if any."""
        self._summarize()
        ui.colors(primary=PRIMARY)
        ui.add_css(parts.WEB / 'style.css')
        ui.keyboard(self.press_key, ignore=['input', 'select', 'textarea'])
        with ui.element('main').classes('frame flex flex-col'):
            build_header(self.models)
            parts.note(problem)
            self._build_text_field()
            self.reading = ui.element('div').classes('contents')
            parts.refill(self.reading, self.show_reading)
            self._build_next_words()
            if self.maps:
                self._build_features()
            build_continuations(self.models, self.state, self.tokenize, self.set_text, self.save_link)

    def _build_text_field(self) -> None:
        with parts.panel('Text'):
            with ui.element('div').classes('w-full flex no-wrap items-center gap-2'):
                self.text_field = ui.textarea(TEXT_LABEL, value=self.state.text, on_change=self._change_text)
                self.text_field.classes('grow text-lg')
                self.text_field.props('outlined clearable autogrow autofocus debounce=300 rows=1')
                self.text_field.on('keydown.down.prevent', lambda: self._light(self.lit + 1))
                self.text_field.on('keydown.up.prevent', lambda: self._light(self.lit - 1))
                self.text_field.on('keydown.enter.prevent', lambda: self._append_row(self.lit))
                self.text_field.on('keydown.esc', lambda: self.text_field.run_method('blur'))
                drop = ui.button('delete the last word', icon='backspace', on_click=self.drop_last_word)
                drop.props('flat no-caps aria-label="delete the last word"').classes('drop')
            self.examples = ui.element('div').classes('contents')
            parts.refill(self.examples, self.show_examples)

    def _build_next_words(self) -> None:
        hint = f'Click a word to append it. {RARE} represents every word outside the vocabulary.'
        if self.models.vocabulary.tokenizer.is_lossless:
            hint = r'Click a token to append it. ␣ is a space, \n is a newline, and <0xE4> is one byte of a character.'
        with parts.panel('Most likely next words', hint):
            keys = 'You can also press the key shown before a word. Esc leaves the text field; / returns to it.'
            ui.label(keys).classes('keys quiet text-sm -mt-3')
            if len(self.models.models) > 1:
                build_weights(self.models, self.state, self._show_predictions)
            self.next_words = ui.element('div').classes('contents')
            parts.refill(self.next_words, self.show_next_words)
            with ui.element('label').classes('flex items-center gap-3 self-end'):
                ui.label('words listed').classes('quiet text-sm')
                count = ui.slider(min=1, max=MAX_COUNT, value=self.state.count, on_change=self._change_count)
                count.props('label').classes('w-36')

    def _build_features(self) -> None:
        zoom = 'To zoom, hold Ctrl and turn the mouse wheel, or pinch with two fingers.'
        hint = f'Words with similar uses are close together. Click or type a word. {zoom}'
        with parts.panel('Nearest neighbours by word features', hint):
            with ui.element('div').classes('split'):
                with ui.element('div').classes('min-w-0'):
                    self.word_field = ui.input('a word', value=self.state.word, on_change=self._change_word)
                    self.word_field.classes('w-full').props('outlined dense clearable debounce=300')
                    self.neighbours = ui.element('div').classes('contents')
                    parts.refill(self.neighbours, self.show_neighbours)
                with ui.element('div').classes('min-w-0'):
                    self.source = ui.select(list(self.maps), value=next(iter(self.maps)), label='map of')
                    self.source.set_visibility(len(self.maps) > 1)
                    self.source.on_value_change(self._draw_map)
                    self.chart = ui.echart({}, lambda point: self.select_word(point.name), renderer='svg')
                    self.chart.classes('map')
                    # Without Ctrl, the wheel scrolls the page. ECharts would capture its events even without zooming.
                    self.chart.on('wheel.capture', js_handler='(e) => e.ctrlKey || e.stopPropagation()')
            self._draw_map()

    # --- views of the visitor's choices -----------------------------------------------------------

    def show_examples(self) -> None:
        """Shows a note about unknown words and, if there is no text, example beginnings."""
        words = self.tokenize()
        parts.note(self.models.describe_unknown(words))
        if len(self.text_field.value or '') > MAX_TEXT:
            parts.note(f'only the first {MAX_TEXT:,} characters are read')
        if not words:
            with ui.element('div').classes('hint flex items-center gap-2'):
                ui.label('Type the beginning of a text, or try an example:').classes('quiet')
                for text in self.beginnings:
                    button = ui.button(text, on_click=partial(self.set_text, text)).classes('example')
                    button.props('outline dense no-caps padding="2px 10px" rounded')

    def show_reading(self) -> None:
        """Shows the surprisal of each word under each model, and the expected words at the selected position."""
        words, position = self.scores.words, self.state.position
        if not words:
            return
        hint = 'Stronger colours mark less likely words. Hover over a word for numbers; click it for expected words.'
        with parts.panel('Surprisal of each word', hint):
            unknown = {word for word in words if word not in self.models.vocabulary.ids}
            parts.legend(bool(unknown))
            shown = self.models.vocabulary.show(words)
            parts.reading(shown, unknown, self.predictions, position, self._explain_word)
            if position is not None and position <= len(words):
                word = shown[position - 1]
                with ui.element('div').classes('flex items-center gap-2'):
                    scored = f', read as {RARE}' if word in unknown else ''
                    ui.label(f'Word {position}, “{word}”{scored}').classes('font-medium')
                    ui.button('close', on_click=partial(self._explain_word, position)).props('flat dense no-caps')
                explanations = view.explain(self.models, words, position - 1, NUM_EXPECTED, self.state.weights)
                parts.explanation_cards(explanations, len(self.models.vocabulary), self.select_word)

    def show_next_words(self) -> None:
        """Shows the most likely next words of each model. The digit keys append words from the framed list."""
        if not self.scores.words:
            ui.label('No text yet. These words can begin a paragraph.').classes('beginning')
        with ui.element('div').classes('cards'):
            for i, prediction in enumerate(self.predictions):
                is_framed = i == self.state.model
                classes, keys, lit = ('next active', parts.DIGIT_KEYS, self.lit) if is_framed else ('next', '', -1)
                words = prediction.name, f'next-word perplexity {prediction.branching:,.1f}', prediction.next_words
                parts.word_card(*words, view.describe_probability, self.append_word, classes, keys, lit)

    def show_neighbours(self) -> None:
        """Shows the words nearest to the selected word in the feature space of each network."""
        word = self.state.word
        parts.note(self.models.describe_unknown([word] if word and self.models.vocabulary.find(word) is None else []))
        if not word:
            ui.label('The nearest words will appear here.').classes('quiet text-sm mt-2')
        for name, near in self._nearest():
            with ui.element('div').classes('mt-2'):
                parts.word_card(name, '', near, '{:.2f}'.format, self.select_word, 'neighbours')

    def _nearest(self) -> list[tuple[str, view.WeightedWords]]:
        """Returns the name of each network and the words nearest to the selected word."""
        models = self.models
        return embeddings.nearest_words(models.vocabulary, models.word_features(), self.state.word, self.state.count)

    def tokenize(self) -> list[str]:
        """Tokenizes the text."""
        return self.models.tokenize(self.state.text, self.kind, keep_marks=True)

    def _summarize(self) -> None:
        """Updates the predictions from the scores of the text."""
        self.predictions = view.summarize(self.models, self.scores, self.state.count, self.state.weights)

    def _draw_map(self) -> None:
        """Draws the map of the chosen network, with the selected word and its neighbours."""
        name = self.source.value
        neighbours = [word for word, _ in dict(self._nearest()).get(name, [])]
        options = feature_map.chart(self.models.vocabulary, self.maps[name], self.state.word, neighbours)
        self.chart.options.clear()
        self.chart.options.update(options)

    # --- actions of the visitor -------------------------------------------------------------------------------

    def set_text(self, text: str) -> None:
        """Replaces the text."""
        self.text_field.set_value(text)

    def append_word(self, word: str) -> None:
        """Appends a word to the text and selects it."""
        self.select_word(word)
        self.set_text(view.append(self.models, self.tokenize(), self.state.text, word))

    def drop_last_word(self) -> None:
        """Deletes the last word of the text."""
        self.set_text(cutting.drop_last(self.models.vocabulary.tokenizer, self.state.text))

    def select_word(self, word: str) -> None:
        """Selects the word whose neighbours are shown."""
        if self.maps:
            self.word_field.set_value(word)

    def press_key(self, event: Any) -> None:
        """Handles a key pressed outside the fields."""
        modifiers, key = event.modifiers, event.key.name
        if not event.action.keydown or modifiers.ctrl or modifiers.alt or modifiers.meta:
            return
        if key in parts.DIGIT_KEYS:
            self._append_row(parts.DIGIT_KEYS.index(key))
        elif key in ('ArrowLeft', 'ArrowRight'):
            step = 1 if key == 'ArrowRight' else -1
            self.state.model = (self.state.model + step) % len(self.models.with_mixture())
            self._light(-1)
        elif key == 'Backspace':
            self.drop_last_word()
        elif key == '/':
            self.text_field.run_method('focus')

    def save_link(self) -> None:
        """Stores the state in the URL of the page."""
        query = self.state.to_query()
        ui.navigate.history.replace(f'?{query}' if query else '.')

    def _change_text(self, event: Any) -> Awaitable[None]:
        self.state.text, self.lit = (event.value or '')[:MAX_TEXT], -1
        return self._show_text()

    async def _show_text(self) -> None:
        """Scores the text, and shows the scores unless the visitor has changed the text in the meantime."""
        words = self.tokenize()
        scores = await self.score(words)
        if self.text_field.is_deleted or words != self.tokenize():  # the page was closed, or the text changed
            return
        self.scores = scores
        if self.state.position is not None and self.state.position > len(words):
            self.state.position = None
        parts.refill(self.examples, self.show_examples)
        self._show_predictions()

    def _change_word(self, event: Any) -> None:
        self.state.word = (event.value or '').strip()[:MAX_WORD]
        self._show_features()

    def _change_count(self, event: Any) -> None:
        self.state.count, self.lit = event.value, -1
        self._show_predictions()
        if self.maps:
            self._show_features()

    def _explain_word(self, position: int) -> None:
        """Explains the word at a position, counted from 1, or closes the explanation if it is already open."""
        self.state.position = None if self.state.position == position else position
        if self.state.position:
            self.select_word(self.models.vocabulary.show([self.scores.words[position - 1]])[0])
        parts.refill(self.reading, self.show_reading)
        self.save_link()

    def _light(self, row: int) -> None:
        self.lit = min(max(row, -1), self.state.count - 1)
        parts.refill(self.next_words, self.show_next_words)
        self.save_link()

    def _append_row(self, row: int) -> None:
        """Appends the word in a row of the framed list, if the row exists and the list belongs to the current text."""
        if self.tokenize() != self.scores.words:
            return
        words = self.predictions[self.state.model].next_words
        if 0 <= row < len(words):
            self.append_word(words[row][0])

    def _show_predictions(self) -> None:
        self._summarize()
        parts.refill(self.reading, self.show_reading)
        parts.refill(self.next_words, self.show_next_words)
        self.save_link()

    def _show_features(self) -> None:
        parts.refill(self.neighbours, self.show_neighbours)
        self._draw_map()
        self.save_link()
