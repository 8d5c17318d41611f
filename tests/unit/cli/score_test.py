"""Compares the scores of lines with direct evaluation, and tests the command's output in KenLM's columns."""

import io
import json
import math
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from helpers import ROOT, corpus_settings, make_model, numbers, write_arpa

from nplm_jax.cli import __main__ as cli
from nplm_jax.data.corpora import make_tokenizer
from nplm_jax.data.line_start import LineStart
from nplm_jax.data.stream import Span
from nplm_jax.data.tokenizers import cutting
from nplm_jax.data.tokenizers.words import WordTokenizer, reading
from nplm_jax.inference import scoring
from nplm_jax.inference.perplexity import evaluate
from nplm_jax.models import mixture
from nplm_jax.models.language_model import LanguageModel
from nplm_jax.ngram import kneser_ney
from nplm_jax.ngram.counts import count
from nplm_jax.runs import experiment, loading

pytestmark = pytest.mark.filterwarnings('ignore::nplm_jax.ngram.kneser_ney.DiscountWarning')

TEXT = 'i like dog\ni love zzz milk\n\ni hate'


@pytest.fixture
def call(monkeypatch, lines):
    def call(text, *arguments):
        lines()
        data = text if isinstance(text, bytes) else text.encode()
        monkeypatch.setattr(sys, 'stdin', io.TextIOWrapper(io.BytesIO(data)))
        cli.main(['score', *map(str, arguments)])
        return lines()

    return call


def test_the_totals_of_ten_million_words_lose_nothing():
    class Even(LanguageModel):
        n = 1

        def score_span(self, tokens_T, span):
            return np.resize(np.asarray([-1e-3, -17.123], np.float32), len(span))

        def next_word(self, contexts_BxN):
            raise NotImplementedError

    line = np.ones(10_000_000, np.int32)
    totals = scoring.total(scoring.score(Even(), [line[:9_999_999], line[:1]], stream=True))
    expected = -5_000_000 * (float(np.float32(1e-3)) + float(np.float32(17.123))) / scoring.LOG_10
    assert totals.log10_p == pytest.approx(expected, rel=1e-12) and totals.log10_p_known == totals.log10_p


def models(size):
    rng = np.random.default_rng(0)
    tokens_T = np.minimum(rng.geometric(0.2, 400) - 1, size - 1).astype(np.int32)
    gru = {'model.family': 'gru', 'model.direct': False, 'train.batch_size': 16}
    network, gru = make_model(size), make_model(size, gru, seed=1)
    trigram = kneser_ney.fit_modified(count(tokens_T, Span(0, 400), 3, size))
    return {'network': network, 'trigram': trigram, 'mixture': mixture.equal([network, trigram]), 'gru': gru}


@pytest.mark.parametrize('name', ['network', 'trigram', 'mixture', 'gru'])
@pytest.mark.parametrize('prefix', [None, [], [2], [1, 2, 3, 4, 5]])
def test_each_word_is_its_next_word_probability(name, prefix):
    model = models(12)[name]
    lines = [np.array(x, np.int32) for x in ([3, 0, 5, 7, 1], [], [4], [1, 1, 2, 9, 11, 3, 3])]
    if prefix is None:
        scored = scoring.score(model, lines, stream=True)
    else:
        scored = scoring.score(model, lines, LineStart(tuple(prefix)))
    before = []
    for line, found in zip(lines, scored):
        if prefix is not None:
            before = prefix
        expected = [model.next_word(np.array([[*before, *line[:t]]], int))[0, w] for t, w in enumerate(line)]
        np.testing.assert_allclose(found.log10_p_T * math.log(10), expected, rtol=0, atol=1e-5)
        before = [*before, *line]


def test_lengths_of_the_ngrams():
    network = models(12)['network']
    lines = [np.array(x, np.int32) for x in ([3, 5, 7, 1, 2], [4, 4])]
    after = LineStart((2,))
    assert [x.lengths_T.tolist() for x in scoring.score(network, lines, after)] == [[2, 3, 4, 4, 4], [2, 3]]
    assert [x.lengths_T.tolist() for x in scoring.score(network, lines)] == [[1, 2, 3, 4, 4], [1, 2]]
    assert [x.lengths_T.tolist() for x in scoring.score(network, lines, stream=True)] == [[1, 2, 3, 4, 4], [4, 4]]
    counted = kneser_ney.fit_modified(count(np.array([1, 2, 3, 1, 2, 3, 4], np.int32), Span(0, 7), 3, 6))
    (line,) = scoring.score(counted, [np.array([1, 2, 3, 5, 4, 1], np.int32)])
    assert line.lengths_T.tolist() == [1, 2, 3, 1, 1, 1]
    unigram = kneser_ney.fit_modified(count(np.array([1, 2, 3, 1, 2, 3, 4], np.int32), Span(0, 7), 1, 6))
    for mixed in (mixture.equal([unigram, counted]), mixture.CachedScores(counted)):
        (line,) = scoring.score(mixed, [np.array([1, 2, 3, 5, 4, 1], np.int32)])
        assert line.lengths_T.tolist() == [1, 2, 3, 1, 1, 1]


