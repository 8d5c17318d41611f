"""Tests that beam search over CTC emissions gives the results of a weighted search over all alignments."""

import itertools
import math
import re
import sys
import zipfile

import numpy as np
import pytest
from helpers import refuses

from configs import sentences
from nplm_jax import decoding, kenlm
from nplm_jax.apps.decoding.ctc_scores import WordScorer
from nplm_jax.apps.decoding.lexicon import Trie
from nplm_jax.cli import __main__ as cli
from nplm_jax.runs import experiment

TOKENS = ['-', '|', 'a', 'b']
LEXICON = {'a': [['a', '|']], 'ab': [['a', 'b', '|']], 'ba': [['b', 'a', '|'], ['b', '|']]}
EXHAUSTIVE = {'beam_width': 5000, 'beam_prune_logp': -math.inf, 'token_min_logp': -math.inf}
ARPA = """\\data\\
ngram 1=6
ngram 2=4

\\1-grams:
-1.5	<unk>	-0.25
-99	<s>	-0.3
-0.6	</s>
-0.5	a	-0.125
-0.9	ab	-0.2
-1.1	ba	0

\\2-grams:
-0.3	<s> ab
-0.75	a ba
-0.2	ab a
-0.4	ba </s>

\\end\\
"""


@pytest.fixture(scope='module')
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp('arpa') / 'lm.arpa'
    path.write_text(ARPA)
    return kenlm.Model(path)


def collapse(path):
    tokens = [TOKENS[i] for i, _ in itertools.groupby(path)]
    return tuple(token for token in tokens if token != '-')


def parses(tokens, lexicon):
    """Yields all ways to read tokens as words, with silence anywhere between words."""
    if not tokens:
        yield ()
        return
    if tokens[0] == '|':
        yield from parses(tokens[1:], lexicon)
    for word, spellings in lexicon.items():
        for spelling in spellings:
            if tokens[: len(spelling)] == tuple(spelling):
                yield from ((word, *rest) for rest in parses(tokens[len(spelling) :], lexicon))


def search(emissions_FxN, model, weights, lexicon=LEXICON):
    """Returns the total score of each word sequence, summed over all alignments."""
    found = {}
    for path in itertools.product(range(len(TOKENS)), repeat=len(emissions_FxN)):
        for words in set(parses(collapse(path), lexicon)):
            found.setdefault(words, []).append(float(sum(row[i] for row, i in zip(emissions_FxN, path))))
    totals = {}
    for words, log_ps in found.items():
        emission, log_p = np.logaddexp.reduce(log_ps), model.score(' '.join(words)) * math.log(10) if model else 0.0
        totals[words] = emission + weights.lm_weight * log_p + weights.word_score * len(words), emission, log_p
    return totals


@pytest.mark.parametrize('seed', range(5))
@pytest.mark.parametrize('weights', [decoding.Weights(), decoding.Weights(2.0, -0.7), decoding.Weights(0.3, 1.0)])
def test_the_search_finds_the_best_words_of_all(model, seed, weights):
    rng = np.random.default_rng(seed)
    logits_FxN = rng.normal(size=(6, len(TOKENS))) * 2
    emissions_FxN = (logits_FxN - np.logaddexp.reduce(logits_FxN, axis=1, keepdims=True)).astype(np.float32)
    for used in (model, None):
        expected = search(emissions_FxN, used, weights)
        decoder = decoding.Decoder(used, TOKENS, LEXICON, weights, **EXHAUSTIVE)
        found = decoder.decode(emissions_FxN)
        assert found[0].words == max(expected, key=lambda words: expected[words][0])
        assert {h.words for h in found} == set(expected)
        for hypothesis in found:
            got = hypothesis.score, hypothesis.emission, hypothesis.log_p
            np.testing.assert_allclose(got, expected[hypothesis.words], rtol=1e-5, atol=1e-4)
        assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)
        assert decoder.decode(emissions_FxN) == found  # no data of a search remains


@pytest.mark.parametrize(
    'lexicon',
    [
        {'a': [['|', 'a']], 'b': [['b']], 'ab': [['|', 'a', 'b', '|']]},
        {'a': [['a'], ['a', '|']], 'b': [['|', 'b'], ['b']], 'ab': [['a', 'b', '|']]},
    ],
)
def test_silence_at_the_ends_of_spellings_does_not_replace_or_repeat_other_silence(lexicon):
    logits_FxN = np.random.default_rng(0).normal(size=(6, len(TOKENS)))
    emissions_FxN = logits_FxN - np.logaddexp.reduce(logits_FxN, axis=1, keepdims=True)
    expected = search(emissions_FxN, None, decoding.Weights(), lexicon)
    found = decoding.Decoder(None, TOKENS, lexicon, **EXHAUSTIVE).decode(emissions_FxN)
    assert {h.words: h.emission for h in found} == pytest.approx({words: row[1] for words, row in expected.items()})


