"""Compares the tokens of tokenizer.json files and SentencePiece models with those of their own libraries."""

import copy
import json
import math

import pytest
import tokenizers
from helpers import refuses
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

import nplm_jax
from configs import text as text_config
from nplm_jax import kenlm
from nplm_jax.config import settings as config_lib
from nplm_jax.config.registry import component_class
from nplm_jax.data import corpora, encoding, vocabulary_files
from nplm_jax.data.stream import BOUNDARY_TOKENS, RARE
from nplm_jax.data.tokenizers import cutting, token_text, tokenizer_files
from nplm_jax.data.word_stream import WordStream
from nplm_jax.runs import experiment

LINES = [
    f'{a} {b} {c}{end}'
    for a in ('The dog', 'A naïve cat', 'Größere Hunde')
    for b in ('walked', 'is running', 'said')
    for c in ('quickly', 'over there', '"Été"')
    for end in '.?'
] * 2
QUOTE = 'Il dit “Żółw”, <s> the dog!'  # letters that do not occur in training, and a special token
_BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False)
_BYTE_ALPHABET = {'initial_alphabet': pre_tokenizers.ByteLevel.alphabet(), 'special_tokens': ['<|end|>', '<s>']}
_BERT = {'special_tokens': ['[UNK]', '[CLS]', '[SEP]', '[PAD]']}
_SUFFIX = {'special_tokens': ['<unk>'], 'end_of_word_suffix': '</w>'}
KINDS = {
    'bytes': (models.BPE(), _BYTES, decoders.ByteLevel(), trainers.BpeTrainer, _BYTE_ALPHABET),
    'wordpiece': (
        models.WordPiece(unk_token='[UNK]'),
        pre_tokenizers.BertPreTokenizer(),
        decoders.WordPiece(),
        trainers.WordPieceTrainer,
        _BERT,
    ),
    'unigram': (
        models.Unigram(),
        pre_tokenizers.Metaspace(),
        decoders.Metaspace(),
        trainers.UnigramTrainer,
        {'special_tokens': ['<unk>', '<s>'], 'unk_token': '<unk>'},
    ),
    'suffix': (
        models.BPE(unk_token='<unk>', end_of_word_suffix='</w>'),
        pre_tokenizers.WhitespaceSplit(),
        decoders.BPEDecoder(),
        trainers.BpeTrainer,
        _SUFFIX,
    ),
}


def learn(kind):
    model, splitter, decoder, trainer, options = KINDS[kind]
    learned = tokenizers.Tokenizer(copy.deepcopy(model))  # training changes the model
    learned.pre_tokenizer, learned.decoder = splitter, decoder
    if kind == 'wordpiece':
        learned.normalizer = normalizers.BertNormalizer()
    size = 300 if kind == 'bytes' else 80
    learned.train_from_iterator(LINES, trainer(vocab_size=size, show_progress=False, **options))
    return learned


@pytest.fixture(scope='module', params=KINDS)
def theirs(request):
    return learn(request.param)


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp('tokens')
    (made / 'text.txt').write_text('\n'.join(LINES) + '\n')
    return made


def read(path):
    return component_class('corpus.tokens', str(path))(boundary_tokens=True, name=str(path)).read()


def of(theirs, folder):
    theirs.save(str(folder / 'theirs.json'))
    return read(folder / 'theirs.json')


def settings_of(path, folder, words='modified_kneser_ney_3', **changes):
    config = text_config.get_config(f'{words},{path}')
    changes = {'corpus.path': str(folder / 'text.txt'), 'corpus.paragraphs': 'lines', **changes}
    return config_lib.from_config(config_lib.override(config, changes))


def expected_tokens(theirs, line):
    unknown = {'[UNK]', '<unk>'}
    tokens = map(theirs.id_to_token, theirs.encode(line, add_special_tokens=False).ids)
    return [RARE if token in unknown else token for token in tokens if token != '<s>']


def test_lines_have_the_tokens_of_the_library(theirs, folder):
    ours = of(theirs, folder)
    assert cutting.tokenize(ours, [*LINES, QUOTE]) == [expected_tokens(theirs, line) for line in [*LINES, QUOTE]]


