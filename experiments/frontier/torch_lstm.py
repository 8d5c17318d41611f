"""What a user would write in PyTorch: an LSTM with a full softmax on the same words, as its example does.

    python -m experiments.frontier.torch_lstm --minutes=20

Two layers of 200 units, dropout of 0.2, gradient descent at a rate of 20 that is divided by 4 whenever the validation
perplexity does not fall, 20 streams of 35 words, norms clipped at 0.25: the defaults of its word-language-model. Stops
after the epoch in which the minutes are over. A minute is 60 processor seconds of each thread, so that other work on
the machine does not count. Writes results/torch_lstm.json. Needs PyTorch, which requirements.txt leaves out.
"""

from __future__ import annotations

import pathlib

from experiments import results, study

OUTPUT = pathlib.Path(__file__).parent / 'results' / 'torch_lstm.json'


def define(parser: study.StudyParser) -> None:
    """Adds the flag of the minutes."""
    parser.add_argument('--minutes', type=study.positive(float), default=20, help='how long to train')


def main(flags: study.Flags) -> None:
    """Trains, and writes the perplexities."""
    from experiments.frontier import torch_model  # noqa: PLC0415 (needs PyTorch)

    results.write(OUTPUT, torch_model.train(flags.minutes))


if __name__ == '__main__':
    study.run(__doc__, define=define, measure=main)
