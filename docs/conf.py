"""Sphinx configuration: the site of README.md, docs/, the tutorials and the studies.

The source folder is the repository's root, so that one relative link works on a code host and in the site:

    sphinx-build -E -W --keep-going -c docs . build/docs
"""

import pathlib
import sys

ROOT = pathlib.Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / 'docs' / '_ext')]

import scipy.stats  # noqa: E402, F401 (its import fails where torch is one of the mocks below)

from nplm_jax import __version__  # noqa: E402

project = 'nplm-jax'
author = copyright = 'nplm-jax contributors'
version = release = __version__
root_doc = 'docs/index'
extensions = [
    'myst_nb',
    'sphinx.ext.autodoc',
    'sphinx.ext.autosummary',
    'sphinx.ext.napoleon',
    'sphinx.ext.viewcode',
    'nplm_docs',
]

# --- what is read: README.md is the front page of a code host, docs/index.md that of the site -----------------------
include_patterns = [
    'docs/*.md',
    'docs/**/*.md',
    'docs/reference/generated/*.rst',
    'README.md',
    'CHANGELOG.md',
    'CONTRIBUTING.md',
    'SECURITY.md',
    'CODE_OF_CONDUCT.md',
    'experiments/README.md',
    'experiments/**/README.md',
    'experiments/paper/section5/*.md',
    'docs/tutorials/*.ipynb',
    'tests/nightly/fuzz/README.md',
    'tools/*/README.md',
]
exclude_patterns = ['.venv', '.git', 'build', 'runs', 'nplm_jax']
smartquotes = False  # `--flag` has two hyphens
nb_execution_mode = 'force'  # the tutorials run during the build
nb_execution_excludepatterns = ['docs/tutorials/from_2003_to_the_transformer.ipynb']  # eight minutes: has its outputs
nb_execution_timeout = 900
nb_execution_raise_on_error = True
nb_output_stderr = 'remove'  # progress
myst_enable_extensions = ['dollarmath', 'html_image']
myst_heading_anchors = 3

# --- docstrings -------------------------------------------------------------------------------------------------------
autosummary_generate = True
default_role = 'py:obj'  # `name` in a docstring is code, and a link where the name is known
autodoc_default_options = {'members': True, 'member-order': 'bysource'}
autodoc_typehints = 'signature'
autodoc_mock_imports = [
    'distributed',
    'nicegui',
    'optuna',
    'pydantic',
    'sqlalchemy',
    'starlette',
    'torch',
    'transformers',
]
python_use_unqualified_type_names = True
napoleon_google_docstring, napoleon_numpy_docstring = True, False
napoleon_use_ivar = True

# --- the page ---------------------------------------------------------------------------------------------------------
html_theme = 'sphinx_book_theme'
html_title = 'nplm-jax'
html_theme_options = {'show_navbar_depth': 1, 'show_toc_level': 2}
html_extra_path = ['_extra']  # index.html, which leads to docs/index.html
