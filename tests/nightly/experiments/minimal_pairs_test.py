"""Tests minimal pairs: the more likely sentence, ties, pairs covered by a vocabulary, and damaged files."""

import io
import json
import types
import zipfile

import numpy as np
import pytest
from helpers import corpus_settings, refuses

from experiments.use.minimal_pairs import measure, pairs, table
from experiments.use.models import BEST, COUNTED, Run
from nplm_jax.apps.psycholinguistics import minimal_pairs
from nplm_jax.data.corpora import make_tokenizer
from nplm_jax.data.stream import Span
from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.models.language_model import LanguageModel

WORDS = ('<rare>', '<text>', '<p>', 'the', 'cat', 'cats', 'sleep', 'sleeps', '.')
VOCABULARY = Vocabulary(WORDS, (1,) * len(WORDS), make_tokenizer(corpus_settings('brown')))
PAIRS = [
    pairs.Pair('The cats sleep.', 'The cats sleeps.', 'agreement', 'verbs', 'syntax'),
    pairs.Pair('The zebra sleeps.', 'The zebra sleep.', 'agreement', 'verbs', 'syntax'),
    pairs.Pair('The cats sleep.', 'The zebras sleep.', 'nouns', 'nouns', 'semantics'),
    pairs.Pair('The zebra sleeps.', 'The okapi sleeps.', 'nouns', 'nouns', 'semantics'),
]


class Favourite(LanguageModel):
    """A model that assigns log P = -0.5 to one word and -1 to all others."""

    n = 3

    def __init__(self, word):
        self.id = VOCABULARY.ids[word]

    def score_span(self, tokens_T, span):
        return np.where(tokens_T[span.start : span.stop] == self.id, -0.5, -1).astype(np.float32)

    def next_word(self, contexts_BxN):
        raise NotImplementedError


def entry(**changes):
    line = {'sentence_good': 'A.', 'sentence_bad': 'B.', 'UID': 'u', 'linguistics_term': 't', 'field': 'f', 'x': 1}
    return json.dumps({**line, **changes})


def archive(**files):
    written = io.BytesIO()
    with zipfile.ZipFile(written, 'w') as file:
        for name, text in files.items():
            file.writestr(name.replace('__', '/') + '.jsonl', text)
    return written.getvalue()


def test_the_pairs_of_a_zip_are_read_by_file():
    data = archive(data__b=entry(UID='b'), data__a=entry() + '\n' + entry(field='syntax_semantics'), other__c='x')
    read = pairs.parse(data, 'zip')
    assert [pair.paradigm for pair in read] == ['u', 'u', 'b']
    assert read[0] == pairs.Pair('A.', 'B.', 'u', 't', 'f') and read[1].field == 'syntax/semantics'


@pytest.mark.parametrize(
    'data,key',
    [
        (b'no zip', 'zip'),
        (archive(other__c='x'), 'zip'),
        (archive(data__a=''), 'pairs'),
        (archive(data__a=entry() + '\n{"sentence_good": "A."}'), 'zip: data/a.jsonl, line 2'),
        (archive(data__a=entry(sentence_bad=3)), 'zip: data/a.jsonl, line 1'),
        (archive(data__a=entry(sentence_good=' ')), 'zip: data/a.jsonl, line 1'),
        (archive(data__a='[1]'), 'zip: data/a.jsonl, line 1'),
        (archive(data__a=entry() + '\nno'), 'zip: data/a.jsonl, line 2'),
    ],
)
def test_a_file_that_holds_no_pairs_is_one_line(data, key):
    with refuses(key) as error:
        pairs.parse(data, 'zip')
    assert '\n' not in str(error.value)


def test_a_vocabulary_covers_pairs_by_their_differing_words_or_in_full():
    encoded = minimal_pairs.encode(pairs.to_stimuli(PAIRS), VOCABULARY, measure.START)
    assert encoded.subsets['all'].tolist() == [True] * 4
    assert encoded.subsets['differing'].tolist() == [True, True, False, False]
    assert encoded.subsets['full'].tolist() == [True, False, False, False]
    assert encoded.rows_Px2.tolist() == [[0, 1], [2, 3], [0, 3], [2, 2]]  # equal token sequences are scored once
    assert VOCABULARY.decode(encoded.lines[2]) == ['the', '<rare>', 'sleeps', '.']
    with refuses("agreement, column 'sentence'"):
        pairs.to_stimuli([PAIRS[0]._replace(bad=' ')])


def test_a_model_is_right_where_the_good_sentence_is_likelier_and_ties_are_counted():
    found = measure.evaluate(Favourite('sleep'), VOCABULARY, measure.Sentences(PAIRS))
    assert found['counts']['all'] == {'agreement': [2, 1, 0], 'nouns': [2, 0, 2]}
    assert found['counts']['differing'] == {'agreement': [2, 1, 0], 'nouns': [0, 0, 0]}
    assert found['counts']['full'] == {'agreement': [1, 1, 0], 'nouns': [0, 0, 0]}
    assert found['read_as_one_sentence'] == 1
    assert found['paradigms'] == {'agreement': ['verbs', 'syntax'], 'nouns': ['nouns', 'semantics']}
    marks = measure.evaluate(Favourite('<p>'), VOCABULARY, measure.Sentences(PAIRS[:2]))
    assert marks['counts']['all'] == {'agreement': [2, 0, 2]}  # the context before a sentence is not scored


def test_missing_results_of_a_network_and_of_its_mixture_are_measured(tmp_path, monkeypatch):
    facts = {'settings': 'settings', 'results': {'perplexity': {}}}
    loaded = types.SimpleNamespace(model=Favourite('sleep'), vocabulary=VOCABULARY, **facts)
    data = types.SimpleNamespace(tokens_T=np.arange(8, dtype=np.int32), valid=Span(4, 8))
    best, runs = Run(BEST, 2), {Run(COUNTED): tmp_path / 'counted', Run(BEST, 2): tmp_path / 'best'}
    checked = {('settings', runs[best], runs[Run(COUNTED)]): data}  # the text must be that of both runs
    monkeypatch.setattr(measure.loading, 'load', lambda _: loaded)
    monkeypatch.setattr(measure.loading, 'prepare_recorded', lambda *given: checked[given])
    found = dict(measure.measured(best, runs, measure.Sentences(PAIRS), tmp_path, False))
    assert found['mixture-2']['counts'] == found[best.name]['counts'] and list(found) == [best.name, 'mixture-2']
    assert found['mixture-2']['of'] == [best.name, COUNTED] and sum(found['mixture-2']['weights']) == pytest.approx(1)
    (tmp_path / f'{best.name}.json').touch()
    for again, kept in ((False, ['mixture-2']), (True, [best.name, 'mixture-2'])):
        assert list(dict(measure.measured(best, runs, measure.Sentences(PAIRS), tmp_path, again))) == kept
    assert list(dict(measure.measured(best, {best: tmp_path}, measure.Sentences(PAIRS), tmp_path, True))) == [best.name]


def test_a_tie_is_half_a_point_and_seeds_have_a_spread():
    assert table.accuracy([[4, 1, 2], [1, 1, 0]]) == 0.6
    assert np.isnan(table.accuracy([[0, 0, 0]]))
    seeds = [{'counts': {'all': {'a': [10, n, 0]}}} for n in (4, 6)]
    assert table.of_seeds(seeds, 'all', ['a']) == '50.0 ± 14.1'
    assert table.of_seeds(seeds[:1], 'all', ['a']) == '40.0'


def test_a_folder_without_results_is_refused(tmp_path):
    with refuses(tmp_path):
        table.read(tmp_path)
