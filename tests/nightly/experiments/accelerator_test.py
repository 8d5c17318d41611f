"""Parsing of a compiled program's text, and the table of the programs; no compiler is needed."""

from experiments.cost.accelerator import compile, hlo

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


def test_products_have_the_types_of_their_operands():
    (operands,) = hlo.Program(TEXT).products()
    assert [(array.kind, array.shape) for array in operands] == [('f32', (8, 64))] * 2


def test_a_program_that_does_not_fit_is_a_line_of_the_table():
    entry = {'row': 'mlp1', 'data': 4, 'model': 1, 'batch_size': 512, 'words': 512}
    sent = [{'bytes': 3_000_000, 'count': 2.0}]
    assert compile._cells('v5e-2x2', entry)[-3:] == ['does not fit', '-', '-']
    fits = {**entry, 'memory': {'arguments': 10**9, 'outputs': 0, 'temporaries': 5 * 10**8}, 'collectives': sent}
    assert compile._cells('v5e-2x2', fits) == ['mlp1', 'v5e-2x2', '4 x 1', '512', '1.50', '2', '6.0']
