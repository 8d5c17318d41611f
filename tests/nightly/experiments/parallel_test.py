"""Tests the cost model of a mesh, and the parsing of the bytes sent by a compiled program."""

import dataclasses
import pathlib

import pytest

from experiments import study
from experiments.paper.parallel import counts, program, table


def test_the_papers_counts():
    assert round(counts.share_of_output_layer(table.MODEL, table.VOCABULARY), 3) == 0.997
    assert counts.numbers_a_word(table.MODEL) == 1 + 5 * 100 + 60
    assert counts.sent_over_words(table.MODEL, 1) == 4 * (2 + counts.numbers_a_word(table.MODEL))


def test_bytes_are_read_from_a_programs_text():
    text = """
      %a = f32[16]{0} all-reduce(%x), replica_groups={{0,1}}
      %b = (f32[16,50]{1,0}, /*index=1*/bf16[]) all-reduce-start(%x, %y)
      %c = f32[16,50]{1,0} get-tuple-element(%b), index=0"""
    assert program.all_reduced_bytes(text) == 64 + 3200 + 2
    with pytest.raises(ValueError):
        program.all_reduced_bytes(text + '\n %d = f32[4]{0} all-gather(%x)')


def test_more_devices_never_lower_what_one_alone_would_take_to_compute():
    free = counts.Machine(network=float('inf'), latency=0.0)
    times = [counts.seconds(table.MODEL, table.VOCABULARY, table.BATCH, 1, p, free) for p in table.DEVICES]
    assert times == sorted(times, reverse=True)
    assert counts.best_mesh(table.MODEL, table.VOCABULARY, table.BATCH, 8, counts.Machine()) == (1, 8)


def test_the_figure_of_another_machine_is_not_that_of_the_page(monkeypatch):
    paths = []
    monkeypatch.setattr(table, 'draw', lambda path, machine: paths.append(path))
    for machine in (counts.Machine(), counts.Machine(flops=1e14)):
        table.show(study.Flags(**dataclasses.asdict(machine), figure=True))
    assert paths == [table.HERE / 'predicted.png', pathlib.Path('predicted.png')]
