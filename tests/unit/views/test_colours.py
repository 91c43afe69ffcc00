"""The colours of several heads can be told apart, also by people who see fewer."""

import itertools
import json
from typing import Any

import numpy as np
import pytest

from regard.views._assets import read

# Machado, Oliveira and Fernandes 2009, severity 1, on linear RGB.
VISIONS = {
    "normal": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
PALETTE = json.loads(read("palette.json"))
THEMES = ("light", "dark")


def _linear(colour: str) -> Any:
    part = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)


def _oklab(linear: Any) -> Any:
    cone = np.array(
        [
            [0.4122214708, 0.5363325363, 0.0514459929],
            [0.2119034982, 0.6806995451, 0.1073969566],
            [0.0883024619, 0.2817188376, 0.6299787005],
        ]
    )
    axes = np.array(
        [
            [0.2104542553, 0.7936177850, -0.0040720468],
            [1.9779984951, -2.4285922050, 0.4505937099],
            [0.0259040371, 0.7827717662, -0.8086757660],
        ]
    )
    return np.cbrt(np.clip(linear, 0, 1) @ cone.T) @ axes.T


@pytest.mark.parametrize("theme", THEMES)
def test_sixteen_colours_are_apart_for_every_vision(theme: str) -> None:
    colours = PALETTE[theme]["series"]
    assert len(colours) == 16
    for vision, matrix in VISIONS.items():
        seen = [_oklab(_linear(colour) @ matrix.T) for colour in colours]
        nearest = min(float(np.linalg.norm(one - other)) for one, other in itertools.combinations(seen, 2))
        assert nearest > (0.12 if vision == "normal" else 0.055)


@pytest.mark.parametrize("theme", THEMES)
def test_every_colour_stands_out_from_the_card(theme: str) -> None:
    def brightness(colour: str) -> float:
        return float(_linear(colour) @ [0.2126, 0.7152, 0.0722]) + 0.05

    card = brightness(PALETTE[theme]["card"])
    for colour in PALETTE[theme]["series"]:
        pair = sorted((brightness(colour), card))
        assert pair[1] / pair[0] >= 2.99
