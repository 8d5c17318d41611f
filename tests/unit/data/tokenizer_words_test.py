import warnings

import pytest
from helpers import corpus_settings, refuses

from configs import ap_news as ap_news_config
from nplm_jax.data import corpora, text_files, vocabulary
from nplm_jax.data.tokenizers import cutting
from nplm_jax.data.tokenizers import proper_nouns as finding
from nplm_jax.data.tokenizers.token_text import keeps_letters
from nplm_jax.data.tokenizers.tokenizer import TextChunk
from nplm_jax.data.tokenizers.words import WordTokenizer, is_number, reading
from nplm_jax.runs import experiment
from nplm_jax.utils.errors import BadInput

NEWS = {
    '1995/01.txt': 'WASHINGTON (AP) The vote was on Monday. Officials said that Mr. Obadiah paid $1,995.50.\n\n'
    'He saw Clinton and the officials at 9:30; "Tall men," I said, like Clinton\'s tall aide.\n',
    '1996/01.txt': 'In 1996 Clinton won 50% on the 21st. Clinton won. On that Monday I saw a B52 bush.\n\n'
    'Then Bush, the aide, saw Bush. The five saw a bush and I won Monday.\n',
}


@pytest.fixture
def news(tmp_path):
    for name, text in NEWS.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def ap_news(path, **choices):
    choices = dict(numbers=True, proper_nouns=True, train=30.0, valid=20.0) | choices
    return corpora.load(corpus_settings('ap_news', path=str(path), **choices))


def test_the_papers_preparation_of_a_folder(news):
    corpus = ap_news(news)
    expected = (
        '<text> <p> washington ( ap ) the vote was on <proper> . officials said that <proper> . obadiah paid $ '
        '<number> . <p> he saw <proper> and the officials at <number> : <number> ; " tall men , " i said , like '
        "<proper> 's tall aide . "
        '<text> <p> in <number> <proper> won <number> % on the <number> . <proper> won . on that <proper> i saw a '
        '<proper> bush . <p> then bush , the aide , saw bush . the five saw a bush and i won <proper> .'
    )
    assert corpus.words == expected.split()
    assert (len(corpus.train), len(corpus.valid), len(corpus.test)) == (30, 20, len(corpus.words) - 50)
    words = vocabulary.build(corpus.words, min_count=2)
    assert {'<number>', '<proper>'} < set(words.words) and 'obadiah' not in words.words
    assert words.decode(words.encode(['obadiah', 'won'])) == ['<rare>', 'won']


def test_each_mapping_is_a_key_of_its_own_and_off_by_default(news):
    assert not {'<number>', '<proper>'} & set(ap_news(news, numbers=False, proper_nouns=False).words)
    plain = corpus_settings('text', path=str(news))
    assert not {'<number>', '<proper>'} & set(corpora.load(plain).words)
    numbers = corpora.load(corpus_settings('text', path=str(news), numbers=True)).words
    assert numbers.count('<number>') == 6 and '<proper>' not in numbers and 'clinton' in numbers
    cased = corpora.load(corpus_settings('text', path=str(news), proper_nouns=True, lowercase=False)).words
    assert cased.count('<proper>') == 9 and {'1996', 'Then', 'bush', 'Bush'} < set(cased)


@pytest.mark.parametrize(
    'word', '7 1,995.50 -3 +4 $5 £5 €5 50% .5 10-12 9:30 1/2 1990s 21st 2nd 3RD 4th 3.14 12-25-1995'.split()
)
def test_numbers(word):
    assert is_number(word)


@pytest.mark.parametrize('word', "B52 five 20-year-old . % $ - , ,5, 1st-half x1 <p> 's I".split())
def test_no_numbers(word):
    assert not is_number(word)


def proper_nouns(*paragraphs):
    return set(finding.find_proper_nouns([finding.count_capitals([p.split() for p in paragraphs])]))


def test_the_start_of_a_sentence_says_nothing():
    for before in ('.', '!', '?', ':', '"', '``', '(', '--', '=', 'etc.'):
        assert proper_nouns(f'and so {before} Monday came') == set(), before
    assert proper_nouns('Monday came') == set()
    assert proper_nouns('and so Monday came') == proper_nouns('and so , Monday came') == {'monday'}


