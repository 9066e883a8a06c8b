"""Examples for the rules that `rule_examples` has none for."""

from __future__ import annotations

from tests.examples_moved import MOVED
from tests.examples_products import PRODUCTS
from tests.examples_quantized import QUANTIZED
from tests.examples_weighted import WEIGHTED
from tests.rule_examples import Example

EXAMPLES: tuple[Example, ...] = (*MOVED, *QUANTIZED, *PRODUCTS, *WEIGHTED)

REFUSED_ROWS = frozenset({"DynamicQuantizeLinear"})
"""Rows of the tables that only say why not."""