def test_totals_by_hand():
    lines = [
        scoring.Line(np.array(i), np.array(p), np.ones(len(i))) for i, p in [([1, 0], [-1.0, -3.0]), ([2], [-2.0])]
    ]
    total = scoring.total(lines)
    assert (total.tokens, total.oovs, total.perplexity) == (3, 1, pytest.approx(100))
    assert total.perplexity_known == pytest.approx(10**1.5)
    only_unknown = scoring.total([scoring.Line(np.array([0]), np.array([-400.0]), np.ones(1))])
    assert only_unknown.perplexity == math.inf and math.isnan(only_unknown.perplexity_known)


# --- the words of a text ---------------------------------------------------------------------------------


def test_a_typed_text_becomes_words_as_the_corpus_did():
    known = {'the', 'dog', 'said', ',', "'s"}

    def tokenize_prompt(text, settings, known, kind=''):
        return cutting.tokenize(reading(make_tokenizer(settings), kind), [text], known)[0]

    brown, text = corpus_settings('brown'), corpus_settings('text', 'x')
    assert tokenize_prompt("The dog's, said", brown, known) == ['the', 'dog', "'s", ',', 'said']
    assert tokenize_prompt("The dog's, said", brown, known, 'whitespace') == ['the', "dog's,", 'said']
    assert tokenize_prompt("The dog's, said", text, known) == ['the', 'dog', "'s", ',', 'said']
    assert tokenize_prompt('<p> The, dog', brown, known, 'words') == ['the', ',', 'dog']
    news = corpus_settings('text', 'x', numbers=True, proper_nouns=True)
    assert tokenize_prompt("The dog said Smith's 7", news, known) == [
        'the',
        'dog',
        'said',
        '<proper>',
        "'s",
        '<number>',
    ]


# --- the command -----------------------------------------------------------------------------------------


def parse(lines):
    """Returns (word, id, length, log10 p) of each word of each line, the totals of the lines, and the summary."""
    end = next(i for i, x in enumerate(lines) if x.startswith('Perplexity'))
    words = [[re.fullmatch(r'(.+)=(\d+) (\d+) (\S+)', c).groups() for c in x.split('\t')[:-1]] for x in lines[:end]]
    totals = [re.fullmatch(r'Total: (\S+) OOV: (\d+)', x.split('\t')[-1]).groups() for x in lines[:end]]
    return words, totals, dict(x.split(':\t') for x in lines[end:])


@pytest.mark.parametrize('name', ['network', 'counts'])
def test_kenlms_columns_and_a_direct_evaluation(folders, call, name):
    words, totals, summary = parse(call(TEXT, str(folders / name))[0])
    loaded = experiment.load(folders / name)
    found, vocabulary, model = loaded.settings, loaded.vocabulary, loaded.model
    assert [[w for w, *_ in line] for line in words] == [x.split() for x in TEXT.split('\n')]
    log10_p, known = [], []
    for line, (total, oov) in zip(words, totals):
        context = [vocabulary.ids['<p>']] if found.corpus.tokenizer.boundary_tokens else []
        for word, i, length, p in line:
            assert int(i) == vocabulary.ids.get(word, 0)
            expected = model.next_word(np.array([context], int))[0, int(i)]
            assert float(p) * math.log(10) == pytest.approx(expected, abs=1e-5)
            assert 1 <= int(length) <= found.model.n
            context.append(int(i))
            log10_p.append(float(p))
            known += [float(p)] if int(i) else []
        assert float(total) == pytest.approx(sum(float(p) for *_, p in line), abs=1e-5)
        assert int(oov) == sum(i == '0' for _, i, *_ in line)
    assert summary['OOVs'] == '1' and summary['Tokens'] == '9'
    assert float(summary['Perplexity including OOVs']) == pytest.approx(10 ** -np.mean(log10_p), rel=1e-5)
    assert float(summary['Perplexity excluding OOVs']) == pytest.approx(10 ** -np.mean(known), rel=1e-5)


