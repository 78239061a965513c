"""How Sphinx builds the pages: ``make docs``."""

from __future__ import annotations

import sys
from pathlib import Path

import jax_graphenc

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "jax_graphenc"
author = "The jax_graphenc authors"
release = version = jax_graphenc.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "examples_table",
    "options_table",
]

# Markdown
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

# Docstrings. Types stand in the signatures; what they mean stands in the text.
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_class_signature = "mixed"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
# The groups of cuda_kernel's parameters.
napoleon_custom_sections = [
    (group, "params_style")
    for group in ("Launch", "Parameters of the kernel", "Transformations", "Compilation")
]
python_use_unqualified_type_names = True
maximum_signature_line_length = 88
add_module_names = False
# What other projects document, and types that are named in signatures alone. Nothing is fetched, so
# that a build needs no network.
nitpick_ignore_regex = [
    (
        r"py:.*",
        r"(jax|jaxlib|np|numpy|collections|pathlib|os|types|Path|PathLike|Any|Callable|P|R)\b.*",
    ),
    (r"py:.*", r"(Mapping|Sequence|Iterable|Iterator|ParamSpec|TypeVar|Primitive|Tracer)\b.*"),
    # Types of inner modules.
    (r"py:.*", r"jax_graphenc\.(?!testing|primitives)[a-z].*\.[A-Z]\w*"),
    (r"py:.*", r"(str|int|float|bool|bytes|dict|tuple|list|None|object|Exception)"),
    (r"py:.*", r"(TypeError|ValueError|RuntimeError|OSError|AssertionError|NotImplementedError)"),
]

# Pages
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "jax_graphenc"
html_static_path = ["_static"]
html_css_files = ["style.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#31731d", "color-brand-content": "#31731d"},
    "dark_css_variables": {"color-brand-primary": "#8fce73", "color-brand-content": "#8fce73"},
}
copybutton_exclude = ".linenos, .gp, .go"
