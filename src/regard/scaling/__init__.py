"""What attention costs as texts grow: time, memory, and how far cheaper attention is from the exact one."""

from typing import TYPE_CHECKING

from regard._lazy import lazy_exports as _lazy_exports

if TYPE_CHECKING:
    from regard.scaling._cases import CASES, Shape, case_named, names_of
    from regard.scaling._measure import LENGTHS, closeness, scaling
    from regard.scaling._scaling import Cost, Exponent, Scaling

__all__ = [
    "Cost",
    "Exponent",
    "Scaling",
    "scaling",
]

__getattr__, __dir__ = _lazy_exports(
    __name__,
    {
        "regard.scaling._cases": "CASES Shape case_named names_of",
        "regard.scaling._measure": "LENGTHS closeness scaling",
        "regard.scaling._scaling": "Cost Exponent Scaling",
    },
)
