// From a model file and a configuration to nn IR.

#ifndef CLEAVE_COMPILER_IMPORT_H
#define CLEAVE_COMPILER_IMPORT_H

#include "cleave/Config/Load.h"
#include "cleave/Import/ONNX/Import.h"

#include "mlir/IR/MLIRContext.h"

namespace cleave::compiler {

/// The importer's options as the configuration gives them. `batch` is the
/// number of samples that one call sees; where it is not given, dims.batch.
mlir::FailureOr<ImportOptions>
importOptions(const Config &config, mlir::MLIRContext *context,
              std::optional<int64_t> batch = std::nullopt,
              bool requireData = false);

/// Options that have the limits of the configuration alone.
ImportOptions limitsOf(const Config &config);

/// Imports an ONNX file and brings it to compact nn IR. Weights that are stored
/// twice are tied. With `readWeights`, missing bytes of weights are an error.
mlir::FailureOr<mlir::OwningOpRef<mlir::ModuleOp>>
importModel(const std::string &path, const Config &config,
            mlir::MLIRContext &context, std::optional<int64_t> batch,
            bool readWeights);

/// What a model is loaded for.
struct LoadOptions {
  bool readWeights = false; ///< missing bytes of weights are an error
  /// The program is to be compiled; what can only be interpreted is refused.
  bool compiles = true;
  /// @loss is derived next, so what it asks of other numbers of samples is
  /// imported, too.
  bool trains = false;
};

/// An .onnx file imported, or an .mlir file read. It has a @forward.
mlir::FailureOr<mlir::OwningOpRef<mlir::ModuleOp>>
loadModel(const std::string &path, const Config &config,
          mlir::MLIRContext &context, const LoadOptions &options);

/// What is checked and marked of a model in .mlir once it is parsed; `path`
/// stands for it in messages.
mlir::LogicalResult prepareModel(mlir::ModuleOp module, const std::string &path,
                                 const Config &config, bool compiles);

/// The files that a model consists of: the ONNX file and those of its external
/// data, or the .mlir file.
mlir::FailureOr<std::vector<std::string>>
filesOfModel(const std::string &path, const Config &config,
             mlir::MLIRContext &context);

/// Inputs for which the .npz file `arrays` has an array are read from it even
/// where the configuration makes them up (a mask of ones), so that the graph
/// keeps them. Symbolic dimensions of an ONNX model that the configuration
/// leaves open get the sizes of the arrays.
mlir::LogicalResult bindGivenInputs(Config &config, const std::string &model,
                                    const std::string &arrays,
                                    mlir::MLIRContext &context);

/// Inputs that only defaults make up (a mask of ones) are read from the data
/// that a model is trained on, an .npz file or a folder of .npy files, where it
/// has an array of their name.
mlir::LogicalResult bindDataInputs(LoadedConfig &loaded,
                                   const std::string &model,
                                   const std::string &data,
                                   mlir::MLIRContext &context);

} // namespace cleave::compiler

#endif // CLEAVE_COMPILER_IMPORT_H
