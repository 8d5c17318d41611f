"""Compares pruned ARPA files with the unpruned numbers, with the definition, and with KenLM's lmplz."""

import itertools
import math
import re
import shutil
import subprocess

import numpy as np
import pytest
from helpers import write_arpa

from nplm_jax import kenlm
from nplm_jax.cli import __main__ as cli
from nplm_jax.data.line_start import LineStart
from nplm_jax.data.stream import RARE, Span
from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.inference import scoring
from nplm_jax.ngram import arpa, counts, entropy_pruning, kneser_ney, sentence_marks

LM = """
\\data\\
ngram 1=5
ngram 2=6
ngram 3=2

\\1-grams:
-1	<unk>
0	<s>	-0.07918
-0.5228787	</s>
-0.39794	a	0.36883
-0.69897	b	0.24335

\\2-grams:
-0.30103	<s> a	-0.30805
-0.60206	a a	-0.12343
-0.69897	a b
-0.5	a </s>
-1	b a
-0.7	b b

\\3-grams:
-0.2	<s> a a
-0.4	a a b

\\end\\
"""


@pytest.fixture
def lm(tmp_path):
    (tmp_path / 'lm.arpa').write_text(LM)
    return tmp_path / 'lm.arpa'


def ngrams(path):
    return [line.split('\t')[1] for line in path.read_text().splitlines() if '\t' in line]


# --- the words of a list -----------------------------------------------------------------------------------------


def test_the_words_of_a_list_keep_their_scores(lm, tmp_path, nplm_command):
    (tmp_path / 'words.txt').write_text('a\tzebra\n')
    output = tmp_path / 'small.arpa'
    out, _ = nplm_command('prune', lm, f'--limit_vocab_file={tmp_path / "words.txt"}', f'--output={output}')
    assert ngrams(output) == ['<unk>', '<s>', '</s>', 'a', '<s> a', 'a </s>', 'a a', '<s> a a']
    sizes = '4 of 5 1-grams, 3 of 6 2-grams, 1 of 2 3-grams'
    assert out == [f'{output}: {output.stat().st_size} bytes, {sizes}']
    large, small = kenlm.Model(lm), kenlm.Model(output)
    for text in ('', 'a', 'a a', 'a a a a', 'zebra a'):
        assert small.score(text) == pytest.approx(large.score(text), abs=1e-6)
    assert small.score('a b') == pytest.approx(large.score('a zebra'), abs=1e-6)


def test_a_word_of_the_list_may_have_a_blank_that_is_not_ascii(lm, tmp_path, nplm_command):
    lm.write_text(re.sub(r'\bb\b', 'b\xa0b', LM))
    (tmp_path / 'words.txt').write_text('b\xa0b a')
    output = tmp_path / 'small.arpa'
    nplm_command('prune', lm, f'--limit_vocab_file={tmp_path / "words.txt"}', f'--output={output}')
    assert sorted(ngrams(output)) == sorted(ngrams(lm))


def test_an_order_without_n_grams_is_left_out(lm, tmp_path, nplm_command):
    (tmp_path / 'words.txt').write_text('b')
    output = tmp_path / 'small.arpa'
    out, _ = nplm_command('prune', lm, f'--limit_vocab_file={tmp_path / "words.txt"}', f'--output={output}')
    assert (
        re.findall(r'(\d+) of (\d+) \d-grams', out[0])[1:] == [('1', '6'), ('0', '2')]
        and kenlm.Model(output).order == 2
    )
    assert kenlm.Model(output).score('b b') == pytest.approx(kenlm.Model(lm).score('b b'), abs=1e-6)


