"""Every key of an experiment, with its meaning, unit and the paper's value. Other configs change some values.

The values here are the network of the paper's kind that is best on Brown after about ten minutes on 2 CPU cores.
"""

from ml_collections import ConfigDict


def get_config() -> ConfigDict:
    """Returns the complete, locked config."""
    c = ConfigDict()
    c.name = 'default'  # of the run: the name of its folder and of its row in a table
    c.seed = 1  # random seed of the initial parameters, the order of the words, dropout and sampled words
    c.corpus = _corpus()
    c.model = _model()
    c.recurrent = _recurrent()
    c.mogrifier = _mogrifier()
    c.residual = _residual()
    c.senses = _senses()
    c.prior = _prior()
    c.ngram = _ngram()
    c.output = _output()
    c.optimizer = _optimizer()
    c.train = _train()
    c.eval = _eval()
    c.parallel = _parallel()
    c.paper = _paper()
    return c.lock()


def _corpus() -> ConfigDict:
    """Returns `corpus.*`: which text, how it is tokenized, which words are rare, how it is split."""
    c = ConfigDict()
    c.name = 'brown'  # brown | gutenberg | ap_news | wikitext2 | wikitext103 | text | sentences
    c.path = ''  # text: a UTF-8 file, or a folder whose files are read by name; ap_news and wikitext2: a folder
    c.valid_path = ''  # text, ap_news: files to validate and test on; corpus.train and corpus.valid are then not used
    c.test_path = ''
    c.column = 'text'  # of JSON lines, Parquet and Hugging Face datasets: the column with the text
    c.tokens = 'words'  # of text, ap_news: words (splits off punctuation) | whitespace (text that is tokenized already)
    # Of text, ap_news, what separates paragraphs: blank_lines | lines (each line is one, such as a sentence a line) |
    # auto (lines where a text has no blank lines and its lines clearly are sentences, else blank_lines).
    c.paragraphs = 'auto'
    c.lowercase = True  # merge upper and lower case; the paper (section 4): true
    c.split_possessive = True  # dog's -> dog 's
    c.boundary_tokens = True  # put <text> before each text and <p> before each paragraph
    c.numbers = False  # replace numbers by <number>; the paper: true on AP News
    c.proper_nouns = False  # replace proper nouns by <proper> (data/tokenization.py); the paper: true on AP News
    c.min_count = 1  # words with a lower count become <rare>; the paper: 4
    c.max_vocabulary = 0  # largest |V|, with <rare>; 0: no limit; the paper: 16,383 on Brown, 17,964 on AP News
    c.count_over = 'all'  # all | train: the words whose counts decide which are rare; the paper's figures fit all
    c.train = 0.8  # training set: a fraction of the stream below 1, else words; the paper on Brown: 800,000
    c.valid = 0.1  # validation set, in the same unit; the paper on Brown: 200,000; the test set is the rest
    return c


def _model() -> ConfigDict:
    """Returns `model.*`: which model, and its shape."""
    c = ConfigDict()
    # The paper's network: nplm. Other networks that see the last words alone: energy | senses (section 5) | residual |
    # window_lstm. Recurrent networks: rnn | gru | lstm | mogrifier. Count-based models (section 4.1): interpolated |
    # kneser_ney | modified_kneser_ney | classes | maximum_likelihood | add_delta | backoff (which uses the shorter
    # context where the longer one was never seen).
    c.family = 'nplm'
    c.n = 6  # order: the n-1 words before a word predict it; recurrent networks use all; the paper: 3 and 5
    c.m = 100  # of networks, as the keys below: features a word; the paper: 30 and 60
    c.h = 200  # hidden units, 0 for no hidden layer; the paper: 0, 50 and 100
    c.direct = False  # of nplm: direct connections W from the features to the output; the paper: both
    c.unigram_bias = True  # initialise b with the log-frequencies of the training words; the paper does not say
    c.dropout = 0.25  # probability with which training zeroes a feature or a hidden unit; the paper: 0
    # Of recurrent networks, window_lstm and residual, as the keys below.
    c.layers = 1  # layers
    c.tied = False  # use C as the output matrix too, so that U is C
    c.output_dropout = -1.0  # as dropout, of what the output matrix multiplies; -1: as dropout
    c.word_dropout = 0.0  # probability with which training zeroes all features of a word
    c.variational = False  # use one dropout mask for all words of a stream in an update
    c.precision = 'auto'  # of products before the output layer, in training; as output.precision
    return c


