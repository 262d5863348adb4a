// One step of a recurrent layer: its activation functions, and the operations
// on its gates.

#ifndef CLEAVE_LIB_IMPORT_ONNX_RECURRENT_H
#define CLEAVE_LIB_IMPORT_ONNX_RECURRENT_H

#include "Families.h"

#include "cleave/Interfaces/TensorExpr.h"

namespace cleave::importer {

/// An activation function of a recurrent layer.
struct Activation {
  std::string name;
  double alpha = 0, beta = 0;
};

/// An activation function: the defaults of its parameters (nullopt for a
/// parameter that it does not have), and the function that emits it.
struct ActivationRule {
  llvm::StringRef name;
  std::optional<double> alpha, beta;
  mlir::Value (*emit)(TensorExpr &e, mlir::Value x, const Activation &of);
};

/// Returns the activation function of this name, ignoring case, or null.
const ActivationRule *ruleOf(llvm::StringRef name);
/// The names of all functions, for messages.
std::string activationNames();

/// Emits the operations of one step of a recurrent layer. A state has shape [B,
/// H] (samples, features), the values of all gates [B, G, H].
class Cell : public TensorExpr {
public:
  Cell(mlir::OpBuilder &builder, mlir::Location loc,
       llvm::ArrayRef<Activation> activations, double clip, int64_t hidden)
      : TensorExpr(builder, loc), activations(activations), clip(clip),
        hidden(hidden) {}

  /// Returns the products of a state with the matrices of all gates: [B, H] and
  /// [G, H, H] give [B, G, H].
  mlir::Value product(mlir::Value state, mlir::Value matrices);
  /// Returns one gate: [B, G, H] gives [B, H].
  mlir::Value gate(mlir::Value gates, int64_t index);
  /// Broadcasts row `index` of [G, H] to the shape of a state.
  mlir::Value alongSamples(mlir::Value rows, int64_t index, mlir::Value state);
  /// Applies activation function `index`. If the layer has a clip threshold and
  /// `clips` is true, the operand is clipped first.
  mlir::Value apply(size_t index, mlir::Value value, bool clips = true);

private:
  llvm::ArrayRef<Activation> activations;
  double clip;
  int64_t hidden;
};

} // namespace cleave::importer

#endif
