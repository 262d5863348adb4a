// Decides which float tensors of an ONNX file are parameters and which are
// constants.

#ifndef CLEAVE_LIB_IMPORT_ONNX_CLASSIFY_H
#define CLEAVE_LIB_IMPORT_ONNX_CLASSIFY_H

#include "Model.h"

#include "cleave/Import/ONNX/Import.h"

#include <map>
#include <set>

namespace cleave::importer {

/// The reason why a float tensor of the ONNX file is a constant, not a
/// parameter.
enum class ConstantKind {
  OneElement,
  /// A tensor with one element. The ONNX file does not say whether it is a
  /// parameter.
  OpenNumber,
  /// The tensor is only combined with tensors derived from shapes and
  /// positions, as the frequencies of rotary position embeddings are.
  Positions,
  /// The tensor gets no gradient. An example is a triangle of ones that is only
  /// compared with 0.
  NoGradient,
  Mask,
  /// The tensor is a table of position encodings that is indexed by position.
  /// As a function of the position, its elements form sinusoids (as in
  /// sinusoidal encodings) or straight lines (as the angles of rotary position
  /// embeddings, or the biases of ALiBi).
  PositionTable,
  /// The ONNX file says that the tensor is a buffer in a module's state_dict.
  Buffer,
  /// The ONNX file says that the tensor is a constant of the model's source
  /// code, or a buffer that is not in the state_dict. In both cases,
  /// checkpoints do not have the tensor.
  Fixed,
};

using Constants = std::map<std::string, ConstantKind>;

/// Returns the float initializers that are never trained. `tokens` names the
/// graph input with the token ids. All other integer inputs are taken for
/// positions, and a tensor that is only combined with positions is a constant.
/// If the ONNX file declares a tensor as a parameter, the tensor is not in the
/// result, unless it gets no gradient. Tensors that `options.trainable` names
/// are never in the result. A frozen tensor of rank 0 is taken for a literal
/// number of the model's source code, so it is in the result.
Constants findConstants(Model &model, llvm::StringRef tokens,
                        const ImportOptions &options);

/// What a tensor with one element is: a literal number of the model's source
/// code (such as an epsilon), a learned scale, or a weight. It is `Open` if it
/// is multiplied with, or added to, a value that is computed from parameters,
/// and the ONNX file does not tell whether it is a literal number or a
/// parameter.
enum class Reading { Number, Open, Scale, Weight };

/// Returns the tensors with one element that may be parameters. A tensor is a
/// Weight if it is the weight operand of its operation. If it is added to, or
/// scales, a value that is computed from parameters, it is a Scale or Open. It
/// is a Scale if one of these facts shows that it is no literal number of the
/// model's source code:
/// - it has dimensions, which literal numbers do not have;
/// - the file stores literal numbers in Constant nodes, not in initializers;
/// - the file says that the tensor belongs to a module.
/// `byUse` has the tensors with several elements that are constants.
std::map<std::string, Reading> readingsOfOneElement(Model &model,
                                                    const Constants &byUse);

/// Returns the parameters that look like buffers: they shift or scale an input
/// of the graph, or hold values that are computed from positions.
std::vector<std::string> likelyBuffers(Model &model,
                                       const Constants &constants);

/// Returns the tensors that the ONNX file declares as parameters, but whose
/// elements look like those of a mask or of a table of positions. The program
/// may have frozen them, which files do not record.
std::set<std::string> likelyFixed(Model &model, llvm::StringRef tokens,
                                  const ImportOptions &options);

/// Returns the tensors with several elements that are taken for constants
/// although a module may train them: the ONNX file does not say whether they
/// are parameters, so their uses and elements decided. Excluded are tensors
/// that are certainly not trained, such as causal masks, and tensors whose
/// names are usual for buffers, such as inv_freq.
std::vector<std::string> likelyParameters(Model &model,
                                          const Constants &constants);

/// Returns the float initializers that are only added or multiplied, and whose
/// only dimension of a size other than 1 is not the last, such as [C, 1, 1].
/// They are per-channel gains and biases, which modules store as vectors.
std::set<std::string> channelVectors(const Model &model);

/// An initializer that several nodes read entirely.
struct MergedTensor {
  std::string name;
  int uses;
};

/// Returns the float initializers that may each have been several equal
/// parameters, which the exporter merged. Excluded are initializers that the
/// ONNX file declares as one parameter, and embedding tables that are also the
/// matrix of an output projection (tied weights).
std::vector<MergedTensor> mergedTensors(const Model &model);

/// Returns whether a node reads only a part of the tensor, or only its shape.
bool readsPart(const ::onnx::NodeProto &node);

llvm::StringRef spell(ConstantKind kind);

/// Returns whether the name of a tensor with one element looks like the path of
/// a parameter in the module tree, such as h.0.attn.scale. Constants that
/// exporters fold have other names, such as val_3.
bool isNamedLikeParameter(llvm::StringRef name);

/// Returns whether the name is one that exporters give to literal numbers:
/// val_3, scalar_tensor_default, onnx::Mul_7, model/mul/y, c0, 12. Names that
/// tf2onnx takes from variables do not count.
bool isNamedLikeNumber(llvm::StringRef name);

/// Returns whether an exporter computed this tensor from tensors that may
/// belong to a module.
bool isFoldedFromTensor(const Metadata &notes, llvm::StringRef name);

/// Returns whether the node's result is piecewise constant, so that its
/// gradient is zero.
bool stopsGradient(const ::onnx::NodeProto &node);

/// Returns whether the operator only moves the elements of its first input.
bool movesFirstInput(llvm::StringRef op);

/// Returns whether the tensor has at least two dimensions and exactly two
/// different elements: 0 and a large negative number, or 0 and 1. Training does
/// not produce such tensors.
bool holdsMask(Model &model, const TensorRef &tensor);

/// Returns whether every column along some dimension is a sinusoid or a linear
/// function of its index, and not all columns are constant. Training does not
/// produce such tensors.
bool holdsPositions(Model &model, const TensorRef &tensor);

} // namespace cleave::importer

#endif