def _recurrent() -> ConfigDict:
    """Returns `recurrent.*`: of rnn, gru, lstm, mogrifier and window_lstm (Merity et al., 2018)."""
    c = ConfigDict()
    c.weight_dropout = 0.0  # probability with which an update zeroes a weight from the state to itself
    c.activation_penalty = 0.0  # factor of the mean square of the last layer's output, after dropout
    c.slowness_penalty = 0.0  # factor of the mean square of its change from word to word
    return c


def _mogrifier() -> ConfigDict:
    """Returns `mogrifier.*`: of mogrifier (Melis et al., 2020), beside `recurrent.*`."""
    c = ConfigDict()
    c.rounds = 5  # rounds in which the input and the state change each other before each word
    return c


def _residual() -> ConfigDict:
    """Returns `residual.*`: of residual (Sun and Iyyer, 2021)."""
    c = ConfigDict()
    c.averages = 3  # sums of the n-1 words before the window, of the 2(n-1) before those, ..., over sqrt(their number)
    c.expansion = 2  # units inside a layer, as a multiple of h
    return c


def _senses() -> ConfigDict:
    """Returns `senses.*`: of senses, a window of words that have several features each (section 5)."""
    c = ConfigDict()
    c.number = 2  # senses a word: a word has so many feature vectors, of m features each
    return c


def _prior() -> ConfigDict:
    """Returns `prior.*`: which words are known to be alike; of networks (section 5)."""
    c = ConfigDict()
    # none | wordnet (synonyms, hypernyms, hyponyms) | tags (of brown: words with the same most frequent tag)
    c.kind = 'none'
    c.strength = 0.0  # not of none; as optimizer.decay, of R = strength/2 |C(w) - mean of C over related words|^2
    return c


def _ngram() -> ConfigDict:
    """Returns `ngram.*`: what some count-based models need beside their order."""
    c = ConfigDict()
    c.delta = 0.1  # of add_delta: added to every count
    c.classes = 500  # of classes: number of word classes; the paper: 150 to 2000
    # Of modified_kneser_ney, as lmplz --prune: the largest number of occurrences that is left out, for each order from
    # 1 on (the first is 0); the last is also that of the orders above: '0 0 1' leaves out trigrams that occur once.
    c.prune = '0'
    # Of a table that backs off: 8 or 16 bits for each log p above order 1, and 32 for each log b, such that the
    # probabilities sum to one; 0: 64 bits for each.
    c.bits = 0
    return c


def _output() -> ConfigDict:
    """Returns `output.*`: how training computes the loss over all |V| words; evaluation is exact and in float32."""
    c = ConfigDict()
    # full | sampled (importance sampling, section 5.2) | nce (noise-contrastive estimation) | two_level (predicts the
    # class of the word, then the word in the class) | tree (a binary decision at each node above the word) | importance
    # (importance sampling from a bigram that follows the network: each example draws its own words).
    c.kind = 'full'
    # Of full, sampled and nce: products with |V| in float32 | bfloat16 | auto (bfloat16 where the processor or the
    # accelerator has instructions for it); sums and parameters stay float32.
    c.precision = 'auto'
    c.block_size = 256  # of full: examples whose |V| scores are in memory at once; 1024 suits a GPU
    # Of sampled and nce: distinct words drawn a step, which all examples of the batch share; all |V| words if there are
    # fewer. Of importance: the largest number of words that each example draws.
    c.samples = 1000
    c.proposal = 'unigram'  # of sampled and nce: unigram (by training count) | log_uniform (by rank)
    c.exact_target = True  # of importance: samples stand for other words than the target; the paper: for all words
    c.min_ess = 0.0  # of importance: mean effective sample size that output.samples is lowered to; 0: not lowered
    c.adaptation = 1.0  # of importance: weight of the network's words beside training words in Q; 0: fixed counts
    c.num_shortlist = 1000  # of two_level: the most frequent words, each of which is a class
    c.classes = 500  # of two_level: largest number of classes of the other words, which have one size
    c.tree = 'huffman'  # of tree: huffman | random | a file with lines `word<TAB>code`, codes of 0 and 1
    return c


