"""Why a head looks where it looks: its scores, split over what wrote its queries and keys."""

from regard.tracing.reasons._heads import Feeds, WhyHeads, why_heads
from regard.tracing.reasons._pairs import pairs_of_head
from regard.tracing.reasons._why import Why, WhyPart, why
from regard.tracing.reasons._writers import Writer
