// Which float tensors of a file are parameters, and which are constants.

#ifndef CLEAVE_LIB_IMPORT_ONNX_CLASSIFY_H
#define CLEAVE_LIB_IMPORT_ONNX_CLASSIFY_H

#include "Model.h"

#include "cleave/Import/ONNX/Import.h"

#include <map>
#include <set>

namespace cleave::importer {

/// Why a float tensor is no parameter.
enum class ConstantKind {
  OneElement,
  /// A tensor of one element that may be a parameter; the file does not say.
  OpenNumber,
  /// The tensor is only combined with tensors derived from shapes and
  /// positions, such as the frequencies of rotary positions.
  Positions,
  /// The tensor has no gradient, such as a triangle of ones that is compared
  /// with 0.
  NoGradient,
  Mask,
  /// Sinusoids or lines along the positions, which are read by position.
  PositionTable,
  /// The file says that a module holds it as a buffer of its state_dict.
  Buffer,
  /// The file says that it is a constant of the code, or a buffer that no
  /// state_dict has: checkpoints lack it, too.
  Fixed,
};

using Constants = std::map<std::string, ConstantKind>;

/// Float initializers that are never trained. `tokens` names the input whose
/// values are no positions. What the file calls a parameter is one, unless no
/// gradient reaches it. What `options.trainable` names is still a
/// parameter, and what has no dimensions and is frozen a number.
Constants findConstants(Model &model, llvm::StringRef tokens,
                        const ImportOptions &options);

/// What a tensor of one element is. `Open`: it is added to, or scales, what a
/// parameter computes, and nothing tells it from a number that a program wrote.
enum class Reading { Number, Open, Scale, Weight };

/// Tensors of one element that are not surely numbers. Weights are so by the
/// operand that they are. What is added to, or scales, what a parameter
/// computes is a Scale if it has dimensions, or the file has its numbers in
/// nodes, or says that it is a part of a module. `byUse`: tensors of several
/// elements that are constants.
std::map<std::string, Reading> readingsOfOneElement(Model &model,
                                                    const Constants &byUse);

/// Parameters that look like buffers: they shift or scale an input of the
/// graph, or hold what is computed from positions.
std::vector<std::string> likelyBuffers(Model &model,
                                       const Constants &constants);

/// Parameters by the file's word whose elements are those of a mask or of a
/// table of positions: a program may have frozen them, which no file says.
std::set<std::string> likelyFixed(Model &model, llvm::StringRef tokens,
                                  const ImportOptions &options);

/// Constants of several elements that modules may learn: the file says nothing
/// of them, and a rule decided. Not those that are surely fixed: causal masks,
/// and what is called as modules call their tables.
std::vector<std::string> likelyParameters(Model &model,
                                          const Constants &constants);

/// Float initializers [C, 1, ...], C not last, that are only added or
/// multiplied: gains and biases of channels, which modules store as vectors.
std::set<std::string> channelVectors(const Model &model);

/// An initializer that several nodes read as a whole.
struct MergedTensor {
  std::string name;
  int uses;
};

/// Float initializers that may stand for several parameters each. Not those of
/// which the file says that they are one, nor a table that is also the matrix
/// of products.
std::vector<MergedTensor> mergedTensors(const Model &model);

/// Whether a node reads only a part of the tensor, or its shape.
bool readsPart(const ::onnx::NodeProto &node);

llvm::StringRef spell(ConstantKind kind);

/// Whether a tensor of one element is called as modules call their parameters
/// (h.0.attn.scale), where exporters number the constants that they fold.
bool isNamedLikeParameter(llvm::StringRef name);

/// Whether exporters call numbers so: val_3, scalar_tensor_default,
/// onnx::Mul_7, model/mul/y, c0, 12. Not what tf2onnx reads from a variable.
bool isNamedLikeNumber(llvm::StringRef name);

/// Whether an exporter computed the tensor from what may be a tensor of a
/// module.
bool isFoldedFromTensor(const Metadata &notes, llvm::StringRef name);

/// Whether the node's result is piecewise constant, so that its gradient is
/// zero.
bool stopsGradient(const ::onnx::NodeProto &node);

/// Whether the operator only moves the elements of its first input.
bool movesFirstInput(llvm::StringRef op);

/// Whether the elements are 0 and one large negative number, or 0 and 1, both
/// of them present, in at least two dimensions: what no training ends in.
bool holdsMask(Model &model, const TensorRef &tensor);

/// Whether every column along some dimension is a sinusoid or a line of its
/// index, and not all of them are constant: what no training ends in.
bool holdsPositions(Model &model, const TensorRef &tensor);

} // namespace cleave::importer

#endif
