"""AP News 1995 and 1996, the paper's larger corpus (section 4). You need the licensed text, a folder of text files.

    python launch.py --config=configs/ap_news.py:mlp10 --config.corpus.path=DIR
    python launch.py --config=configs/ap_news.py:kneser_ney_5 --config.corpus.path=DIR   and: interpolated,
                                 kneser_ney_3 to _5, modified_kneser_ney_3 to _5
    python launch.py --config=configs/ap_news.py:mlp10,paper --config.corpus.path=DIR   a step a word

Files are read in the order of their names, and blank lines separate paragraphs. The folder has to hold more than the
14,957,666 words of the training and validation splits; set corpus.train and corpus.valid for less text.

Expected results (valid / test): the paper's Table 2, in PAPER below. Nobody has run this config: the authors have no
licence for the text. The preparation follows section 4 of the paper, which leaves some rules open.
"""

from ml_collections import ConfigDict

from configs import default, rows

# Table 2 of the paper: train (not printed), valid and test perplexity.
NETWORK = 'MLP10, mixed with the trigram'
PAPER = {
    'mlp10': (0.0, 104.0, 109.0),
    'interpolated': (0.0, 126.0, 132.0),
    'kneser_ney_3': (0.0, 121.0, 127.0),
    'kneser_ney_4': (0.0, 113.0, 119.0),
    'kneser_ney_5': (0.0, 112.0, 117.0),
}
ROWS = ('mlp10', *rows.NGRAMS)


def get_config(row: str = 'mlp10') -> ConfigDict:
    """Returns the config of a row of Table 2; `mlp10,paper` trains by the paper's recipe.

    The paper prints mlp10 only as a mixture with the interpolated trigram: compare `mixture.fixed` of results.json.
    """
    c = default.get_config()
    c.name = f'ap_news-{row.replace(",", "-")}'
    c.corpus.name = 'ap_news'
    c.corpus.numbers = c.corpus.proper_nouns = True
    c.corpus.max_vocabulary = 17_964
    c.corpus.train = 13_994_528.0
    c.corpus.valid = 963_138.0
    if row in rows.NGRAMS:
        rows.set_ngram(c, row, PAPER)
    elif row in rows.NETWORKS:
        rows.NETWORKS[row](c)
    elif row in ('mlp10', 'mlp10,paper'):
        rows.set_table2_network(c)
        rows.set_paper(c, NETWORK, PAPER['mlp10'])
        if row == 'mlp10,paper':
            rows.set_paper_recipe(c)
            c.optimizer.paper.decay = 1e-5
    else:
        rows.refuse_row('configs/ap_news.py', row, (*ROWS, 'mlp10,paper', *rows.NETWORKS))
    return c
