"""docs/equations.md leads to the lines where the functions begin: python -m tests.docs_test mends the line numbers."""

import ast
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[1]
EQUATIONS = ROOT / 'docs' / 'equations.md'
LINK = re.compile(r'\[([\w.]+)\]\(\.\./([\w/]+\.py)#L(\d+)\)')


def definition_line(path: str, name: str) -> int:
    """Returns the line of `def name` or `class name` in a file; of a method also by Class.method."""
    places = {}
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            places[node.name] = node.lineno
        if isinstance(node, ast.ClassDef):
            places |= {f'{node.name}.{m.name}': m.lineno for m in node.body if isinstance(m, ast.FunctionDef)}
    return places[name]


@pytest.mark.parametrize('name,path,line', LINK.findall(EQUATIONS.read_text()))
def test_every_equation_leads_to_the_line_of_its_function(name, path, line):
    assert int(line) == definition_line(path, name)


def test_the_main_equations_are_in_the_table():
    names = {name for name, _, _ in LINK.findall(EQUATIONS.read_text())}
    assert {'logits', 'regulariser', 'paper_schedule', 'FrequencyBins', 'map_loss', 'blockwise_cross_entropy'} <= names


def main() -> None:
    """Writes the right line numbers."""
    text = LINK.sub(lambda m: f'[{m[1]}](../{m[2]}#L{definition_line(m[2], m[1])})', EQUATIONS.read_text())
    EQUATIONS.write_text(text)


if __name__ == '__main__':
    main()
