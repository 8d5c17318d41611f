"""Changes the package at random places, one at a time, and counts the changes that the tests detect.

python -m tools.mutants --measure [--seed=1] [--size=240] [--rooms data models]    resumes
python -m tools.mutants --again --budget=8      repeats the survivors after tests were added
python -m tools.mutants --report --seed=1       writes results/seed_1.json, which `python -m tools.mutants.table` prints
python -m tools.mutants --slow=3                lists tests of 3 s or more whose lines are all run by other tests
python -m tools.mutants --coverage cli runs     records the lines that the tests of other rooms run

A room is a subpackage of nplm_jax with its tests.
"""

import argparse
import pathlib
import tempfile

from tools.mutants import covering, processes, study


def measure_coverage(rooms: list[str]) -> None:
    """Runs the tests of rooms without any change, and records the lines that the tests run."""
    processes.import_heavy()
    with tempfile.TemporaryDirectory() as folder:
        root = processes.copy_repository(pathlib.Path(folder))
        covering.measure(root, study.test_files(root, rooms))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--measure', action='store_true', help='run all mutants that have not been run yet')
    parser.add_argument('--again', action='store_true', help='also run the surviving mutants again')
    parser.add_argument('--report', action='store_true', help='write the results to a file in results/')
    parser.add_argument(
        '--coverage', nargs='+', default=[], metavar='ROOM', help='record the lines that the tests of these rooms run'
    )
    parser.add_argument(
        '--slow',
        type=float,
        metavar='SECONDS',
        help='list the tests of at least this duration [s] whose lines are all run by other tests',
    )
    parser.add_argument('--seed', type=int, default=1, help='random seed for choosing the mutants; default: 1')
    parser.add_argument('--size', type=int, default=240, help='number of mutants; default: 240')
    parser.add_argument(
        '--rooms', nargs='+', default=study.ROOMS, choices=study.ROOMS, metavar='ROOM', help='rooms to mutate'
    )
    parser.add_argument('--budget', type=float, default=study.BUDGET, help='maximum processor time per mutant [s]')
    asked = parser.parse_args()
    if asked.coverage:
        measure_coverage(asked.coverage)
    if asked.slow:
        files = study.test_files(processes.ROOT, study.ROOMS + study.ALSO)
        for seconds, test in covering.superfluous(covering.measure(processes.ROOT, files, kept_only=True), asked.slow):
            print(f'{seconds:.1f} s {test}')
    if asked.measure or asked.again:
        study.run(asked.seed, asked.size, asked.rooms, asked.again, asked.budget)
    if asked.report:
        study.report(asked.seed, asked.size, asked.rooms)


if __name__ == '__main__':
    main()