def test_the_score_ahead_is_that_of_the_best_word_below_a_node(model):
    places = {token: i for i, token in enumerate(TOKENS)}
    trie = Trie(LEXICON, places, places['|'], WordScorer(model, []))
    below = {'a': ['a', 'ab'], 'a|': ['a'], 'ab': ['ab'], 'ab|': ['ab'], 'b': ['ba'], 'ba': ['ba'], 'ba|': ['ba']}
    for path, words in below.items():
        node = 0
        for token in path:
            edges = range(trie.starts_M[node], trie.starts_M[node + 1])
            (node,) = (trie.target_E[edge] for edge in edges if trie.label_E[edge] == places[token])
        best = max(model.score(word, eos=False) for word in words) * math.log(10)
        assert trie.look_ahead_M[node] == pytest.approx(best) and trie.words[node] == (words if path[-1] == '|' else [])
    assert trie.look_ahead_M[0] == 0


def test_frames_that_continue_no_word_end_no_search(model):
    emissions_FxN = np.log(np.array([[0.01, 0.01, 0.01, 0.97], [1e-3, 1e-3, 1e-3, 0.997], [0.01, 0.97, 0.01, 0.01]]))
    decoder = decoding.Decoder(model, TOKENS, {'a': [['a', '|']]}, token_min_logp=-0.5)
    assert decoder.decode(emissions_FxN)[0].words == ()


def test_homophones_are_all_found(model):
    words = [f'w{i}' for i in range(7)]
    lexicon = {'w0': [['a', '|']] * 6, **{word: [['a', '|']] for word in words[1:]}}
    emissions_FxN = np.log(np.array([[0.1, 0.1, 0.7, 0.1], [0.1, 0.7, 0.1, 0.1]], np.float32))
    assert {h.words for h in decoding.Decoder(None, TOKENS, lexicon).decode(emissions_FxN)} >= {(w,) for w in words}


def test_texts_that_differ_only_in_earlier_words_do_not_fill_the_beam():
    lexicon = {'x': [['a', '|']], 'y': [['a', '|']], 'z': [['b', 'b', '|']]}
    heard_FxN = [{'a': 1.0}, {'|': 1.0}] * 6 + [{'a': 0.7, 'b': 0.3}, {'-': 1.0}, {'b': 0.9, '|': 0.1}, {'|': 1.0}]
    p_FxN = np.array([[row.get(token, 0.0) for token in TOKENS] for row in heard_FxN])
    emissions_FxN = np.log(np.maximum(p_FxN, 1e-6) / np.maximum(p_FxN, 1e-6).sum(axis=1, keepdims=True))
    (best, *_) = decoding.Decoder(None, TOKENS, lexicon, beam_width=20).decode(emissions_FxN)  # 64 texts before z
    assert best.words[-1] == 'z'


def test_without_a_lexicon_the_search_is_that_of_build_ctcdecoder(model):
    emissions_FxN = np.log(np.random.default_rng(0).dirichlet(np.full(4, 0.3), 9))
    found = decoding.Decoder(model, TOKENS, weights=decoding.Weights(0.6, 0.4), beam_prune_logp=-10.0)
    beams = decoding.build_ctcdecoder(['', ' ', 'a', 'b'], model, alpha=0.6, beta=0.4)
    beams = beams.decode_beams(emissions_FxN, beam_width=50, token_min_logp=-10.0, prune_history=True)
    assert [(' '.join(h.words), h.score) for h in found.decode(emissions_FxN)] == [(b.text, b.lm_score) for b in beams]