def test_the_first_word_of_a_chunk_says_nothing(tmp_path, monkeypatch):
    sentences = ' '.join(f'W{i} came to rest .' for i in range(2000))
    (tmp_path / 'text').write_text(f'{sentences} They saw Ann and Ann and Ann today .')
    for size in (100, 997, 2**20):
        for name in ('CHUNK_CHARACTERS', '_SEARCH_CHARACTERS'):
            monkeypatch.setattr(text_files, name, size)
        corpus = corpora.load(corpus_settings('text', path=str(tmp_path / 'text'), proper_nouns=True))
        assert corpus.tokenizer.names == ('ann',)


def test_a_type_seen_in_lower_case_more_than_a_twentieth_of_the_time_is_none():
    capitals = 'the Bush ' * 19
    assert proper_nouns(capitals + 'a bush') == {'bush'}
    assert proper_nouns(capitals + 'a bush bush') == set()
    assert proper_nouns(capitals + 'a', 'bush is') == {'bush'}  # in lower case, the first word of a sentence counts too
    assert proper_nouns(capitals, 'bush is', 'bush is') == set()
    assert proper_nouns('an EBay of ' + 'the eBay ' * 9) == set()  # a capital inside does not make another type


def test_the_pronoun_is_none_and_an_abbreviation_is_one():
    assert proper_nouns("then I and I'm and I’ll and U.S soldiers of NATO") == {'u.s', 'nato'}


def test_proper_nouns_are_looked_for_over_all_files_together(tmp_path):
    for name, text in (('train', 'the Rose and a rose'), ('valid', 'a rose is Ann'), ('test', 'Ann sees Ann')):
        (tmp_path / name).write_text(text)
    corpus = corpora.load(
        corpus_settings(
            'text',
            path=str(tmp_path / 'train'),
            valid_path=str(tmp_path / 'valid'),
            test_path=str(tmp_path / 'test'),
            proper_nouns=True,
            boundary_tokens=False,
        )
    )
    assert corpus.words == 'the rose and a rose a rose is <proper> <proper> sees <proper>'.split()
    assert [len(s) for s in corpus.splits.values()] == [5, 4, 3]


def test_a_text_without_capitals_has_no_proper_nouns_to_find(tmp_path):
    (tmp_path / 'a.txt').write_text('all in lower case .')
    with pytest.raises(BadInput) as caught:
        corpora.load(corpus_settings('text', path=str(tmp_path), proper_nouns=True))
    assert (caught.value.key, caught.value.value) == ('corpus.proper_nouns', True)


def test_what_is_no_folder_of_news(news):
    for path in ('', str(news / 'nowhere'), str(news / '1995' / '01.txt')):
        with refuses('corpus.path'):
            ap_news(path)
    (news / 'empty').mkdir()
    with refuses('corpus.path'):
        ap_news(news / 'empty')


def test_a_folder_smaller_than_the_papers_corpus_says_what_to_set(news):
    with refuses('corpus.train=1.39945e+07, corpus.valid=963138'):
        ap_news(news, train=13_994_528.0, valid=963_138.0)


@pytest.mark.parametrize('row', ['mlp10', 'interpolated', 'kneser_ney_3', 'modified_kneser_ney_3'])
def test_rows_of_the_config_run_on_a_small_folder(news, tmp_path_factory, row):
    config = ap_news_config.get_config(row)
    config.corpus.path, config.corpus.train, config.corpus.valid = str(news), 60.0, 20.0
    if row == 'mlp10':  # a count-based model does not read the keys of training
        config.train.batch_size, config.train.epochs = 20, 1
    with warnings.catch_warnings():
        warnings.simplefilter('ignore', UserWarning)  # the text is too short for estimating discounts
        results = experiment.run(config, tmp_path_factory.mktemp('run') / row)
    assert results['words'] == {'train': 60, 'valid': 20, 'test': 12}
    assert all(1 < p < 100 for p in results['perplexity'].values())
    assert ('mixture' in results) == (row == 'mlp10')