def test_a_stream_has_the_runs_perplexity(folders, call):
    loaded = experiment.load(folders / 'network')
    found, model = loaded.settings, loaded.model
    data = loading.load_dataset(found)
    tokens_T = np.append(data.tokens_T[1:], data.vocabulary.ids['<p>'])  # without `<text>`
    text = 'i like dog\ni love coffee\ni hate milk'
    flag = str(folders / 'network')
    _, _, summary = parse(call(text, flag, '--stream', '--end')[0])
    expected = evaluate(model, tokens_T, Span(1, len(tokens_T))).perplexity
    assert float(summary['Perplexity including OOVs']) == pytest.approx(expected, rel=1e-5)
    assert call(text, str(folders / 'network'))[0] != call(text, str(folders / 'network'), '--stream')[0]


def test_a_mixture_of_runs(folders, call):
    pair = [str(folders / name) for name in ('network', 'counts')]
    each = [parse(call(TEXT, flag)[0])[0] for flag in pair]
    mixed = parse(call(TEXT, *pair)[0])[0]
    for a, b, both in zip(*(sum(x, []) for x in (*each, mixed))):
        p = (10 ** float(a[3]) + 10 ** float(b[3])) / 2
        assert float(both[3]) == pytest.approx(math.log10(p), abs=1e-5)


def test_the_end_of_a_line_is_the_paragraph_mark(folders, call):
    flag = str(folders / 'network')
    words, totals, summary = parse(call('i like dog', flag, '--end')[0])
    loaded = experiment.load(folders / 'network')
    vocabulary, model = loaded.vocabulary, loaded.model
    context = vocabulary.encode(['<p>', 'i', 'like', 'dog'])[None]
    expected = model.next_word(context)[0, vocabulary.ids['<p>']] / math.log(10)
    assert words[0][-1][0] == '<p>' and float(words[0][-1][3]) == pytest.approx(expected, abs=1e-5)
    without = float(parse(call('i like dog', flag)[0])[1][0][0])
    assert float(totals[0][0]) == pytest.approx(without + expected, abs=1e-5) and summary['Tokens'] == '4'


def test_a_corpus_without_marks_has_no_end_of_a_line(folders, call, lines):
    with pytest.raises(SystemExit):
        call('other words', folders / 'other', '--end')
    (line,) = lines()[1]
    assert line.startswith('--end=True: ')


def test_unknown_words_are_counted_and_named_and_many_of_them_warned_of(folders, call):
    _, stderr = call('i like dog. zzz', folders / 'network')
    assert numbers(stderr[0]) == ['2', '5', '40.0'] and stderr[0].endswith(': . zzz')
    assert stderr[1].startswith('warning: ') and numbers(stderr[1])[:2] == ['40.0', '5'] and len(stderr) == 2
    assert len(call('i like dog ' * 10 + 'zzz', folders / 'network')[1]) == 1
    assert call('i like dog', folders / 'network')[1] == []
    assert call('i like dog. <rare>', folders / 'network')[1] == [line.replace('zzz', '<rare>') for line in stderr]


def test_a_text_without_blanks_is_told_in_one_line(folders, call):
    _, stderr = call('我喜欢狗，我爱咖啡，我讨厌牛奶，今天天气很好。', folders / 'network')
    assert sum('(0.0%' in line for line in stderr) == 1


def test_the_summary_has_the_totals_without_the_words(folders, call):
    whole = call(TEXT, folders / 'counts')[0]
    summary = call(TEXT, folders / 'counts', '--summary')[0]
    assert summary == whole[-len(summary) :] and summary[3] == 'OOV rate:\t11.11%'
    (output,), _ = call(TEXT, folders / 'counts', '--summary', '--json')
    assert 'lines' not in json.loads(output) and json.loads(output)['oov_rate'] == 1 / 9


def test_a_large_text_looks_at_each_different_word_once(folders, call, monkeypatch):
    cut = []
    monkeypatch.setattr(
        WordTokenizer, 'cut', lambda self, words, known: cut.extend(words) or [[word] for word in words]
    )
    call('i like dog\n' * 1000, folders / 'counts', '--summary')
    assert cut == ['i', 'like', 'dog']


