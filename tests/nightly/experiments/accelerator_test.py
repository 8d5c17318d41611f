"""Tests the parsing of a compiled program's text and the table of programs, without a compiler."""

import json
import types

from experiments import study
from experiments.cost.accelerator import chips, compile, hlo

TEXT = """
HloModule jit_step, is_scheduled=true

%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}

%rows (table: f32[1000,64], ids: s32[8]) -> f32[8,64] {
  %table = f32[1000,64]{1,0:T(8,128)} parameter(0)
  %ids = s32[8]{0:T(128)} parameter(1)
  ROOT %g = f32[8,64]{1,0:T(8,128)} gather(%table, %ids), slice_sizes={1,64}
}

%body (state: (s32[], f32[1000,64])) -> (s32[], f32[1000,64]) {
  %state = (s32[], f32[1000,64]{1,0}) parameter(0)
  %table.1 = f32[1000,64]{1,0} get-tuple-element(%state), index=1
  %ids.1 = s32[8]{0} iota(), iota_dimension=0
  %rows.1 = f32[8,64]{1,0} fusion(%table.1, %ids.1), kind=kCustom, calls=%rows
  %near = f32[8,64]{1,0:T(8,128)S(1)} negate(%rows.1)
  %all-reduce.1 = f32[8,64]{1,0} all-reduce(%near), replica_groups={{0,1},{2,3}}, to_apply=%sum
  %product = f32[8,8]{1,0} dot(%rows.1, %all-reduce.1), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  ROOT %next = (s32[], f32[1000,64]{1,0}) tuple(%i, %table.1)
}

ENTRY %main (p: f32[1000,64]) -> f32[1000,64] {
  %p = f32[1000,64]{1,0} parameter(0)
  %start = (s32[], f32[1000,64]{1,0}) tuple(%zero, %p)
  %loop = (s32[], f32[1000,64]{1,0}) while(%start), condition=%until, body=%body, backend_config={"known_trip_count":{"n":"20"}}
  %share = f32[250,64]{1,0} bitcast(%p)
  %gather-start = (f32[250,64]{1,0}, f32[1000,64]{1,0}) all-gather-start(%share), replica_groups=[1,4]<=[4], dimensions={0}
  ROOT %gather-done = f32[1000,64]{1,0} all-gather-done(%gather-start)
}
"""  # noqa: E501


def test_what_a_loop_sends_counts_as_often_as_it_runs():
    assert hlo.Program(TEXT).collectives() == [
        {'kind': 'all-gather', 'bytes': 1000 * 64 * 4, 'devices': 4, 'count': 1},
        {'kind': 'all-reduce', 'bytes': 8 * 64 * 4, 'devices': 2, 'count': 20},
    ]


FUSED = """
%first (p: f32[250,64]) -> f32[1000,64] {
  %p = f32[250,64]{1,0} parameter(0)
  ROOT %gather = f32[1000,64]{1,0} all-gather(%p), channel_id=1, replica_groups=[1,4]<=[4], dimensions={0}
}

%second (q: f32[250,64]) -> f32[1000,64] {
  %q = f32[250,64]{1,0} parameter(0)
  ROOT %gather.1 = f32[1000,64]{1,0} all-gather(%q), channel_id=1, replica_groups=[1,4]<=[4], dimensions={0}
}

ENTRY %main (r: f32[250,64]) -> f32[1000,64] {
  %r = f32[250,64]{1,0} parameter(0)
  %one = f32[1000,64]{1,0} fusion(%r), kind=kLoop, calls=%first
  ROOT %two = f32[1000,64]{1,0} fusion(%r), kind=kLoop, calls=%second
}
"""


def test_a_collective_in_several_fusions_is_sent_once():
    program = hlo.Program(FUSED)
    assert [(instruction.kind, times) for instruction, times in program.sent()] == [('all-gather', 1)]
    assert [each['count'] for each in program.collectives()] == [1]


def test_products_have_the_types_of_their_operands():
    (operands,) = hlo.Program(TEXT).products()
    assert [(array.kind, array.shape) for array in operands] == [('f32', (8, 64))] * 2


def test_a_program_that_does_not_fit_is_a_line_of_the_table():
    entry = {'row': 'mlp1', 'data': 4, 'model': 1, 'batch_size': 512, 'words': 512}
    sent = [{'bytes': 3_000_000, 'count': 2.0}]
    assert compile._cells('v5e-2x2', entry)[-3:] == ['does not fit', '-', '-']
    fits = {**entry, 'memory': {'arguments': 10**9, 'outputs': 0, 'temporaries': 5 * 10**8}, 'collectives': sent}
    assert compile._cells('v5e-2x2', fits) == ['mlp1', 'v5e-2x2', '4 x 1', '512', '1.50', '2', '6.0']


def test_a_program_that_is_added_leaves_the_origin_of_the_others(tmp_path, monkeypatch):
    entry = {'row': 'mlp1', 'data': 1, 'model': 1, 'batch_size': 5120, 'words': 5120, 'fits': False}
    former = {'commit': 'former-dirty', 'versions': {'jaxlib': '0.10.1'}, 'entries': {'mlp1 1x1 5120': entry}}
    (tmp_path / 'H100.json').write_text(json.dumps(former))
    cases = [compile.Case('mlp1', 'H100', 1, 1, batch) for batch in (5120, 64)]
    monkeypatch.setattr(compile, 'cases', lambda: cases)
    monkeypatch.setattr(compile, 'compile_case', lambda case: {**entry, 'batch_size': case.batch_size})
    monkeypatch.setattr(compile, 'versions', lambda: {'libtpu': '1'})
    monkeypatch.setattr(chips.Topology, 'devices', lambda _: [types.SimpleNamespace(device_kind='absent')])
    compile.measure(study.Flags(rows=['mlp1'], topologies=['H100'], until=0.0, output=tmp_path))
    written = json.loads((tmp_path / 'H100.json').read_text())
    assert {**written, 'entries': {'mlp1 1x1 5120': entry}} == former
    added = written['entries']['mlp1 1x1 64']
    assert added['commit'] != 'former-dirty' and added['device'] == 'absent' and added['versions']['libtpu'] == '1'
