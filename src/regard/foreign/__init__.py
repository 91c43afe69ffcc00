"""The lens: a transformers model, of the user's own or from a folder, seen like a network of regard's."""

from regard.foreign._folder import load
from regard.foreign._lens import LensNetwork, lens
from regard.foreign._look import LensConfig