def test_json_has_what_the_columns_show(folders, call):
    words, totals, summary = parse(call(TEXT, folders / 'counts')[0])
    (output,), _ = call(TEXT, folders / 'counts', '--json')
    scored = json.loads(output)
    for line, columns, (total, _) in zip(scored['lines'], words, totals):
        assert line['words'] == [w for w, *_ in columns] and line['total'] == pytest.approx(float(total), abs=1e-5)
        assert line['lengths'] == [int(length) for _, _, length, _ in columns]
    assert scored['oovs'] == 1 and scored['tokens'] == 9
    assert scored['perplexity'] == pytest.approx(float(summary['Perplexity including OOVs']), rel=1e-5)


def test_a_stream_starts_as_a_line_does(folders, call):
    flag = str(folders / 'network')
    first = [parse(call('i like dog', flag, *more)[0])[0][0][0] for more in ([], ['--stream'])]
    assert first[0] == first[1]


@pytest.mark.parametrize('name', ['network', 'counts'])
def test_marks_in_a_text_are_skipped_and_unknown_symbols_are_unknown_words(folders, call, name):
    with_marks = '<p> i <s> like </s> dog <text>\n</s>\nhate <unk>'
    for more in ([], ['--end'], ['--stream'], ['--tokens=whitespace']):
        (output,), _ = call(with_marks, folders / name, '--json', *more)
        expected = json.loads(call('i like dog\n\nhate zzz', folders / name, '--json', *more)[0][0])
        lines = json.loads(output)['lines']
        assert [line['words'][: len('hate zzz'.split())] for line in lines][-1] == ['hate', '<unk>']
        assert [line['log10_p'] for line in lines] == [line['log10_p'] for line in expected['lines']]


@pytest.mark.parametrize('text, is_kept', [('I Like dog', True), ('<s> i like dog </s>', False)])
def test_numbers_per_byte_are_of_a_text_whose_words_are_all_scored(text, is_kept, folders, call):
    (output,), stderr = call(text, folders / 'network', '--summary', '--json')
    scored = json.loads(output)
    assert scored['oovs'] == 0 and scored['tokens'] == 3
    assert ('bits_per_byte' in scored) == is_kept and len(stderr) == 1
    assert ('as the models read it' in stderr[0]) == is_kept  # the models read lower case
    (lower,), stderr = call(text.lower(), folders / 'network', '--summary', '--json')
    assert not is_kept or (json.loads(lower) == scored and stderr == [])


def test_windows_line_ends_change_nothing(folders, call):
    text = 'i like dog\n\ni hate\n'
    for more in ([], ['--end'], ['--stream'], ['--tokens=whitespace']):
        unix, windows = (call(t, folders / 'network', *more) for t in (text, text.replace('\n', '\r\n')))
        assert unix == windows and 'Bits per byte' in unix[0][-1]


def test_sota_lm_has_the_probability_of_each_word_and_line_end_but_the_first(folders, call):
    text = 'i like dog\n\ni love zzz'
    output, _ = call(text, folders / 'network', '--format=sota_lm')
    loaded = experiment.load(folders / 'network')
    vocabulary, model = loaded.vocabulary, loaded.model
    stream = ['i', 'like', 'dog', '<p>', '<p>', 'i', 'love', 'zzz', '<p>']
    assert len(output) == len(stream) - 1
    for t, p in enumerate(output, start=1):
        context = vocabulary.encode(['<p>', *stream[:t]])[None]
        expected = model.next_word(context)[0, vocabulary.ids.get(stream[t], 0)]
        assert math.log(float(p)) == pytest.approx(expected, abs=1e-5)


def test_query_has_the_lines_and_the_sums_of_kenlm(folders, call):
    text = 'i like dog\n\ni love zzz'
    output, _ = call(text, folders / 'counts', '--format=query')
    expected = json.loads(call(text, folders / 'counts', '--end', '--tokens=whitespace', '--json')[0][0])
    for row, line, oovs in zip(output, expected['lines'], (0, 0, 1)):
        *columns, total = row.split('\t')
        words = ['</s>' if word == '<p>' else word for word in line['words']]
        digits = [str(np.float32(p)) for p in line['log10_p']]
        assert columns == [f'{w}={i} {n} {p}' for w, i, n, p in zip(words, line['ids'], line['lengths'], digits)]
        match = re.fullmatch(r'Total: (\S+) OOV: (\d)', total)
        assert float(match[1]) == pytest.approx(line['total'], rel=1e-6) and int(match[2]) == oovs
    names = ('Perplexity including OOVs', 'Perplexity excluding OOVs', 'OOVs', 'Tokens')
    values = [expected[key] for key in ('perplexity', 'perplexity_without_oovs', 'oovs', 'tokens')]
    assert output[3:] == [f'{name}:\t{value}' for name, value in zip(names, values)]
    assert call(text, folders / 'counts', '--format=query', '--summary')[0] == output[3:]


