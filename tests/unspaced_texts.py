"""Short texts in scripts without spaces between words, in written and segmented form, with tables of words."""

import pathlib
import random

# The possible words at each position of a sentence.
PLACES = {
    'chinese': (
        ('那只', '这个', '一个'),
        ('猫', '狗', '老师', '学生', '孩子', '朋友'),
        ('喜欢', '看见', '讨厌', '帮助'),
        ('那只', '这个', '一个'),
        ('猫', '狗', '老师', '学生', '孩子', '朋友'),
        ('。',),
    ),
    'japanese': (
        ('この', 'あの', 'その'),
        ('先生', '学生', '子供', '友達', '猫', '犬'),
        ('は',),
        ('先生', '学生', '子供', '友達', '猫', '犬'),
        ('を',),
        ('見た', '助けた', '待った', '呼んだ'),
        ('。',),
    ),
    'thai': (
        ('แมว', 'หมา', 'ครู', 'นักเรียน', 'เด็ก', 'เพื่อน'),
        ('ตัวนี้', 'คนนี้', 'คนนั้น'),
        ('ชอบ', 'เห็น', 'ช่วย', 'รอ'),
        ('แมว', 'หมา', 'ครู', 'นักเรียน', 'เด็ก', 'เพื่อน'),
        ('ตัวนี้', 'คนนี้', 'คนนั้น'),
    ),
}
_BETWEEN_SENTENCES = {'thai': ' '}  # as in written Thai


def write(folder: pathlib.Path, rng: random.Random) -> None:
    """Writes NAME.txt, NAME_words.txt (segmented) and NAME_times.csv (reading times of some items)."""
    for name, places in PLACES.items():
        lines = [[[*map(rng.choice, places)] for _ in range(2)] for _ in range(600)]
        blank = _BETWEEN_SENTENCES.get(name, '')
        text = ''.join(blank.join(map(''.join, line)) + '\n' for line in lines)
        words = ''.join(' '.join(map(' '.join, line)) + '\n' for line in lines)
        rows = (
            f'{item},{zone},{word},{rng.uniform(250, 400):.1f}\n'
            for item, line in enumerate(lines[:40], start=1)
            for zone, word in enumerate([word for sentence in line for word in sentence], start=1)
        )
        (folder / f'{name}.txt').write_text(text)
        (folder / f'{name}_words.txt').write_text(words)
        (folder / f'{name}_times.csv').write_text('item,zone,word,rt\n' + ''.join(rows))
