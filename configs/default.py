"""Every key of an experiment, with its meaning, unit and the paper's value. Other configs change some of them.

The values here are the network and recipe that did best on Brown in about ten minutes on 2 CPU cores.
"""

from ml_collections import ConfigDict


def get_config() -> ConfigDict:
    """The complete, locked config."""
    c = ConfigDict()
    c.name = 'default'  # of the run: the last part of its folder, and its row in a table
    c.seed = 1  # of the initial parameters, the order of the words and dropout

    c.corpus = ConfigDict()
    c.corpus.name = 'brown'  # brown | ap_news | wikitext2 | text | sentences
    c.corpus.path = ''  # text: a UTF-8 file, or a folder read in the order of its names (ap_news and wikitext2: folder)
    c.corpus.valid_path = ''  # text: files of their own to validate and test on, instead of fractions
    c.corpus.test_path = ''
    c.corpus.tokens = 'words'  # text, ap_news: words (punctuation split off) | whitespace (already tokenised)
    c.corpus.lowercase = True  # the paper (section 4): upper and lower case of a word were merged
    c.corpus.split_possessive = True  # dog's -> dog 's
    c.corpus.marks = True  # <text> before each text and <p> before each paragraph
    c.corpus.numbers = False  # numeric forms become <number>; the paper: on AP News
    c.corpus.proper_nouns = False  # become <proper>, by nplm_jax/tokens.py's rule; the paper: on AP News
    c.corpus.min_count = 1  # rarer words become <rare>; the paper: 4 (frequency 3 or less was merged)
    c.corpus.max_vocabulary = (
        0  # |V| at most, <rare> included, 0 for no limit; the paper: 16,383 on Brown, 17,964 on AP News
    )
    c.corpus.count_over = 'all'  # all | train: the words that frequencies are counted over; the paper's figures: all
    c.corpus.train = 0.8  # below 1 a fraction of the stream, else words; the paper on Brown: 800,000
    c.corpus.valid = 0.1  # likewise; the paper on Brown: 200,000; the rest is the test set

    c.model = ConfigDict()
    # nplm: the network; count-based (section 4.1): interpolated | kneser_ney | modified_kneser_ney | classes |
    # maximum_likelihood | add_delta | backoff (to the shorter context when the longer is unseen)
    c.model.family = 'nplm'
    c.model.n = 6  # order: a word is predicted from the n-1 before it; the paper: 3 and 5
    c.model.m = 100  # (this and below: of the network) features a word; the paper: 30 and 60
    c.model.h = 200  # hidden units, 0 for none; the paper: 0, 50 and 100
    c.model.direct = False  # direct connections W from features to output; the paper: both
    c.model.unigram_bias = True  # start b from the log-frequencies of the training words; the paper is silent
    c.model.dropout = 0.25  # share of features and hidden units zeroed in training; the paper: 0

    c.ngram = ConfigDict()
    c.ngram.delta = 0.1  # of add_delta: what is added to every count
    c.ngram.classes = 500  # of classes: how many; the paper: 150 to 2000

    c.optimizer = ConfigDict()
    c.optimizer.name = 'sgd'  # sgd | adam | adagrad on the batch mean, or paper: section 2.1, a sum at a rate a word
    c.optimizer.learning_rate = 2.0  # on the mean over the batch (not used by paper)
    c.optimizer.schedule = 'cosine'  # cosine | linear (both to zero over all epochs) | constant (not used by paper)
    c.optimizer.warmup = 0  # updates of linear warm-up (not used by paper)
    c.optimizer.momentum = 0.0  # of sgd
    c.optimizer.clip_norm = 0.0  # largest gradient norm, 0 for any (not used by paper)
    c.optimizer.decay = 1e-5  # R(theta) = decay/2 |theta|^2 over C, H, U, W (not used by paper)
    c.optimizer.paper = ConfigDict()  # epsilon_t = epsilon_0 / (1 + r t), t in words
    c.optimizer.paper.epsilon_0 = 1e-3  # the paper: 1e-3
    c.optimizer.paper.r = 1e-8  # the paper: 1e-8
    c.optimizer.paper.decay = 1e-4  # the paper: 1e-4 on Brown, 1e-5 on AP News

    c.train = ConfigDict()
    c.train.batch_size = 128  # words an update; the paper: 1
    c.train.epochs = 8  # passes over the training words at most; the paper on Brown: 10 to 20
    c.train.patience = 2  # evaluations without a better validation perplexity before stopping early
    c.train.evaluate_every = 0  # updates between evaluations, 0 for once an epoch
    c.train.checkpoint_every = 2000  # updates between checkpoints
    c.train.log_every = 250  # updates between lines of metrics.jsonl
    c.train.steps_per_dispatch = 50  # updates run on the device before Python looks again

    c.paper = ConfigDict()  # what the paper prints for this row; 0 where it prints nothing
    c.paper.row = ''
    c.paper.train = 0.0
    c.paper.valid = 0.0
    c.paper.test = 0.0
    return c.lock()
