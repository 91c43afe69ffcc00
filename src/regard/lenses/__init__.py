"""The lens: a transformers model of the user's own, seen like a network of regard's."""

from regard.lenses._lens import LensNetwork, lens
from regard.lenses._look import LensConfig