def test_a_network_and_unknown_words(tmp_path):
    config = sentences.get_config()
    config.train.epochs, config.train.evaluate_every = 2, 0
    experiment.run(config, tmp_path / 'run')
    model = kenlm.Model(tmp_path / 'run')
    lexicon = {word: [[*word, '|']] for word in ('i', 'like', 'dog', 'zzz')}
    tokens = ['-', '|', *sorted(set('ilikedogz'))]
    emissions_FxN = np.full((12, len(tokens)), -9.0, np.float32)
    for frame, token in enumerate('i|zz-z|dog|-'.replace('zz-z', 'z-z-z')[:12]):
        emissions_FxN[frame, tokens.index(token)] = -0.01
    (best, *_) = decoding.Decoder(model, tokens, lexicon, decoding.Weights(0.1)).decode(emissions_FxN)
    assert best.words == ('i', 'zzz', 'dog')
    assert best.log_p == pytest.approx(model.score('i zzz dog') * math.log(10), rel=1e-5)


def hypothesis(words, emission, log_p):
    return decoding.Hypothesis(tuple(words.split()), 0.0, emission, log_p)


def test_weights_are_tuned_on_references():
    pytest.importorskip('rapidfuzz')
    lists = [
        [hypothesis('a b', -1.0, -9.0), hypothesis('a c', -2.0, -3.0)],
        [hypothesis('a', -1.0, -2.0), hypothesis('b', -3.0, -1.9)],
    ]
    weights, error = decoding.tune(lists, [['a', 'c'], ['a']])
    assert error == 0 and 1 / 6 < weights.lm_weight < 20
    assert decoding.word_error_rate([['a'], ['b', 'c']], [['a'], ['b']]) == pytest.approx(0.5)
    with pytest.raises(ValueError, match='zip'):
        decoding.word_error_rate([['a'], ['b']], [['a']])
    for key, pair in (('words', ['a b', ['a']]), ('reference', [['a'], 'a b'])):
        with refuses(key):
            decoding.word_error_rate(*([text] for text in pair))


def test_the_error_rate_of_no_words_is_refused():
    for call in (decoding.word_error_rate, decoding.tune):
        for references in ([], [[]]):
            with refuses('references'):
                call([[hypothesis('a', -1.0, -2.0)]] * len(references), references)
    with refuses('lists'):
        decoding.tune([[]], [['a']])


@pytest.mark.parametrize('impossible', [-1e30, -math.inf])
@pytest.mark.filterwarnings('error')
def test_weights_are_tuned_on_lists_with_impossible_hypotheses(impossible):
    pytest.importorskip('rapidfuzz')
    lists = [
        [hypothesis('a b', -1.0, -9.0), hypothesis('a c', -2.0, -3.0), hypothesis('a z', -0.5, impossible)],
        [hypothesis('a', -1.0, -2.0), hypothesis('b', -3.0, -1.9), hypothesis('z', -0.5, impossible)],
    ]
    weights, error = decoding.tune(lists, [['a', 'c'], ['a']])
    assert error == 0 and 1 / 6 < weights.lm_weight < 20


@pytest.fixture
def files(tmp_path):
    (tmp_path / 'lm.arpa').write_text(ARPA)
    (tmp_path / 'labels.txt').write_text('\n'.join(TOKENS) + '\n')
    (tmp_path / 'lexicon.txt').write_text('a a |\nab\ta b |\nba b a |\nba b |\n')
    (tmp_path / 'references.txt').write_text('one a ba\ntwo ab\n')
    emissions = {}
    for name, path in (('one', '-a|b|-'), ('two', 'a-b|--')):
        emissions[name] = np.full((len(path), 4), -5.0, np.float32)
        emissions[name][range(len(path)), [TOKENS.index(token) for token in path]] = -0.02
    np.savez(tmp_path / 'emissions.npz', **emissions)
    names = {'emissions': 'emissions.npz', 'labels': 'labels.txt', 'lexicon': 'lexicon.txt'}
    return lambda **changes: [
        'decode', str(tmp_path / 'lm.arpa'), *(f'--{k}={tmp_path / v}' for k, v in {**names, **changes}.items())
    ]  # fmt: skip


def test_the_command(files, tmp_path, nplm_command):
    pytest.importorskip('rapidfuzz')
    assert nplm_command(*files(), '--lm_weight=0.1')[0] == ['one\ta ba', 'two\tab']
    without = [flag for flag in files() if not flag.startswith('--lexicon')]
    assert nplm_command(*without, '--lm_weight=0.1')[0] == ['one\ta b', 'two\tab']
    printed, errors = nplm_command(*files(references='references.txt'), '--lm_weight=0.1')
    assert printed == ['one\ta ba', 'two\tab'] and errors[-1].endswith(': 0.0000')
    printed, errors = nplm_command(*files(references='references.txt'), '--tune')
    assert printed[0].startswith('--lm_weight=') and ' --word_score=' in printed[0]
    assert re.search(r'\d\.\d', errors[-1])
    assert nplm_command(*files(), f'-o{tmp_path / "words"}', '--lm_weight=0.1')[0] == []
    assert (tmp_path / 'words').read_text() == 'one\ta ba\ntwo\tab\n'


