"""What every command does before JAX starts."""

import pytest
from helpers import launch


@pytest.mark.parametrize(
    'row,discounts', [('kneser_ney_3', 'discount 0.5'), ('modified_kneser_ney_3', 'discounts 0.5, 1 and 1.5')]
)
def test_too_little_text_for_discounts_is_one_line_that_names_the_orders_and_what_is_used(row, discounts, tmp_path):
    done = launch(f'--config=configs/sentences.py:{row}', f'--workdir={tmp_path / "run"}')
    assert done.returncode == 0
    assert done.stderr == (
        f'too little text to estimate the Kneser-Ney discounts of orders 1, 2, 3: using the fixed {discounts}\n'
    )
