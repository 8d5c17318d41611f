"""Tests which runs are comparable."""

import json

from nplm_jax.reporting.catalog import Run


def test_a_run_that_predicts_far_fewer_tokens_than_its_text_has_is_not_comparable(tmp_path):
    def run(name, test):
        (tmp_path / name).mkdir()
        words = {'train': 9_000, 'valid': 1_000, 'test': 2_000}
        (tmp_path / name / 'corpus.json').write_text(json.dumps({'sha256': 'of one text', 'words': words}))
        return Run(tmp_path / name, {}, {}, {'words': words | {'test': test}})

    stream, lines, lines_of_short_texts = run('stream', 2_000), run('lines', 1_999), run('short', 1_800)
    assert stream.text == lines.text != lines_of_short_texts.text
