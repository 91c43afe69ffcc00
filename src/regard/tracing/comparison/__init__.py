"""Two traces or more: one word between sentences, heads between texts or models."""

from regard.tracing.comparison._comparison import Comparison, compare, words_alike
from regard.tracing.comparison._difference import difference
from regard.tracing.comparison._divergence import Divergence, divergence
from regard.tracing.comparison._movement import Movement, movement, movement_of
