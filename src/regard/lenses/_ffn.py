"""The feed-forward network of a layer, where it can be told apart: its hidden neurons and its output."""

import math

from regard.lenses._survey import Execution, SeenCall, Survey
from regard.models import is_linear


def find_ffn(found: Survey, last: SeenCall, block: Execution, shape: tuple[int, ...]) -> Execution | None:
    """The linear layer from the neurons of a layer to the residual stream; None where there is no such one.

    Its input are the neurons, its output is the network's. After the last attention of a layer nothing with
    parameters may run in it but norms and, on all tokens, two linear layers (up, down) or three (gate, up,
    down), the earlier ones of one input. So a mixture of experts, an adapter or a convolution is none.
    """
    if last.projection is None:
        return None
    start = found.order.index(last.projection) + 1
    linear: list[Execution] = []
    for execution in found.order[start:]:
        own = list(execution.module.parameters(recurse=False))
        if block not in found.around[execution] or not own:
            continue
        if is_linear(execution.module):
            linear.append(execution)
        elif any(parameter.ndim > 1 for parameter in own):
            return None
    if len(linear) not in (2, 3):
        return None
    *ups, down = linear
    given = [found.inputs.get(each) for each in linear]
    made = [found.outputs.get(each) for each in linear]
    tokens = (shape, (math.prod(shape),))  # OPT puts the batch's tokens in one row
    states = [value for value in (*given, *made) if value is not None and value.shape[:-1] in tokens]
    if len(states) < 2 * len(linear) or any(value is not given[0] for value in given[: len(ups)]):
        return None
    wide = [value.shape[-1] for value in states]
    d_model, neurons, made_of = wide[0], wide[len(ups)], set(wide[len(linear) : -1])
    # A fused gate makes two numbers of each neuron.
    return down if wide[-1] == d_model and made_of in ({neurons}, {2 * neurons}) else None
