// Imports a model file, with the options of a configuration, to nn IR.

#ifndef CLEAVE_COMPILER_IMPORT_H
#define CLEAVE_COMPILER_IMPORT_H

#include "cleave/Config/Load.h"
#include "cleave/Import/ONNX/Import.h"

#include "mlir/IR/MLIRContext.h"

namespace cleave::compiler {

/// Returns the importer's options for the configuration. `batch` is the number
/// of samples that one call of @forward processes; the default is the key
/// dims.batch.
mlir::FailureOr<ImportOptions>
importOptions(const Config &config, mlir::MLIRContext *context,
              std::optional<int64_t> batch = std::nullopt,
              bool requireData = false);

/// Returns importer options with the limits that the configuration sets, and
/// defaults for everything else.
ImportOptions limitsOf(const Config &config);

/// Imports an ONNX file and simplifies it to compact nn IR. Weights that are
/// stored twice become one tied parameter. With `readWeights`, missing bytes of
/// weights are an error.
mlir::FailureOr<mlir::OwningOpRef<mlir::ModuleOp>>
importModel(const std::string &path, const Config &config,
            mlir::MLIRContext &context, std::optional<int64_t> batch,
            bool readWeights);

/// Options for loading a model.
struct LoadOptions {
  bool readWeights = false; ///< missing bytes of weights are an error
  /// True if the model will be compiled. Operations that can only be
  /// interpreted are then an error.
  bool compiles = true;
  /// True if @loss will be derived from the model. If this needs versions of
  /// @forward for other batch sizes, these are imported as well.
  bool trains = false;
};

/// Imports an .onnx file, or reads an .mlir file. The result has a @forward.
mlir::FailureOr<mlir::OwningOpRef<mlir::ModuleOp>>
loadModel(const std::string &path, const Config &config,
          mlir::MLIRContext &context, const LoadOptions &options);

/// Checks a parsed .mlir model and sets the attributes that later phases need.
/// Messages name the model by `path`.
mlir::LogicalResult prepareModel(mlir::ModuleOp module, const std::string &path,
                                 const Config &config, bool compiles);

/// Returns the files that a model consists of: the ONNX file and its files of
/// external data, or the .mlir file.
mlir::FailureOr<std::vector<std::string>>
filesOfModel(const std::string &path, const Config &config,
             mlir::MLIRContext &context);

/// `arrays` is an .npz file. Binds each input of the model to the array of the
/// same name, if there is one. This includes inputs that the configuration
/// generates (such as a mask of ones), so that they remain inputs of the graph.
/// If the configuration does not set a symbolic dimension of an ONNX model, the
/// dimension gets its size from the arrays.
mlir::LogicalResult bindGivenInputs(Config &config, const std::string &model,
                                    const std::string &arrays,
                                    mlir::MLIRContext &context);

/// `data` is the training data: an .npz file or a folder of .npy files. Some
/// inputs are generated only because of a default (such as a mask of ones). If
/// the data has an array with the name of such an input, binds the input to
/// this array.
mlir::LogicalResult bindDataInputs(LoadedConfig &loaded,
                                   const std::string &model,
                                   const std::string &data,
                                   mlir::MLIRContext &context);

} // namespace cleave::compiler

#endif // CLEAVE_COMPILER_IMPORT_H
