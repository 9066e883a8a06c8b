"""Random valid models that look for what the batching rules get wrong, and the models that found something.

A model is a chain of blocks; a block opens lanes from a source, runs the same drawn steps on every lane
(rarely one lane differs), and closes them in a sink.  Everything follows from one seed: the order in which
numbers are drawn is part of what a seed means, so a change of it changes every model.
"""

from tests.random_models.builder import BATCH_NAMES
from tests.random_models.kept import REGRESSIONS, text
from tests.random_models.models import make_feeds, random_model

__all__ = ["BATCH_NAMES", "REGRESSIONS", "make_feeds", "random_model", "text"]