def test_lines_are_decoded_as_by_the_library(theirs, folder):
    ours = of(theirs, folder)
    for line in LINES:
        ids = theirs.encode(line, add_special_tokens=False).ids
        (tokens,) = cutting.tokenize(ours, [line])
        assert ours.decode(tokens) == theirs.decode(ids, skip_special_tokens=False)
        assert [theirs.token_to_id(token) for token in tokens] == ids
    assert ours.decode(['<p>', *tokens, '<p>', *tokens]) == '\n'.join([ours.decode(tokens)] * 2)


def test_the_vocabulary_has_all_tokens_of_the_file(theirs, folder):
    ours = of(theirs, folder)
    others = {'<unk>', '[UNK]', '<s>'}
    assert ours.tokens[:3] == (RARE, *BOUNDARY_TOKENS)
    assert sorted(ours.tokens[3:]) == sorted(theirs.get_vocab().keys() - others)


def test_words_and_bytes_are_those_of_the_text(theirs, folder):
    ours = of(theirs, folder)
    settings = settings_of(folder / 'theirs.json', folder)
    corpus = corpora.load(settings.corpus)
    types, type_ids_T = corpus.stream
    (size,) = encoding.measure(ours, types, [type_ids_T])
    normal = theirs.normalizer.normalize_str if theirs.normalizer else str
    pieces = [theirs.pre_tokenizer.pre_tokenize_str(normal(line)) for line in LINES]
    is_bert = isinstance(theirs.model, models.WordPiece)
    assert size.words == sum(len(p) if is_bert else len(line.split()) for p, line in zip(pieces, LINES))
    if is_bert:
        bytes_of = [sum(len(f' {piece}'.encode()) for piece, _ in p) for p in pieces]
    else:  # Metaspace and BPEDecoder also add a blank at one end of each line
        blank = not isinstance(theirs.decoder, decoders.ByteLevel)
        bytes_of = [len(line.encode()) + blank for line in LINES]
    assert size.utf8_bytes == sum(bytes_of) + len(LINES) + 1  # <p> of each line, <text>


@pytest.mark.parametrize('texts', [['\n'.join(LINES)], LINES, [' '.join(LINES)]], ids=['lines', 'texts', 'one line'])
def test_lines_that_no_mark_and_no_space_separates_have_no_word_count(theirs, tmp_path, texts):
    of(theirs, tmp_path)
    (tmp_path / 'rows.jsonl').write_text(''.join(json.dumps({'text': text}) + '\n' for text in texts))
    changes = {'corpus.boundary_tokens': False, 'corpus.path': str(tmp_path / 'rows.jsonl')}
    corpus = corpora.load(settings_of(tmp_path / 'theirs.json', tmp_path, **changes).corpus)
    separates = (decoders.Metaspace, decoders.BPEDecoder)  # BERT changes the text
    is_one_line = texts == [' '.join(LINES)] and isinstance(theirs.decoder, decoders.ByteLevel)
    assert corpus.is_spelled == (is_one_line or isinstance(theirs.decoder, separates))


def test_each_word_in_a_token_of_several_words_counts(tmp_path):
    merges = [('o', 'f'), ('t', 'h'), ('th', 'e'), ('Ġ', 'the'), ('of', 'Ġthe')]
    tokens = [*'ofthe', 'Ġ', *map(''.join, merges)]
    theirs = tokenizers.Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    theirs.decoder = decoders.ByteLevel()
    ours = of(theirs, tmp_path)
    for text, expected in (('of the of the', ['ofĠthe', 'Ġ', 'ofĠthe']), ('thof theof', ['th', 'ofĠthe', 'of'])):
        stream = WordStream.from_words(cutting.tokenize(ours, [text])[0])
        (size,) = encoding.measure(ours, stream.types, [stream.type_ids_L])
        assert stream.words() == expected
        assert size == (len(expected), len(text.split()), len(text), len(text))