def test_weights_stay_below_an_order_without_n_grams(lm, tmp_path, nplm_command):
    lm.write_text(LM.replace('b b\n', 'b b\t-0.7\n'))
    (tmp_path / 'words.txt').write_text('b')
    output = tmp_path / 'small.arpa'
    nplm_command('prune', lm, f'--limit_vocab_file={tmp_path / "words.txt"}', f'--output={output}')
    score = kenlm.Model(lm).score('b b b')
    assert kenlm.Model(output).score('b b b') == pytest.approx(score, abs=1e-6)
    if shutil.which('query'):
        done = subprocess.run(['query', str(output)], input='b b b\n', capture_output=True, text=True, check=True)
        assert float(done.stdout.split('Total: ')[1].split()[0]) == pytest.approx(score, abs=1e-5)
    model, vocabulary = arpa.read(output)
    ids = np.array(vocabulary.encode(['b', 'b', 'b']))
    log10_p = model.score(ids, Span(2, 3)) / math.log(10)
    assert model.table.size(3) == 0 and log10_p == pytest.approx(-0.7 - 0.7, abs=1e-6)
    assert model.next_word(ids[None, :2])[0, ids[2]] == pytest.approx(-1.4 * math.log(10), abs=1e-6)


@pytest.mark.skipif(not (shutil.which('lmplz') and shutil.which('query')), reason="needs KenLM's lmplz and query")
def test_the_n_grams_are_those_of_lmplz_with_the_same_list(tmp_path, nplm_command):
    rng = np.random.default_rng(0)
    words = np.array([f'w{i}' for i in range(40)])
    text = '\n'.join(' '.join(words[rng.geometric(0.15, rng.integers(1, 12)) % 40]) for _ in range(400))
    (tmp_path / 'words.txt').write_text(' '.join(words[:15]))
    limit = f'--limit_vocab_file={tmp_path / "words.txt"}'
    for name, more in (('all', []), ('limited', ['--limit_vocab_file', str(tmp_path / 'words.txt')])):
        command = ['lmplz', '-o', '3', '--discount_fallback', *more]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
        (tmp_path / f'{name}.arpa').write_text(done.stdout)
    output = tmp_path / 'small.arpa'
    nplm_command('prune', tmp_path / 'all.arpa', limit, f'--output={output}')
    assert sorted(ngrams(output)) == sorted(ngrams(tmp_path / 'limited.arpa'))
    kept = '\n'.join(line for line in text.splitlines() if set(line.split()) <= set(words[:15]))
    totals = []
    for file in (tmp_path / 'all.arpa', output):
        done = subprocess.run(['query', str(file)], input=kept, capture_output=True, text=True, check=True)
        totals.append([float(row.split('Total: ')[1].split()[0]) for row in done.stdout.splitlines() if 'Total' in row])
    assert len(totals[0]) > 20
    np.testing.assert_allclose(*totals, rtol=2e-6)


@pytest.mark.filterwarnings('ignore:.* of the words are unknown')
def test_a_file_without_an_unknown_word_keeps_the_score_of_one(lm, tmp_path, nplm_command):
    lm.write_text(LM.replace('-1\t<unk>\n', '').replace('ngram 1=5', 'ngram 1=4'))
    (tmp_path / 'words.txt').write_text('a b')
    output = tmp_path / 'small.arpa'
    nplm_command('prune', lm, f'--limit_vocab_file={tmp_path / "words.txt"}', f'--output={output}')
    assert '-100\t<unk>' in output.read_text()
    assert kenlm.Model(output).score('zebra') == pytest.approx(kenlm.Model(lm).score('zebra'), abs=1e-4)


# --- entropy -----------------------------------------------------------------------------------------------------


def test_the_probability_of_a_context_is_the_product_of_the_models(lm):
    model, vocabulary = arpa.read(lm, as_kenlm=True)
    first, second = entropy_pruning.context_probabilities(model, *map(vocabulary.ids.get, ('<s>', '</s>')))
    p = dict(zip(vocabulary.words, first))
    assert p['<s>'] == p['</s>'] == pytest.approx(0.3) and p['a'] == pytest.approx(0.4)
    assert sorted(second) == pytest.approx(
        sorted([0.3 * 0.5, 0.4 * 0.25, 0.4 * 0.2, 0.4 * 10**-0.5, 0.02, 0.2 * 10**-0.7])
    )


