"""Every key of an experiment, with its meaning, unit and the paper's value. Other configs change some of them.

The values here are the network and recipe that did best on Brown in about ten minutes on 2 CPU cores.
"""

from ml_collections import ConfigDict


def get_config() -> ConfigDict:
    """The complete, locked config."""
    c = ConfigDict()
    c.name = 'default'  # of the run: the last part of its folder, and its row in a table
    c.seed = 1  # of the initial parameters, the order of the words and dropout
    c.corpus = _corpus()
    c.model = _model()
    c.ngram = _ngram()
    c.output = _output()
    c.optimizer = _optimizer()
    c.train = _train()
    c.parallel = _parallel()
    c.paper = _paper()
    return c.lock()


def _corpus() -> ConfigDict:
    """Which text, how it is cut into words, which are rare, how it is split."""
    c = ConfigDict()
    c.name = 'brown'  # brown | ap_news | wikitext2 | text | sentences
    c.path = ''  # text: a UTF-8 file, or a folder read in the order of its names (ap_news and wikitext2: folder)
    c.valid_path = ''  # text: files of their own to validate and test on, instead of fractions
    c.test_path = ''
    c.tokens = 'words'  # text, ap_news: words (punctuation split off) | whitespace (already tokenized)
    c.lowercase = True  # the paper (section 4): upper and lower case of a word were merged
    c.split_possessive = True  # dog's -> dog 's
    c.boundary_tokens = True  # <text> before each text and <p> before each paragraph
    c.numbers = False  # numeric forms become <number>; the paper: on AP News
    c.proper_nouns = False  # become <proper>, by nplm_jax/tokens.py's rule; the paper: on AP News
    c.min_count = 1  # rarer words become <rare>; the paper: 4 (frequency 3 or less was merged)
    c.max_vocabulary = 0  # |V| at most, <rare> included, 0 for no limit; the paper: 16,383 on Brown, 17,964 on AP News
    c.count_over = 'all'  # all | train: the words that frequencies are counted over; the paper's figures: all
    c.train = 0.8  # below 1 a fraction of the stream, else words; the paper on Brown: 800,000
    c.valid = 0.1  # likewise; the paper on Brown: 200,000; the rest is the test set
    return c


def _model() -> ConfigDict:
    """Which model and its shape."""
    c = ConfigDict()
    # nplm: the paper's network; rnn | gru | lstm: recurrent ones; count-based (section 4.1): interpolated |
    # kneser_ney | modified_kneser_ney | classes | maximum_likelihood | add_delta | backoff (to the shorter context
    # when the longer is unseen)
    c.family = 'nplm'
    c.n = 6  # order: a word is predicted from the n-1 before it (by recurrent ones from all); the paper: 3 and 5
    c.m = 100  # (this and below: of networks) features a word; the paper: 30 and 60
    c.h = 200  # hidden units, 0 for none; the paper: 0, 50 and 100
    c.direct = False  # direct connections W from features to output (of nplm); the paper: both
    c.unigram_bias = True  # start b from the log-frequencies of the training words; the paper is silent
    c.dropout = 0.25  # share of features and hidden units zeroed in training; the paper: 0
    return c


def _ngram() -> ConfigDict:
    """What some count-based models need beside their order."""
    c = ConfigDict()
    c.delta = 0.1  # of add_delta: what is added to every count
    c.classes = 500  # of classes: how many; the paper: 150 to 2000
    return c


def _output() -> ConfigDict:
    """How the loss over all |V| words is computed in training; evaluation is always exact and in float32."""
    c = ConfigDict()
    # full | sampled (importance sampling, section 5.2) | nce (noise-contrastive estimation) | two_level (the class,
    # then the word in it)
    c.kind = 'full'
    c.precision = 'float32'  # of full's products with |V|: float32 | bfloat16, its sums and the parameters float32
    c.block_size = 256  # of full: examples whose |V| scores are held at once; larger (1024) on a GPU
    c.samples = 1000  # of sampled and nce: distinct words a step, shared by its batch
    c.proposal = 'unigram'  # likewise: they are drawn by the words' training counts, or log_uniform, by their rank
    c.num_shortlist = 1000  # of two_level: the most frequent words, each a class of its own
    c.classes = 500  # likewise: at most how many for all other words, of one size and by frequency
    return c


def _optimizer() -> ConfigDict:
    """How the network is trained."""
    c = ConfigDict()
    c.name = 'sgd'  # sgd | adam | adagrad on the batch mean, or paper: section 2.1, a sum at a rate a word
    c.learning_rate = 2.0  # on the batch mean: halve it with the batch (not used by paper)
    c.schedule = 'cosine'  # cosine | linear (both to zero over all epochs) | constant (not used by paper)
    c.warmup = 0  # updates of linear warm-up (not used by paper)
    c.momentum = 0.0  # of sgd
    c.clip_norm = 0.0  # largest gradient norm, 0 for any (not used by paper)
    c.decay = 1e-5  # R(theta) = decay/2 |theta|^2 over C, H, U, W (not used by paper)
    c.paper = ConfigDict()  # epsilon_t = epsilon_0 / (1 + r t), t in words
    c.paper.epsilon_0 = 1e-3  # the paper: 1e-3
    c.paper.r = 1e-8  # the paper: 1e-8
    c.paper.decay = 1e-4  # the paper: 1e-4 on Brown, 1e-5 on AP News
    return c


def _train() -> ConfigDict:
    """How long, in what batches, how often looked at and saved."""
    c = ConfigDict()
    c.batch_size = 128  # words an update; the paper: 1
    c.epochs = 8  # passes over the training words at most; the paper on Brown: 10 to 20
    c.patience = 2  # evaluations without a better validation perplexity before stopping early
    c.evaluate_every = 0  # updates between evaluations, to the next dispatch's end; 0 for once an epoch
    c.checkpoint_every = 2000  # updates between checkpoints
    c.log_every = 250  # updates between lines of metrics.jsonl
    c.steps_per_execution = 50  # updates run on the device before Python looks again
    # Of recurrent networks: the words of a stream that an update goes back through. An update reads
    # batch_size / bptt_length streams in parallel.
    c.bptt_length = 16
    return c


def _parallel() -> ConfigDict:
    """Over how many devices training is spread (section 3); the result does not depend on it."""
    c = ConfigDict()
    c.data = 1  # devices that share the batch (section 3.1), -1 for all that are left
    # Devices that share the |V| output words (section 3.2), likewise. With an output.kind other than full they share
    # the memory of these words' rows, and all data * model devices the batch.
    c.model = 1
    c.mode = 'shard_map'  # shard_map | pmap (data only)
    return c


def _paper() -> ConfigDict:
    """What the paper prints for this row; 0 where it prints nothing."""
    c = ConfigDict()
    c.row = ''
    c.train = 0.0
    c.valid = 0.0
    c.test = 0.0
    return c
