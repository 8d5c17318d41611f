"""BLiMP by lm-evaluation-harness and by this study: are the accuracies equal?

    nplm train brown:kneser_ney_5 && nplm train brown:quick
    python -m experiments.use.minimal_pairs.harness --runs=runs --models brown-kneser_ney_5 brown-quick

Writes harness.json. The harness reads the same sentences from local files, one task a paradigm, in the form of its own
BLiMP tasks. The good sentence comes first, and of two equally likely ones the harness takes the first, so that a tie
counts as right. In the tables of this study a tie counts as half, and so does a difference that may be rounding (1e-5
nats). Needs the package lm_eval.
"""

from __future__ import annotations

import json
import pathlib
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from experiments import results, study
from experiments.use.minimal_pairs import measure
from experiments.use.minimal_pairs import pairs as pairs_lib
from experiments.use.minimal_pairs.pairs import Pair
from nplm_jax.apps.psycholinguistics import minimal_pairs
from nplm_jax.apps.psycholinguistics.measurement import Options
from nplm_jax.reporting import provenance
from nplm_jax.reporting.text import markdown_table
from nplm_jax.runs import loading, process
from nplm_jax.utils.io import expand

RECORD = pathlib.Path(__file__).parent / 'harness.json'


def by_harness(run: pathlib.Path, pairs: Sequence[Pair]) -> dict[str, float]:
    """Returns the accuracy of each paradigm by the harness."""
    import lm_eval  # noqa: PLC0415 (not installed for the other studies)
    from lm_eval.tasks import TaskManager  # noqa: PLC0415

    from nplm_jax.lm_eval import NplmLM  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as folder:
        tasks = []
        for paradigm in dict.fromkeys(pair.paradigm for pair in pairs):
            file = pathlib.Path(folder) / f'{paradigm}.jsonl'
            rows = ({'good': pair.good, 'bad': pair.bad} for pair in pairs if pair.paradigm == paradigm)
            file.write_text(''.join(json.dumps(row) + '\n' for row in rows))
            tasks.append(
                {
                    'task': paradigm,
                    'dataset_path': 'json',
                    'dataset_kwargs': {'data_files': str(file)},
                    'test_split': 'train',
                    'output_type': 'multiple_choice',
                    'doc_to_text': '',
                    'doc_to_target': 0,
                    'doc_to_choice': '{{[good, bad]}}',
                    'metric_list': [{'metric': 'acc'}],
                }
            )
        model = NplmLM(str(run))
        found = lm_eval.simple_evaluate(model, tasks=tasks, task_manager=TaskManager(), bootstrap_iters=0)
    return {paradigm: row['acc,none'] for paradigm, row in found['results'].items()}


def compare(run: pathlib.Path, pairs: Sequence[Pair]) -> dict[str, Any]:
    """Returns how the accuracies of a model agree."""
    process.set_up_process()
    loaded = loading.load(run)
    vocabulary, model = loaded.vocabulary, loaded.model
    theirs = by_harness(run, pairs)
    encoded = minimal_pairs.encode(pairs_lib.to_stimuli(pairs), vocabulary, Options())
    difference_P = minimal_pairs.differences(minimal_pairs.log_p(model, encoded))
    paradigms = [pair.paradigm for pair in pairs]
    exact, counts = (
        minimal_pairs.count(difference_P, paradigms, encoded.subsets['all'], tie) for tie in (0.0, minimal_pairs.TIE)
    )
    ours = {paradigm: (right + ties) / number for paradigm, (number, right, ties) in exact.items()}
    differences = {paradigm: abs(theirs[paradigm] - ours[paradigm]) for paradigm in ours}
    return {
        'paradigms': len(ours),
        'equal': sum(difference < 1e-9 for difference in differences.values()),
        'largest_difference': max(differences.values()),
        'accuracy_of_harness': sum(theirs.values()) / len(theirs),
        'accuracy_ties_right': sum(ours.values()) / len(ours),
        'accuracy_ties_half': sum((r + t / 2) / n for n, r, t in counts.values()) / len(counts),
        'ties': sum(ties for _, _, ties in counts.values()),
    }


def make_table(measured: Mapping[str, Any]) -> str:
    """Returns the table of the README."""
    rows = []
    for name, row in measured['models'].items():
        keys = ('accuracy_of_harness', 'accuracy_ties_right', 'accuracy_ties_half')
        shares = [f'{100 * row[key]:.2f}' for key in keys]
        rows.append([name, *shares, f'{row["ties"]:,}', f'{row["equal"]} of {row["paradigms"]}'])
    header = ['run', 'harness, %', 'here, ties right', 'here, ties half', 'ties', 'equal paradigms']
    return markdown_table(header, rows)


def define(parser: study.StudyParser) -> None:
    """Adds the flags."""
    parser.add_argument('--runs', help='folder with the runs; default: print the committed table')
    parser.add_argument('--models', nargs='+', default=['brown-kneser_ney_5', 'brown-quick'], help='names of runs')
    parser.add_argument('--data', default='', help='BLiMP.zip; default: as of experiments.use.minimal_pairs.measure')


def main(flags: study.Flags) -> None:
    """Measures, and prints the table."""
    folder = expand('--runs', flags.runs)
    names = measure.find_runs(folder, flags.models)
    pairs = pairs_lib.load(flags.data)
    facts = {'command': 'python -m experiments.use.minimal_pairs.harness --runs=runs', **provenance.provenance()}
    models: dict[str, Any] = {}
    for name in names:
        models[name] = compare(folder / name, pairs)
        results.write(RECORD, {'models': models, **facts})
    print(show(flags))


def show(_: study.Flags) -> str:
    """Returns the committed table."""
    return make_table(results.read(RECORD.parent, RECORD.stem))


if __name__ == '__main__':
    study.run(__doc__, define=define, measure=main, show=show, measure_if='runs')