def test_pruning_leaves_out_what_changes_the_perplexity_least(folders, tmp_path, nplm_command):
    write_arpa(folders / 'counts', tmp_path / 'lm.arpa')
    model, vocabulary = arpa.read(tmp_path / 'lm.arpa', as_kenlm=True)
    begin, end = (vocabulary.ids[mark] for mark in arpa.SENTENCE_MARKS)
    (context_p,) = entropy_pruning.context_probabilities(model, begin, end)
    p, b = np.exp(model.log_p[0]), np.exp(model.log_b[0])
    ngrams_of = {
        (h, w): q for h, w, q in zip(model.table.prefixes(2), model.table.keys[1] % len(p), np.exp(model.log_p[1]))
    }
    changes = {}
    for (h, w), q in ngrams_of.items():  # the definition, with sums over all words
        others = [v for v in range(len(p)) if v not in (w, begin)]
        words = [v for v in others if (h, v) in ngrams_of]
        new_b = (1 - sum(ngrams_of[h, v] for v in words)) / (1 - sum(p[v] for v in words))
        change = q * (math.log(q) - math.log(new_b * p[w]))
        change += sum(b[h] * p[v] * math.log(b[h] / new_b) for v in others if (h, v) not in ngrams_of)
        changes[h, w] = context_p[h] * change
    in_order = sorted(changes.values())
    gap = 1 + int(np.diff(in_order[1:-1]).argmax())
    threshold = math.expm1((in_order[gap] + in_order[gap + 1]) / 2)
    output = tmp_path / 'small.arpa'
    nplm_command('prune', tmp_path / 'lm.arpa', f'--entropy={threshold!r}', f'--output={output}')
    assert 0 < gap < len(in_order) - 2 and threshold > 0
    kept = {tuple(ngram.split()) for ngram in ngrams(output) if ' ' in ngram}
    names = ['<unk>', *vocabulary.words[1:]]
    assert kept == {(names[h], names[w]) for (h, w), change in changes.items() if change > math.log1p(threshold)}
    small = kenlm.Model(output)
    states = [kenlm.State() for _ in names]
    for state, name in zip(states, names):
        small.BaseScore(kenlm.State(), name, state)
    sums = (10.0 ** small.next_words(states)).sum(1)
    np.testing.assert_allclose(sums, 1, atol=1e-4)


@pytest.mark.filterwarnings('ignore::nplm_jax.ngram.kneser_ney.DiscountWarning')
def test_a_model_that_reads_across_line_ends_can_still_be_imported(tmp_path, nplm_command):
    rng = np.random.default_rng(0)
    tokens_T = np.minimum(rng.geometric(0.3, 3000), 9).astype(np.int32)
    tokens_T[rng.random(3000) < 0.2] = 0
    vocabulary = Vocabulary((RARE, '<p>', *'abcdefgh'), (1,) * 10)
    full = kneser_ney.fit_modified(counts.count(tokens_T, Span(0, 3000), 4, 10))
    arpa.write(full, vocabulary, tmp_path / 'lm.arpa')
    output = tmp_path / 'small.arpa'
    nplm_command('prune', tmp_path / 'lm.arpa', '--entropy=1e-5', f'--output={output}')
    small, words = sentence_marks.merge(output, *arpa.read(output, as_kenlm=True))
    assert words.words == vocabulary.words and small.table.size(4) < full.table.size(4)
    expected = entropy_pruning.prune(full, entropy_pruning.context_probabilities(full), 1e-5)
    contexts = rng.integers(0, 10, (50, 3))
    np.testing.assert_allclose(small.next_word(contexts), expected.next_word(contexts), atol=1e-5)
    line, mark = 'a b a', vocabulary.encode(['<p>'])
    (scored,) = scoring.score(small, [np.append(vocabulary.encode(line.split()), mark)], LineStart((1,)))
    assert kenlm.Model(output).score(line) == pytest.approx(scored.log10_p_T.sum(), abs=1e-5)


