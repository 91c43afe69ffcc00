"""The lens: a transformers model, of the user's own or from a folder, seen like a network of regard's."""

from regard.lenses._folder import load
from regard.lenses._lens import LensNetwork, lens
from regard.lenses._look import LensConfig