def test_what_the_file_adds_cuts_off_or_draws_is_left_out(folder):
    theirs = learn('bytes')
    plain = of(theirs, folder)
    theirs.enable_truncation(3)
    theirs.enable_padding(length=50)
    theirs.post_processor = processors.TemplateProcessing('<|end|> $0', special_tokens=[('<|end|>', 0)])
    theirs.model.dropout = 0.5
    assert cutting.tokenize(of(theirs, folder), LINES) == cutting.tokenize(plain, LINES)


def test_a_saved_tokenizer_needs_its_file_no_more(theirs, folder, tmp_path):
    ours = of(theirs, folder)
    saved = json.loads(json.dumps(tokenizer_files.to_dict(ours)))
    loaded = tokenizer_files.from_dict(saved, 'saved')
    assert loaded == ours and loaded.cut(LINES) == ours.cut(LINES)


def test_an_exported_tokenizer_has_the_ids_of_the_vocabulary(theirs, folder):
    ours = of(theirs, folder)
    ids = {token: i for i, token in enumerate((RARE, *reversed(ours.tokens[1:])))}
    exported = ours.to_hf(ids)
    for line in [*LINES, QUOTE.replace('<s>', '')]:
        (tokens,) = cutting.tokenize(ours, [line])
        assert exported.encode(line, add_special_tokens=False).ids == [ids[token] for token in tokens]


def test_a_run_scores_and_decodes_without_the_file(folder, tmp_path):
    path = tmp_path / 'theirs.json'
    learn('unigram').save(str(path))
    experiment.run(settings_of(path, folder, 'interpolated', name='run'), tmp_path / 'run')
    path.unlink()
    loaded = nplm_jax.load(tmp_path / 'run')
    vocabulary = vocabulary_files.load(tmp_path / 'run' / 'vocabulary.txt')
    tokens = vocabulary.tokenize(LINES[0])
    assert tokens == loaded.vocabulary.tokenize(LINES[0]) and vocabulary.tokenizer.decode(tokens) == LINES[0]
    model = kenlm.Model(tmp_path / 'run')
    scores = [log_p for log_p, _, _ in model.full_scores(LINES[0])]
    assert len(scores) == len(tokens) + 1 and math.isclose(sum(scores), model.score(LINES[0]), rel_tol=1e-5)


def without(theirs, name):
    values = json.loads(theirs.to_str())
    del values[name]
    return json.dumps(values)


def with_vocabulary(*tokens):
    model = {'type': 'WordLevel', 'vocab': {token: i for i, token in enumerate(tokens)}, 'unk_token': '<unk>'}
    return json.dumps({'version': '1.0', 'added_tokens': [], 'model': model})


BAD_FILES = {
    'not JSON': '{',
    'no object': '[1]',
    'no tokenizer': '{"model_type": "gpt2"}',
    'code': json.dumps({**json.loads(with_vocabulary('a', 'b', 'c')), 'pre_tokenizer': {'type': 'Custom'}}),
    'tab': with_vocabulary('<unk>', 'a', 'b\tc'),
    'line end': with_vocabulary('<unk>', 'a', 'b\n'),
    'NUL': with_vocabulary('<unk>', 'a', 'b\0'),
    'no tokens': with_vocabulary(),
}


@pytest.mark.parametrize('content', BAD_FILES.values(), ids=BAD_FILES)
def test_a_file_that_is_no_tokenizer_is_refused(content, tmp_path):
    (tmp_path / 'bad.json').write_text(content)
    with refuses('corpus.tokens'):
        read(tmp_path / 'bad.json')


def test_tokens_that_do_not_show_where_words_begin_are_refused(tmp_path):
    (tmp_path / 'bad.json').write_text(without(learn('suffix'), 'decoder'))
    with refuses('corpus.tokens'):
        read(tmp_path / 'bad.json')


def test_a_vocabulary_that_is_too_large_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr('nplm_jax.data.tokenizers.file_tokenizer.MAX_TOKENS', 4)
    (tmp_path / 'large.json').write_text(with_vocabulary(*'abcde'))
    with refuses('corpus.tokens'):
        read(tmp_path / 'large.json')


