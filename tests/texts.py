"""Texts in several scripts: articles of the Universal Declaration of Human Rights (United Nations, 1948)."""

import random

SCRIPTS = {  # the beginning of article 1 of the Universal Declaration of Human Rights
    'English': 'All human beings are born free and equal in dignity and rights.\r\n',
    'German': 'Alle Menschen sind frei und gleich an Würde und Rechten geboren.\n\n',
    'Russian': 'Все люди рождаются свободными и равными в своем достоинстве и правах.\n',
    'Chinese': '人人生而自由,在尊严和权利上一律平等。\n',
    'Thai': 'มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ\n',
    'Arabic': 'يولد جميع الناس أحرارًا متساوين في الكرامة والحقوق.\n',
    'Hindi': 'सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है।\n',
}
GERMAN = (
    'Artikel 1\n'
    'Alle Menschen sind frei und gleich an Würde und Rechten geboren. Sie sind mit Vernunft und Gewissen bega'
    'bt und sollen einander im Geist der Brüderlichkeit begegnen.\n'
    'Artikel 3\n'
    'Jeder hat das Recht auf Leben, Freiheit und Sicherheit der Person.\n'
    'Artikel 4\n'
    'Niemand darf in Sklaverei oder Leibeigenschaft gehalten werden; Sklaverei und Sklavenhandel sind in alle'
    'n ihren Formen verboten.\n'
    'Artikel 5\n'
    'Niemand darf der Folter oder grausamer, unmenschlicher oder erniedrigender Behandlung oder Strafe unterw'
    'orfen werden.\n'
    'Artikel 6\n'
    'Jeder hat das Recht, überall als rechtsfähig anerkannt zu werden.\n'
    'Artikel 7\n'
    'Alle Menschen sind vor dem Gesetz gleich und haben ohne Unterschied Anspruch auf gleichen Schutz durch d'
    'as Gesetz. Alle haben Anspruch auf gleichen Schutz gegen jede Diskriminierung, die gegen diese Erklärung'
    ' verstößt, und gegen jede Aufhetzung zu einer derartigen Diskriminierung.\n'
    'Artikel 8\n'
    'Jeder hat Anspruch auf einen wirksamen Rechtsbehelf bei den zuständigen innerstaatlichen Gerichten gegen'
    ' Handlungen, durch die seine ihm nach der Verfassung oder nach dem Gesetz zustehenden Grundrechte verlet'
    'zt werden.\n'
    'Artikel 9\n'
    'Niemand darf willkürlich festgenommen, in Haft gehalten oder des Landes verwiesen werden.\n'
)
CHINESE = (
    '第一条\n'
    '人人生而自由,在尊严和权利上一律平等。他们赋有理性和良心,并应以兄弟关系的精神相对待。\n'
    '第二条\n'
    '人人有资格享有本宣言所载的一切权利和自由,不分种族、肤色、性别、语言、宗教、政治或其他见解、国籍或社会出身、财产、出生或其他身分等任何区别。\n'
    '并且不得因一人所属的国家或领土的政治的、行政的或者国际的地位之不同而有所区别,无论该领土是独立领土、托管领土、非自治领土或者处于其他任何主权受限制的情况之下。\n'
    '第三条\n'
    '人人有权享有生命、自由和人身安全。\n'
    '第四条\n'
    '任何人不得使为奴隶或奴役;一切形式的奴隶制度和奴隶买卖,均应予以禁止。\n'
    '第五条\n'
    '任何人不得加以酷刑,或施以残忍的、不人道的或侮辱性的待遇或刑罚。\n'
    '第六条\n'
    '人人在任何地方有权被承认在法律前的人格。\n'
    '第七条\n'
    '法律之前人人平等,并有权享受法律的平等保护,不受任何歧视。人人有权享受平等保护,以免受违反本宣言的任何歧视行为以及煽动这种歧视的任何行为之害。\n'
)


def repeated(text, times=40, seed=1):
    """Returns the lines of a text in random order, each `times` times, with their line ends."""
    lines = text.splitlines(keepends=True) * times
    random.Random(seed).shuffle(lines)
    return ''.join(lines)
