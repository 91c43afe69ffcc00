"""What a record tells afterwards, row by row, without N x N numbers: scores, weights, statistics, identities.

The forward pass needs none of it; traces do.
"""

from regard.core.rows._blocks import Groups
from regard.core.rows._statistics import RowStatistics, row_statistics
from regard.core.rows._weights import AttentionErrors, attention_errors, attention_scores, attention_weights