def test_probabilities_that_do_not_sum_to_one_are_refused(lm, tmp_path, nplm_command, lines):
    (tmp_path / 'words.txt').write_text('a')
    limited, output = tmp_path / 'limited.arpa', tmp_path / 'out.arpa'
    nplm_command('prune', lm, f'--limit_vocab_file={tmp_path / "words.txt"}', f'--output={limited}')
    with pytest.raises(SystemExit):
        cli.main(['prune', str(limited), '--entropy=1e-9', f'--output={output}'])
    message = (
        '--entropy=1e-09: requires probabilities that sum to one, unlike those of a model with a limited vocabulary'
    )
    assert lines()[1] == [message] and not output.exists()


@pytest.mark.skipif(not shutil.which('lmplz'), reason="needs KenLM's lmplz")
def test_the_probabilities_of_lmplz_sum_to_one(tmp_path, nplm_command):
    rng = np.random.default_rng(0)
    text = '\n'.join(' '.join(f'w{i}' for i in rng.geometric(0.1, rng.integers(1, 12))) for _ in range(400))
    for more in ([], ['--prune', '0', '1', '1'], ['--interpolate_unigrams', '0']):
        command = ['lmplz', '-o', '3', '--discount_fallback', *more]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
        (tmp_path / 'lm.arpa').write_text(done.stdout)
        output = f'--output={tmp_path / "small.arpa"}'
        out, _ = nplm_command('prune', tmp_path / 'lm.arpa', '--entropy=1e-9', output, '--overwrite')
        assert '3-grams' in out[0]


def test_a_threshold_of_nearly_nothing_keeps_the_model(lm, folders, tmp_path, nplm_command):
    write_arpa(folders / 'counts', tmp_path / 'full.arpa')
    nplm_command('prune', tmp_path / 'full.arpa', '--entropy=1e-300', f'--output={tmp_path / "same.arpa"}')
    full, same = kenlm.Model(tmp_path / 'full.arpa'), kenlm.Model(tmp_path / 'same.arpa')
    for words in itertools.permutations(full.vocabulary[3:7], 3):
        assert same.score(' '.join(words)) == pytest.approx(full.score(' '.join(words)), abs=1e-4)


def test_an_empty_highest_order_is_left_alone(folders, tmp_path, nplm_command):
    write_arpa(folders / 'counts', tmp_path / 'lm.arpa')
    header, bigrams = (tmp_path / 'lm.arpa').read_text().replace('\\end\\', '\\3-grams:\n\n\\end\\').split('\n\n', 1)
    (tmp_path / 'empty.arpa').write_text(f'{header}\nngram 3=0\n\n{bigrams}')
    for name in ('lm', 'empty'):
        nplm_command('prune', tmp_path / f'{name}.arpa', '--entropy=1e-3', f'--output={tmp_path / name}')
    assert kenlm.Model(tmp_path / 'empty').order == 3
    assert ngrams(tmp_path / 'empty') == ngrams(tmp_path / 'lm')


BAD = [
    ([], '--entropy: '),
    (['--entropy=0'], '--entropy=0.0: '),
    (['--entropy=x'], "--entropy='x': "),
    (['--entropy=0.999'], '--entropy=0.999: '),
    (['--limit_vocab_file={dir}/no'], "/no': "),
    (['--limit_vocab_file={dir}/words'], "--limit_vocab_file='"),
    (['--entropy=1e-9', '--output={dir}/no/a.arpa'], "/no/a.arpa': "),
    (['--entropy=1e-9', '--output=/proc/a.arpa'], "--output='/proc/a.arpa': "),
    (['--entropy=1e-9', '--output='], "--output='': "),
    (['--entropy=1e-9', '--output={dir}'], '--output='),
]


@pytest.mark.parametrize('flags,message', BAD)
def test_bad_input_is_one_line(flags, message, lm, tmp_path, lines):
    (tmp_path / 'words').write_text('zebra')
    given = [flag.format(dir=tmp_path) for flag in flags]
    with pytest.raises(SystemExit) as stop:
        cli.main(['prune', str(lm), f'--output={tmp_path / "out.arpa"}', *given])
    _, errors = lines()
    assert stop.value.code == 2 and len(errors) == 1 and message in errors[0]
    assert not (tmp_path / 'out.arpa').exists()