@pytest.mark.skipif(not shutil.which('query'), reason="needs KenLM's query")
def test_query_prints_what_kenlm_prints(folders, call, tmp_path):
    text = 'i like dog\n\ni love zzz\ndog dog\n'
    write_arpa(folders / 'counts', tmp_path / 'lm.arpa')
    done = subprocess.run(['query', tmp_path / 'lm.arpa'], input=text, capture_output=True, text=True, check=True)
    numbers = r'(?<=[ \t])-?\d+\.\d+'
    output = '\n'.join(call(text, folders / 'counts', '--format=query')[0])
    assert re.sub(numbers, 'x', output) == re.sub(numbers, 'x', done.stdout.strip())
    found, expected = (list(map(float, re.findall(numbers, shown))) for shown in (output, done.stdout))
    np.testing.assert_allclose(found, expected, rtol=2e-6)


REFUSED = [('sota_lm', 'json'), ('sota_lm', 'summary'), ('sota_lm', 'open')]
REFUSED += [('query', 'json'), ('query', 'stream'), ('query', 'open')]


@pytest.mark.parametrize('form,flag', REFUSED)
def test_what_a_format_cannot_be_combined_with(form, flag, folders, call, lines):
    with pytest.raises(SystemExit):
        call('i', folders / 'network', f'--format={form}', f'--{flag}')
    (line,) = lines()[1]
    assert line.startswith(f'--{flag}=True: ') and f'--format={form}' in line


@pytest.mark.parametrize('form', ['sota_lm', 'query'])
def test_a_format_with_line_ends_needs_marks(form, folders, call, lines):
    with pytest.raises(SystemExit):
        call('other words', folders / 'other', f'--format={form}')
    (line,) = lines()[1]
    assert line.startswith(f"--format='{form}': ")


WRONG = [
    ('', [], 'stdin:'),
    (' \n\n', [], 'stdin:'),
    (b'caf\xe9', [], 'stdin:'),
    ('a', ['OTHER'], 'differs from that of'),
    ('a', ['/nowhere'], "RUN='/nowhere':"),
    ('a', ['--score_weights=1'], 'unrecognized arguments: --score_weights=1'),
    ('a', ['--prompt=i'], 'unrecognized arguments: --prompt=i; nplm score --help lists the flags'),
    ('a', ['--format=srilm'], "--format='srilm':"),
    ('a', ['--tokens=letters'], "--tokens='letters':"),
]


@pytest.mark.parametrize('text,arguments,message', WRONG)
def test_one_clear_line_and_exit_code_two(text, arguments, message, folders, call, lines):
    arguments = [a.replace('OTHER', str(folders / 'other')) for a in arguments]
    with pytest.raises(SystemExit) as stop:
        call(text, str(folders / 'network'), *arguments)
    _, stderr = lines()
    assert stop.value.code == 2 and message in stderr[0] and len(stderr) == 1, stderr


def test_an_unfinished_run_is_refused(folders, tmp_path, call, lines):
    (tmp_path / 'config.json').write_text((folders / 'network' / 'config.json').read_text())
    with pytest.raises(SystemExit):
        call('a', str(tmp_path))
    (message,) = lines()[1]
    assert message.startswith(f"RUN='{tmp_path}': ")


def test_a_run_given_twice_is_refused(folders, call, lines):
    run = folders / 'network'
    with pytest.raises(SystemExit):
        call('a', str(run), f'{run}')
    (line,) = lines()[1]
    assert line.startswith(f"RUN='{run}': ")


def test_as_a_real_process_whose_reader_goes_away(folders):
    score = f'{sys.executable} -m nplm_jax.cli score {folders / "network"}'
    command = f'yes i like dog | head -9999 | {score} | head -1'
    done = subprocess.run(['bash', '-c', command], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.stdout.startswith('i=') and done.stdout.endswith(' OOV: 0\n') and done.stderr == ''