def test_a_text_without_spaces_is_cut_into_tokens_without_a_warning(folder, tmp_path, capsys):
    learn('unigram').save(str(tmp_path / 'theirs.json'))
    (tmp_path / 'text.txt').write_text('我喜欢狗，我爱咖啡，我讨厌牛奶，今天天气很好。')
    changes = {'corpus.path': str(tmp_path / 'text.txt'), 'corpus.paragraphs': 'auto'}
    corpora.find_sources(settings_of(tmp_path / 'theirs.json', folder, **changes).corpus)
    assert not capsys.readouterr().err


def test_a_file_whose_copy_in_the_run_could_not_be_read_is_refused(tmp_path, monkeypatch):
    content = with_vocabulary('<unk>', *(f'\u00e9{i}' for i in range(2000)))
    (tmp_path / 'large.json').write_text(content)
    read(tmp_path / 'large.json')
    monkeypatch.setattr('nplm_jax.data.tokenizers.file_tokenizer.MAX_BYTES', len(content))
    with refuses('corpus.tokens'):  # the copy has the same letters, escaped once more
        read(tmp_path / 'large.json')


@pytest.fixture(scope='module')
def sentencepiece_model(folder):
    package = pytest.importorskip('sentencepiece')
    options = {'vocab_size': 70, 'hard_vocab_limit': False, 'byte_fallback': False, 'minloglevel': 2}
    prefix = str(folder / 'spm')
    package.SentencePieceTrainer.train(input=str(folder / 'text.txt'), model_prefix=prefix, **options)
    return package.SentencePieceProcessor(model_file=f'{prefix}.model'), folder / 'spm.model'


def test_sentencepiece_cuts_and_decodes(sentencepiece_model):
    theirs, path = sentencepiece_model
    ours = read(path)
    for line in LINES:
        (tokens,) = cutting.tokenize(ours, [line])
        assert [theirs.piece_to_id(token) for token in tokens] == theirs.encode(line)
        assert ours.decode(tokens) == theirs.decode(theirs.encode(line))
        assert b''.join(map(ours.utf8, tokens)).decode() == f' {line}'
        assert token_text.size(ours, tokens[0]).begins_space
    saved = json.loads(json.dumps(tokenizer_files.to_dict(ours)))
    assert tokenizer_files.from_dict(saved, 'saved').cut(LINES) == ours.cut(LINES)


def test_a_file_of_another_format_is_no_sentencepiece_model(tmp_path):
    pytest.importorskip('sentencepiece')
    (tmp_path / 'tokenizer.model').write_text('IQ== 0\n')  # of tiktoken
    with refuses('corpus.tokens'):
        read(tmp_path / 'tokenizer.model')


def test_a_corpus_has_the_tokens_of_its_lines(theirs, folder):
    of(theirs, folder)
    corpus = corpora.load(settings_of(folder / 'theirs.json', folder).corpus)
    lines = [expected_tokens(theirs, line) for line in LINES]
    assert corpus.words == ['<text>', *(token for line in lines for token in ('<p>', *line))]


def test_line_ends_of_windows_change_nothing(theirs, folder, tmp_path):
    ours = of(theirs, folder)
    text, words = '\n\n'.join(map('\n'.join, (LINES[:50], LINES[50:]))) + '\n', {}
    for end in ('\n', '\r\n'):
        (tmp_path / 'text.txt').write_text(text.replace('\n', end), newline='')
        for paragraphs in ('lines', 'blank_lines'):
            changes = {'corpus.path': str(tmp_path / 'text.txt'), 'corpus.paragraphs': paragraphs}
            words[end, paragraphs] = corpora.load(settings_of(folder / 'theirs.json', folder, **changes).corpus).words
    assert words['\r\n', 'lines'] == words['\n', 'lines']
    assert words['\r\n', 'blank_lines'] == words['\n', 'blank_lines']
    assert cutting.tokenize(ours, [f'{LINES[0]}\r']) == cutting.tokenize(ours, [LINES[0]])
