"""The pass itself: all layers of a decoder and the lm head, for a few rows, on several threads.

Threads share each layer's work, and wait for each other when they need each other's results. They
wait twice per layer if each thread has its own key heads, and four times if threads share heads.
The function is compiled for the kinds of layers in a decoder. It reads sizes and addresses from
tables, so one function supports any sizes and any numbers of rows and threads.
"""

from llvmlite import ir

from specx.ops.native import byte_rows, experts, functions, products
from specx.ops.native.emitter import I64, VectorUnit
from specx.ops.native.kinds import PassKind
from specx.ops.native.layer import LayerWriter
from specx.ops.native.pass_writer import PassWriter
from specx.ops.native.tables import LAYER


def write_functions(unit: VectorUnit) -> str:
    """Write the functions that all passes share, in which most of the time is spent."""
    module = ir.Module("functions")
    products.write(module, unit)
    byte_rows.write(module, unit)
    functions.write(module, unit)
    experts.write(module, unit)
    return str(module)


def write_pass(unit: VectorUnit, kind: PassKind) -> str:
    """Write a pass. Each thread calls its function ``run`` with a table."""
    module = ir.Module("pass")
    writer = PassWriter(module, unit, kind)
    e, frame = writer.e, writer.frame
    with e.when(e.is_equal(frame["added"], 0)):
        writer.begin()
    _write_layers(writer)
    with e.when(e.is_equal(frame["is_last"], 1)):
        writer.end()
    e.finish()
    return str(module)


def _write_layers(writer: PassWriter) -> None:
    """Write the code of each kind of layer, and a loop that runs the layers in order."""
    e, frame = writer.e, writer.frame
    layers = e.place(frame["layers"])
    parts = [LayerWriter(writer, kind) for kind in writer.kind.layers]
    resumes = e.builder.icmp_signed("!=", frame["added"], I64(0))
    with e.loop(frame["first_layer"], frame["end_layer"]) as layer:
        table = e.row(layers, layer, len(LAYER))
        own = writer.entries(table, LAYER)
        for i, part in enumerate(parts):
            with e.when(e.is_equal(own["kind"], i)):
                part.measure(layer, own)
                if not part.kind.has_experts:
                    part.write()
                    continue
                is_begun = e.both(resumes, e.is_equal(layer, frame["first_layer"]))
                with e.builder.if_else(is_begun) as (begun, new):
                    with begun:
                        part.add_experts()
                    with new:
                        part.write()
        writer.noted.set(e.sum(writer.noted.get(), e.builder.zext(writer.is_kept(layer)[0], I64)))