@pytest.mark.parametrize('kind', ['words', 'whitespace', 'lmplz'])
@pytest.mark.parametrize('lowercase', [True, False])
def test_special_tokens_in_a_text_are_counted_and_become_no_words(kind, lowercase):
    text = '<p> a <s> b </s> <text> <unk>\n\n<UNK> <rare> a </s>\n\n'
    tokenizer = WordTokenizer(kind, boundary_tokens=True, lowercase=lowercase, is_verbatim=kind == 'lmplz')
    stream, written, *_ = cutting.read_chunk(tokenizer, TextChunk(text, True, keeps_empty=kind == 'lmplz'))
    assert stream.words() == '<text> <p> a b <rare> <p> <rare> <rare> a'.split()
    unknown = {'<unk>': 2} if lowercase else {'<unk>': 1, '<UNK>': 1}
    assert written == {'<p>': 1, '<s>': 1, '</s>': 2, '<text>': 1, '<rare>': 1, **unknown}
    (words,) = cutting.tokenize(tokenizer, [text], {'a', 'b', '<p>', '<text>', '<rare>'})
    assert words == ['a', 'b', '<unk>', '<unk>' if lowercase else '<UNK>', '<rare>', 'a']
    (words,) = cutting.tokenize(tokenizer, ['<text> <p> a <s>'], {'a'}, keep_marks=True)
    assert words == ['<text>', '<p>', 'a']


def test_a_special_token_is_a_whole_token():
    assert cutting.tokenize(WordTokenizer('whitespace'), ['<p>a x</s> <unk>.'])[0] == ['<p>a', 'x</s>', '<unk>.']
    assert cutting.tokenize(WordTokenizer('words'), ['<p>a x</s> <unk>.'])[0] == ['a', 'x', '<unk>', '.']


def test_lmplz_separates_words_at_ascii_white_space_and_has_empty_lines():
    tokenizer = WordTokenizer('lmplz', is_verbatim=True)
    lines = 'a\u00a0b e\u0301\t\u3000\r\n\n\n\n \n\n\u2028\x0b\x0c\n\n'  # each line end has two characters here
    chunk = TextChunk(lines, True, keeps_empty=True)
    expected = [['a\u00a0b', 'e\u0301', '\u3000'], [], [], ['\u2028\x0b\x0c']]
    assert cutting.paragraphs(tokenizer, chunk) == expected
    assert cutting.paragraphs(tokenizer, chunk._replace(text='a\n\nb')) == [['a'], ['b']]
    assert reading(tokenizer, 'whitespace') == tokenizer
    assert cutting.tokenize(tokenizer, ['e\u0301 \u00a0'])[0] == ['e\u0301', '\u00a0']


@pytest.mark.parametrize('word, expected', [('İSTANBUL', 'istanbul'), ('I\u0307', 'i'), ('ΟΔΟΣ', 'οδος')])
def test_a_letter_in_lower_case_is_one_letter(word, expected):
    assert cutting.tokenize(WordTokenizer('words', lowercase=True), [word])[0] == [expected]
    assert cutting.read_chunk(WordTokenizer('words', lowercase=True), TextChunk(word, True))[0].words() == [expected]


def test_a_capital_after_a_mark_in_the_text_opens_a_sentence():
    text = TextChunk('<s> The cat sat . </s>\n\n<s> She saw the cat , and Smith . </s>', True)
    tokenizer = WordTokenizer('words', proper_nouns=True).learn([lambda: [text]], map)
    assert tokenizer.names == ('smith',)


@pytest.mark.parametrize(
    'text, is_exact, is_similar',
    [
        ('the  cat\n', True, True),
        ('cafe\u0301', True, True),
        ('The cat', False, True),
        ('İ', False, True),
        ('the “cat', False, True),
        ('the 7', False, False),
        ('Zoe', False, False),
        ('the proper <proper>', True, True),
        ('<s> the cat </s>', False, False),
        ('the <unk>', True, True),
    ],
)
def test_words_that_were_changed_do_not_keep_the_letters_of_a_text(text, is_exact, is_similar):
    tokenizer = WordTokenizer('words', lowercase=True, numbers=True, proper_nouns=True, names=('zoe',))
    (words,) = cutting.tokenize(tokenizer, [text], {'the', 'cat', 'i', '``'})
    assert keeps_letters(tokenizer, [(text, words)]) == is_exact
    assert keeps_letters(tokenizer, [(text, words)], any_form=True) == is_similar
