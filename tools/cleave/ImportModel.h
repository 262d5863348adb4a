// What the commands that read a model share: the importer's options as the
// configuration gives them.

#ifndef CLEAVE_TOOLS_IMPORTMODEL_H
#define CLEAVE_TOOLS_IMPORTMODEL_H

#include "Command.h"
#include "Diagnostics.h"

#include "cleave/Import/ONNX/Import.h"

#include "mlir/IR/MLIRContext.h"

namespace cleave::driver {

// All dialects and interface models that the driver needs.
void registerAll(mlir::MLIRContext &context);

// The options that the configuration asks for. `batch` is the number of samples
// that one call sees; where it is not given, dims.batch.
ImportOptions importOptions(const Config &config,
                            std::optional<int64_t> batch = std::nullopt,
                            bool requireData = false);

// Options that have the limits of the configuration alone.
ImportOptions limitsOf(const Config &config);

// Inputs for which the .npz file `arrays` has an array are read from it even
// where the configuration makes them up (a mask of ones), so that the graph
// keeps them. Symbolic dimensions of an ONNX model that the configuration
// leaves open get the sizes of the arrays. Throws Error for a file that is
// none.
void bindGivenInputs(Config &config, const std::string &model,
                     const std::string &arrays);

// Inputs that only defaults make up (a mask of ones) are read from the data
// that a model is trained on, an .npz file or a folder of .npy files, where it
// has an array of their name.
void bindDataInputs(LoadedConfig &loaded, const std::string &model,
                    const std::string &data);

// Refuses an output that is the model, a file of its weights, the configuration
// or a file that it names. To be called before anything is written.
void protectInputs(const std::string &output, const std::string &model,
                   const CommonOptions &options, const Config &config);

// Imports an ONNX file and brings it to compact nn IR. Fails with BadUsage.
// Weights that are stored twice are tied. With `readWeights`, missing bytes of
// weights are an error. `isQuiet`: remarks and warnings were told before.
mlir::OwningOpRef<mlir::ModuleOp>
importModel(const std::string &path, const Config &config,
            mlir::MLIRContext &context, std::optional<int64_t> batch,
            bool readWeights, bool isQuiet = false);

} // namespace cleave::driver

#endif // CLEAVE_TOOLS_IMPORTMODEL_H
