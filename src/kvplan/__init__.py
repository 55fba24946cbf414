"""kvplan: a compiler for the caches of language models. The packages here are links to those at the root."""

__version__ = "0.1.0"
