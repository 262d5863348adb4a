// The row of a table that a lookup of PyTorch keeps from training.

#ifndef CLEAVE_LIB_IMPORT_ONNX_FROZENROW_H
#define CLEAVE_LIB_IMPORT_ONNX_FROZENROW_H

#include <cstdint>
#include <optional>

namespace onnx {
class NodeProto;
} // namespace onnx

namespace cleave::importer {

/// Returns the row of a table that gets no gradient from this lookup: the
/// argument `padding_idx` of PyTorch's embedding, which ONNX's Gather has not,
/// but the node's metadata. nullopt if there is none.
std::optional<int64_t> frozenRowOf(const ::onnx::NodeProto &node);

} // namespace cleave::importer

#endif
