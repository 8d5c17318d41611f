"""python -m tests.faults --soak=MINUTES"""

import argparse

from tests.faults import soak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--soak', type=float, metavar='MINUTES')
    asked = parser.parse_args()
    soak.measure(asked.soak)


if __name__ == '__main__':
    main()