@pytest.mark.parametrize('flags', [[], ['--tune']])
def test_references_are_refused_before_the_search_if_rapidfuzz_is_missing(files, capsys, monkeypatch, flags):
    monkeypatch.setitem(sys.modules, 'rapidfuzz.distance', None)
    monkeypatch.setattr(decoding.Decoder, 'decode', None)
    with pytest.raises(SystemExit) as stop:
        cli.main([*files(references='references.txt'), *flags])
    assert stop.value.code == 2 and capsys.readouterr().err.startswith('rapidfuzz: ')


def test_tuning_prints_the_best_weights_of_all_searches(files, monkeypatch, nplm_command):
    pytest.importorskip('rapidfuzz')
    monkeypatch.setattr('nplm_jax.apps.decoding.decoder.tune', lambda *_: (decoding.Weights(0.0, -50.0), 0.0))
    printed, errors = nplm_command(*files(references='references.txt'), '--tune', '--lm_weight=0.1')
    assert printed == ['--lm_weight=0.1 --word_score=0'] and errors[-1].count('0.0000') == 2


@pytest.mark.parametrize(
    'name,content,message',
    [
        ('labels', '-\n|\na\n', 'lexicon.txt:2: '),
        ('lexicon', 'a\n', 'lexicon:1: '),
        ('lexicon', '', 'lexicon'),
        ('lexicon', 'a a |\nab a - b |\n', 'lexicon:2: '),
        ('labels', '_\n|\na\nb\n', "--blank='-': "),
        ('labels', '-\n/\na\nb\n', "--silence='|': "),
        ('labels', '-\n|\na\nb\nb\n', '--emissions: '),
        ('references', 'one a\n', "'two'"),
        ('references', 'one\ntwo\n', 'references'),
        ('references', 'one a\ntwo ab\none b\n', 'references:3: '),
        ('emissions', 'no zip', 'emissions'),
    ],
)
def test_bad_files_are_one_line(files, tmp_path, capsys, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(SystemExit) as stop:
        cli.main(files(**{name: name}))
    error = capsys.readouterr().err
    assert stop.value.code == 2 and message in error and error.count('\n') == 1


@pytest.mark.parametrize(
    'arrays,message',
    [
        ({}, '--emissions='),
        ({'x': np.zeros(3, np.float32)}, '--emissions: x='),
        ({'x': np.zeros((3, 4), np.int32)}, '--emissions: x='),
        ({'x': np.zeros((0, 4), np.float32)}, '--emissions: x='),
        ({'x': np.zeros((3, 5), np.float32)}, '--emissions: x=(3, 5): '),
        ({'x': np.full((3, 4), np.nan)}, '--emissions: x=(3, 4): '),
        ({'x': np.full((3, 4), 0.5)}, '--emissions: x=(3, 4): '),
        ({'x': np.array([['a'] * 4])}, '--emissions: x='),
        ({'x': np.log(np.array([[0.25] * 4, [1.0] * 4]))}, '--emissions: x=(2, 4): '),  # padded with zeros
        ({'x': np.log(np.array([[0.7, 0.1, 0.1, 0.1]] * 4)).T}, '--emissions: x=(4, 4): '),  # transposed
        ({'x': np.array([[3.0, -2.0, 0.5, 1.0]])}, '--emissions: x=(1, 4): '),
        ({'x': np.array([{}])}, "'x'"),
    ],
)
def test_bad_emissions_are_one_line(files, tmp_path, capsys, arrays, message):
    np.savez(tmp_path / 'bad.npz', **arrays)
    with pytest.raises(SystemExit) as stop:
        cli.main(files(emissions='bad.npz'))
    error = capsys.readouterr().err
    assert stop.value.code == 2 and message in error and error.count('\n') == 1


@pytest.mark.parametrize('flag', ['--blank=/', '--silence=/'])
def test_a_label_that_the_model_lacks_is_refused_with_and_without_a_lexicon(files, capsys, flag):
    for words in (files(), [word for word in files() if not word.startswith('--lexicon')]):
        with pytest.raises(SystemExit):
            cli.main([*words, flag])
        assert capsys.readouterr().err.startswith(flag.replace('=/', "='/': "))


@pytest.mark.parametrize('header', ['{[]: 1}', "{1: 2, 'descr': 3}"])
def test_a_damaged_header_of_emissions_is_one_line(files, tmp_path, capsys, header):
    with zipfile.ZipFile(tmp_path / 'bad.npz', 'w') as archive:
        archive.writestr('x.npy', b'\x93NUMPY\x01\x00' + len(header).to_bytes(2, 'little') + header.encode())
    with pytest.raises(SystemExit) as stop:
        cli.main(files(emissions='bad.npz'))
    error = capsys.readouterr().err
    assert stop.value.code == 2 and "'x'" in error and error.count('\n') == 1


def test_weights_of_one_run_are_refused(files, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main([*files(), '--weights=0.5'])
    assert stop.value.code == 2 and "--weights='0.5': " in capsys.readouterr().err


def test_a_model_without_the_end_of_sentences_is_refused(files, tmp_path, capsys):
    text = ARPA.replace('-0.6\t</s>\n', '').replace('-0.4\tba </s>\n', '')
    (tmp_path / 'lm.arpa').write_text(text.replace('1=6', '1=5').replace('2=4', '2=3'))
    with refuses('model'):
        decoding.Decoder(kenlm.Model(tmp_path / 'lm.arpa'), TOKENS, LEXICON)
    with pytest.raises(SystemExit) as stop:
        cli.main(files())
    error = capsys.readouterr().err
    assert stop.value.code == 2 and error.startswith('model=') and error.count('\n') == 1


def test_an_end_of_probability_zero_leaves_finite_totals(tmp_path):
    (tmp_path / 'lm.arpa').write_text(
        ARPA.replace('-0.6\t</s>', '-inf\t</s>').replace('-0.4\tba </s>', '-inf\tba </s>')
    )
    emissions_FxN = np.log(np.array([[0.1, 0.1, 0.7, 0.1], [0.1, 0.7, 0.1, 0.1]], np.float32))
    decoder = decoding.Decoder(kenlm.Model(tmp_path / 'lm.arpa'), TOKENS, LEXICON, decoding.Weights(0.0))
    (best, *_) = decoder.decode(emissions_FxN)
    assert best.words == ('a',) and math.isfinite(best.score)


def test_a_lexicon_in_other_tokens_is_refused_in_python(model):
    with refuses('lexicon'):
        decoding.Decoder(model, TOKENS, {'a': [['y']]})
    for spellings in ('ab|', ['a', 'b', '|'], [], [['a', '-', 'b', '|']]):
        with refuses('lexicon'):
            decoding.Decoder(model, TOKENS, {'ab': spellings})
    with refuses('lexicon'):
        decoding.Decoder(model, TOKENS, {'b': [['b', '|']]})
    with refuses('tokens'):
        decoding.Decoder(model, [*TOKENS, 'a'], LEXICON)


@pytest.mark.parametrize('lexicon', [None, LEXICON])
@pytest.mark.parametrize('wrong', [math.nan, math.inf, '1'])
def test_weights_that_are_not_finite_are_refused_with_and_without_a_model(model, lexicon, wrong):
    for used in (model, None):
        with refuses('lm_weight'):
            decoding.Decoder(used, TOKENS, lexicon, decoding.Weights(wrong))
        with refuses('word_score'):
            decoding.Decoder(used, TOKENS, lexicon, decoding.Weights(1.0, wrong))
    with refuses('model') as caught:
        decoding.Decoder('runs/brown-lstm', TOKENS, lexicon)
    assert 'end-of-sentence' not in str(caught.value)


@pytest.mark.parametrize('lexicon', [None, LEXICON])
def test_a_label_that_separates_words_is_not_the_blank(model, files, capsys, lexicon):
    with refuses('silence'):
        decoding.Decoder(model, TOKENS, lexicon, blank='|')
    with pytest.raises(SystemExit):
        cli.main([*(flag for flag in files() if lexicon or '--lexicon' not in flag), '--blank=|'])
    assert capsys.readouterr().err.startswith("--silence='|': ")


def test_tokens_in_another_case_are_refused_without_a_lexicon(model):
    with refuses('tokens'):
        decoding.Decoder(model, ['-', '|', 'A', 'B'])
    assert decoding.Decoder(None, ['-', '|', 'A', 'B']).decode(np.log(np.eye(4)[[2]] + 1e-6))[0].words == ('A',)
