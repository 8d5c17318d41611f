"""Defines a small sweep, for the tests of launch.py --sweep."""

SWEEP = """
from configs import sentences

def get_config(row=''):
    return sentences.get_config()

def sweep():
    for h in (3, 5, 7):
        yield {'model.h': h, 'seed': 2}
"""
