"""Which committed file comes from which call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

import onnx

from models import near_misses
from models.convs import conv_towers
from models.experts import mmoe
from models.features import per_feature
from models.mlp import critic_ensemble, grouped_mlp
from models.transformer import headlocal_transformer

CATALOG: Mapping[str, Callable[[], onnx.ModelProto]] = MappingProxyType(
    {
        "grouped_mlp": grouped_mlp,
        "grouped_mlp_norm": partial(grouped_mlp, layers=4, norm=True, activation="Tanh"),
        "headlocal_transformer": headlocal_transformer,
        "mmoe": mmoe,
        "mmoe_norm": partial(mmoe, experts=4, gates=2, norm=True),
        "per_feature": per_feature,
        "critic_ensemble": critic_ensemble,
        "conv_towers": conv_towers,
        "near_unequal_widths": near_misses.unequal_widths,
        "near_activation_attribute": near_misses.activation_attribute,
        "near_cross_dependency": near_misses.cross_dependency,
        "near_crossed_order": near_misses.crossed_order,
        "near_dynamic_dims": near_misses.dynamic_dims,
        "near_weight_input": near_misses.weight_input,
        "near_weight_default": partial(near_misses.weight_input, default=True),
        "near_training_dropout": near_misses.training_dropout,
        "near_tapped_lane": near_misses.tapped_lane,
        "near_permuted_join": near_misses.permuted_join,
    }
)
"""File name without `.onnx` -> the call that builds it."""

EXPORTED = ("exported_transformer", "exported_transformer_dynamo")
"""Files that `scripts/export_models.py` exports from torch."""


def serialise(model: onnx.ModelProto) -> bytes:
    """Give the bytes of the committed file."""
    data: bytes = model.SerializeToString(deterministic=True)
    return data
