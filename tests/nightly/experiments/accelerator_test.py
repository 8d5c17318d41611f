"""What is read from a compiled program's text, the operations of a trace, and the roofline; no compiler is needed."""

import jax
import jax.numpy as jnp
import pytest

from experiments.cost.accelerator import chips, flops, half_peak, hlo, roofline

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


def test_a_gather_moves_its_rows_and_a_buffer_near_the_chip_nothing():
    rows, ids, product = 8 * 64 * 4, 8 * 4, 8 * 8 * 4
    fusion, negate, all_reduce, dot = 2 * rows + ids, rows, rows, 2 * rows + product
    gathered = (250 + 1000) * 64 * 4
    assert hlo.Program(TEXT).moved() == 20 * (fusion + negate + all_reduce + dot) + gathered


def test_what_is_moved_is_counted_by_shape():
    traffic = hlo.Program(TEXT).traffic()
    assert traffic[1000, 64] == 20 * 8 * 64 * 4 + 1000 * 64 * 4  # of the table eight rows an update, and once all of it
    assert traffic[250, 64] == 250 * 64 * 4 and traffic[8, 8] == 20 * 8 * 8 * 4


def test_products_have_the_types_of_their_operands():
    (operands,) = hlo.Program(TEXT).products()
    assert [(array.kind, array.shape) for array in operands] == [('f32', (8, 64))] * 2


@pytest.mark.parametrize('tile,exact', [(1, True), (128, False)])
def test_the_operations_of_a_loop_are_those_of_all_its_runs(tile, exact):
    def loop(x, y):
        return jax.lax.scan(lambda carry, _: (carry @ y, None), x, None, length=5)[0]

    jaxpr = jax.make_jaxpr(loop)(jnp.zeros((2, 3)), jnp.zeros((3, 3))).jaxpr
    assert flops.count(jaxpr, tile=tile) == (5 * 2 * 2 * 3 * 3, 5 * 2 * (2 * 3 * 3 if exact else 128**3))


def test_the_longest_of_products_memory_and_sending_bounds_a_program():
    topology, chip = chips.TOPOLOGIES['v5e-2x2'], chips.CHIPS['v5e']
    sent = {'kind': 'all-reduce', 'bytes': 2 * chip.link, 'devices': 4, 'count': 1}
    entry = {'tiled_flops': chip.figures.flops, 'bytes': chip.figures.memory_bandwidth / 2, 'collectives': []}
    assert roofline.predict(entry, topology).bound == 'compute'
    assert roofline.predict({**entry, 'bytes': 2 * chip.figures.memory_bandwidth}, topology) == (1, 2, 0)
    times = roofline.predict({**entry, 'collectives': [sent]}, topology)  # two links; three quarters twice
    assert times.bound == 'interconnect' and times.seconds == pytest.approx(1.5 + 2 * chip.hop)


def test_a_large_mesh_is_a_torus_and_a_small_one_is_not():
    assert [chips.TOPOLOGIES[name].links for name in ('v5e-2x2', 'v5e-16x16', 'v5p-2x2x2', 'H100-8')] == [2, 4, 3, 1]
    assert chips.TOPOLOGIES['v5e-16x16'].num_devices == 256 and chips.TOPOLOGIES['v5e-16x16'].hops == 16


def entry_of(n, **changes):
    """What is known of an update of n chips that is bound by its products, 1 Tflop a chip."""
    found = {'row': 'mlp1', 'data': n, 'model': 1, 'batch_size': roofline.WEAK * n, 'words': roofline.WEAK * n}
    return {**found, 'flops': 1e12, 'tiled_flops': 1e12, 'bytes': 0, 'collectives': [], 'memory': {}, **changes}


def test_weak_scaling_is_of_as_many_words_on_each_chip_and_leaves_out_what_does_not_fit():
    entries = {name: {} for name in chips.TOPOLOGIES}
    entries |= {'v5e-2x2': {'': entry_of(4)}, 'v5e-4x4': {'': entry_of(16, tiled_flops=2e12)}}
    too_large = entry_of(256)
    del too_large['memory']
    entries['v5e-16x16'] = {'': too_large}
    first, second = roofline.scaling_table(entries).splitlines()[2:]
    assert ' 100% ' in first and ' 50% ' in second and ' 16 ' in second
    assert 'does not fit' in roofline.table(entries).splitlines()[-1]


def test_half_of_the_peak_is_passed_at_the_first_batch_and_the_last_one_below_it_is_explained():
    chip = chips.CHIPS['H100'].figures
    second = {'flops': chip.flops, 'tiled_flops': chip.flops, 'collectives': [], 'fits': True}
    moved = {'1,024 x |V|': chip.memory_bandwidth}
    batches = zip(half_peak.BATCHES, (5, 4, 2))
    entries = {
        half_peak.Case('paper', 'H100', 50, B).name: {**second, 'bytes': n * chip.memory_bandwidth, 'most_moved': moved}
        for B, n in batches
    }
    entries['paper H100 50 16384'] = {'fits': False}
    entries['lstm H100 320 256'] = {**second, 'bytes': 0, 'most_moved': {}}
    lines = [line.split(' | ') for line in half_peak.by_batch(entries).splitlines()[2:]]
    cells = {(line[0].strip('| '), *map(str.strip, line[1:3])): [c.strip('| ') for c in line[4:]] for line in lines}
    assert len(cells) == 3 * 2 * 3 and cells['paper', 'v5e', '50'] == ['-'] * 5
    assert cells['paper', 'H100', '50'] == ['20% memory', '25% memory', '50% memory', 'does not fit', '4,096']
    assert cells['lstm', 'H100', '320'] == ['100% compute', '-', '-', '-', '256']
    (line,) = half_peak.in_the_way(entries).splitlines()[2:]
    *numbers, most_moved = (cell.strip(' |') for cell in line.split(' | ')[3:])
    assert numbers == ['1,024', '1,000,000', '4,000,000', '100%', '25%', 'memory']
    assert most_moved == r'1,024 x \|V\| 25%'


def test_every_case_of_half_of_the_peak_is_of_a_network_with_sizes_of_its_own():
    found = half_peak.cases()
    assert len(found) == len(set(found)) == 3 * 2 * 3 * 4
    assert found[0] == ('paper', 'H100', 50, 256) and half_peak.programs.settings_of('mlp1', 256)[0].model.h == 50
