import pytest

from experiments.beyond.frontier import minutes


@pytest.mark.parametrize('name', ['2k', '16k', '0.2M'])
def test_a_text_of_the_dial_has_about_so_many_words(name, tmp_path):
    path = tmp_path / 'text.txt'
    minutes.write_text(name, path)
    words = len(path.read_text().split())
    wanted = minutes.TEXTS[name].words
    assert wanted <= words < wanted + 3_000  # whole texts of Brown
    minutes.write_text('4k', path)  # exists, so it is not written again
    assert len(path.read_text().split()) == words
