"""Tiny ONNX models on disk, and the same computation in numpy: their vectors and scores are known.

A token's state is ``tanh((E[id] + T[type] + mean of all) W)``, so that it depends on its neighbours, on token types and
on what is padding.
"""

import json

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save
from onnxruntime.quantization import QuantType, quantize_dynamic

from tests.support import tokenizers_on_disk

WIDTH = 8
MAX_TOKENS = 24
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_chance = np.random.default_rng(22)
STATES, TYPES, MIXING, HEAD = (
    _chance.normal(size=size).astype(np.float32)
    for size in ((len(tokenizers_on_disk.WORD_PIECES), WIDTH), (2, WIDTH), (WIDTH, WIDTH), (WIDTH, 2))
)
# A token whose state is not a number.
BROKEN = tokenizers_on_disk.WORD_PIECES.index("secret")
STATES[BROKEN] = np.nan


def states(ids, types=None):
    known = STATES[list(ids)].astype(np.float64)
    if types is not None:
        known = known + TYPES[list(types)]
    return np.tanh((known + known.mean(axis=0)) @ MIXING)


def logits(ids, types, labels):
    return states(ids, types)[0] @ HEAD[:, :labels]


def write_graph(
    path,
    *,
    inputs=INPUTS,
    output="last_hidden_state",
    labels=0,
    dtype=TensorProto.INT64,
    shape=("b", "t"),
    mask_dtype=None,
    int8=False,
):
    """Writes the model; with `labels`, a cross-encoder."""
    nodes = [
        helper.make_node("Gather", ["states", "input_ids"], ["own"]),
        helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["mask", "last"], ["wide"]),
    ]
    known, final = "known" if "token_type_ids" in inputs else "own", "hidden" if labels else output
    if known == "known":
        nodes.append(helper.make_node("Gather", ["types", "token_type_ids"], ["typed"]))
        nodes.append(helper.make_node("Add", ["own", "typed"], ["known"]))
    nodes += [
        helper.make_node("Mul", [known, "wide"], ["shown"]),
        helper.make_node("ReduceSum", ["shown", "middle"], ["sum"], keepdims=1),
        helper.make_node("ReduceSum", ["wide", "middle"], ["count"], keepdims=1),
        helper.make_node("Div", ["sum", "count"], ["mean"]),
        helper.make_node("Add", [known, "mean"], ["both"]),
        helper.make_node("MatMul", ["both", "mixing"], ["mixed"]),
        helper.make_node("Tanh", ["mixed"], [final]),
    ]
    if labels:
        nodes.append(helper.make_node("Gather", [final, "first"], ["cls"], axis=1))
        nodes.append(helper.make_node("MatMul", ["cls", "head"], [output]))
    constants = {"states": STATES, "types": TYPES, "mixing": MIXING, "last": np.array([2]), "middle": np.array([1])}
    constants |= {"first": np.array(0), "head": HEAD[:, :labels]} if labels else {}
    dtypes = {} if mask_dtype is None else {"attention_mask": mask_dtype}
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info(name, dtypes.get(name, dtype), shape) for name in inputs],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, ("b", labels) if labels else ("b", "t", WIDTH))],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    save(model, path)
    if int8:
        quantize_dynamic(path, path, op_types_to_quantize=["MatMul"], weight_type=QuantType.QInt8)


def write_folder(folder, *, pooling="mean", prompts=None, file="model.onnx", **graph):
    folder.mkdir(parents=True, exist_ok=True)
    write_graph(folder / file, **graph)
    (folder / "tokenizer.json").write_bytes(tokenizers_on_disk.word_piece_content())
    write_json(folder / "config.json", {"model_type": "bert", "pad_token_id": 0, "max_position_embeddings": 512})
    write_json(folder / "tokenizer_config.json", {"model_max_length": int(1e30)})
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": MAX_TOKENS})
    write_json(folder / "config_sentence_transformers.json", {"prompts": prompts or {}})
    if pooling is not None:
        modules = [("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")]
        types = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for kind, path in modules]
        write_json(folder / "modules.json", types)
        (folder / "1_Pooling").mkdir(exist_ok=True)
        ways = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens", "lasttoken": "lasttoken"}
        chosen = {f"pooling_mode_{way}": name == pooling for name, way in ways.items()}
        write_json(folder / "1_Pooling" / "config.json", chosen)
    return folder


def write_json(path, content):
    path.write_text(json.dumps(content))
