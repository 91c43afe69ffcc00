"""The families of models, a file each: its config, the building of its network, its key map.

The private files are what several families share.
"""

from regard.models.families._registry import FAMILIES, Family, family_of