def _optimizer() -> ConfigDict:
    """Returns `optimizer.*`: how a network is trained."""
    c = ConfigDict()
    # sgd | adam | adagrad | rowwise_adam (Adam, but each row of C, U, W and b has one second moment and no momentum, so
    # that an update touches few rows unless output.kind is full) | paper (section 2.1). The gradient is the mean over
    # a batch; with paper it is the sum.
    c.name = 'sgd'
    c.learning_rate = 2.0  # not of paper; a batch half as large needs a rate half as large
    c.schedule = 'cosine'  # not of paper; cosine | linear (both fall to zero over all epochs) | constant
    c.warmup = 0  # not of paper; updates of linear warm-up
    c.momentum = 0.0  # of sgd
    # Of rowwise_adam: 1, each row has its own second moment; 0, all rows of a parameter share one; between, a geometric
    # mean of both. Below 1 the rows of rare words move less.
    c.row_adaptivity = 1.0
    c.clip_norm = 0.0  # not of paper; largest norm of a gradient, 0: no limit
    # Not of paper: R(theta) = decay/2 |theta|^2 over C, H, U, W. With rowwise_adam it is decoupled, as in AdamW:
    # these weights are multiplied by 1 - rate * decay for each update, once per execution.
    c.decay = 1e-5
    c.paper = ConfigDict()  # epsilon_t = epsilon_0 / (1 + r t), t in words
    c.paper.epsilon_0 = 1e-3  # the paper: 1e-3
    c.paper.r = 1e-8  # the paper: 1e-8
    c.paper.decay = 1e-4  # the paper: 1e-4 on Brown, 1e-5 on AP News
    return c


def _train() -> ConfigDict:
    """Returns `train.*`: how long, in which batches, how often it is validated, saved and logged."""
    c = ConfigDict()
    c.batch_size = 128  # words an update; the paper: 1
    c.average = 0.0  # decay an update of the parameters' running average, which is then the result; 0: no average
    # Whether to smooth the rows of C, U and W after training: the count at which a word's own row weighs as much as the
    # mean over words with its ending (training/suffix_smoothing.py); 0: no. Before train.calibrate. The paper: no.
    c.suffix_smoothing = 0.0
    # Whether to fit the output bias b to validation words after training, with one offset for all words of similar
    # training count (training/calibration.py); output.kind must be full, sampled, nce or importance. The paper: no.
    c.calibrate = False
    c.epochs = 8  # largest number of passes over the training words; the paper on Brown: 10 to 20
    c.patience = 2  # training stops after so many validations without a better perplexity
    c.evaluate_every = 0  # updates between validations, 0: once an epoch
    c.checkpoint_every = 2000  # updates between checkpoints
    c.log_every = 250  # updates between lines of metrics.jsonl
    c.steps_per_execution = 50  # updates in one call of the compiled program; what is due within waits for its end
    c.bptt_length = 16  # of recurrent networks: words a stream an update; batch_size / bptt_length streams in parallel
    c.input = 'auto'  # device: all words on the device | mapped: read from the disk; auto: mapped above 2**25 words
    return c


def _eval() -> ConfigDict:
    """Returns `eval.*`: how the finished model is evaluated."""
    c = ConfigDict()
    c.train_words = 20_000  # training words that the train perplexity is of, a sample spread evenly; 0: all of them
    c.words = 0  # validation and test words of a sample, spread evenly, for long splits; 0: all, the exact perplexity
    return c


def _parallel() -> ConfigDict:
    """Returns `parallel.*`: over how many devices training is divided (section 3). Results do not depend on it."""
    c = ConfigDict()
    c.data = 1  # devices that divide the batch (section 3.1), -1: all that are left
    # Devices that divide the |V| output words (section 3.2), -1: all that are left. With another output.kind than full
    # they divide the rows of the output words in memory, and all data * model devices divide the batch.
    c.model = 1
    c.mode = 'shard_map'  # shard_map | pmap (which divides the batch only)
    return c


def _paper() -> ConfigDict:
    """Returns `paper.*`: the perplexities that the paper prints for this row; 0 where it prints none."""
    c = ConfigDict()
    c.row = ''
    c.train = 0.0
    c.valid = 0.0
    c.test = 0.0
    return c
