// cleave import: converts an ONNX model to IR of the nn dialect, or prints a
// summary of it.

#include "Diagnostics.h"
#include "commands/Commands.h"

#include "cleave/Compiler/Dialects.h"
#include "cleave/Compiler/Import.h"
#include "cleave/Dialect/NN/IR/Batch.h"
#include "cleave/Dialect/NN/IR/Parts.h"
#include "cleave/Import/ONNX/CheckTensors.h"
#include "cleave/io/File.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <iostream>
#include <memory>

using namespace cleave;
using namespace cleave::driver;

namespace {

struct Row {
  std::string name, role, type, note;
};

std::string shapeOf(mlir::Type type) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  auto tensor = llvm::cast<mlir::RankedTensorType>(type);
  stream << tensor.getElementType() << "[";
  llvm::interleaveComma(tensor.getShape(), stream);
  stream << "]";
  return text;
}

void print(const std::string &title, const std::vector<Row> &rows) {
  if (rows.empty())
    return;
  size_t width = 0, typeWidth = 0;
  for (const Row &row : rows) {
    width = std::max(width, row.name.size());
    typeWidth = std::max(typeWidth, row.type.size());
  }
  std::cout << title << "\n";
  for (const Row &row : rows) {
    std::string line = "  " + row.name +
                       std::string(width - row.name.size(), ' ') + "  " +
                       row.type;
    if (!row.note.empty())
      line += std::string(typeWidth - row.type.size(), ' ') + "  " + row.note;
    std::cout << line << "\n";
  }
}

// Inputs, outputs and parameters.
void summariseArguments(mlir::ModuleOp module) {
  auto function = module.lookupSymbol<mlir::func::FuncOp>(nn::kForwardFunc);
  std::vector<Row> parameters, inputs, outputs;
  int64_t elements = 0;
  for (unsigned i = 0; i < function.getNumArguments(); ++i) {
    mlir::DictionaryAttr attributes = function.getArgAttrDict(i);
    mlir::Type type = function.getArgumentTypes()[i];
    std::optional<nn::Role> role = nn::roleOf(attributes);
    Row row{nn::nameOf(attributes).str(), nn::spell(role).str(), shapeOf(type),
            ""};
    if (role == nn::Role::Constant || attributes.contains(nn::kFrozenAttr))
      continue; // listed with those that the IR holds
    if (role == nn::Role::Parameter)
      elements += llvm::cast<mlir::RankedTensorType>(type).getNumElements();
    if (nn::ViewAttr view = nn::viewOf(attributes)) {
      llvm::raw_string_ostream stream(row.note);
      stream << "stored as [";
      llvm::interleaveComma(view.getShape().asArrayRef(), stream);
      stream << "]";
    }
    if (llvm::SmallVector<llvm::StringRef, 1> parts =
            nn::fileNamesOf(attributes);
        parts.size() > 1)
      row.note += (row.note.empty() ? "with " : ", with ") +
                  llvm::join(llvm::drop_begin(parts), ", ");
    for (llvm::StringRef other : nn::tiedNamesOf(attributes))
      row.note += (row.note.empty() ? "tied to " : ", tied to ") + other.str();
    if (role != nn::Role::Parameter)
      row.note = row.role + (row.note.empty() ? "" : ", " + row.note);
    (role == nn::Role::Parameter ? parameters : inputs).push_back(row);
  }
  for (unsigned i = 0; i < function.getNumResults(); ++i)
    outputs.push_back({nn::resultNameOf(function, i).str(), "",
                       shapeOf(function.getResultTypes()[i]), ""});
  print("inputs", inputs);
  print("outputs", outputs);
  print("parameters (" + std::to_string(elements) + " elements)", parameters);
}

void summariseOperations(mlir::ModuleOp module) {
  auto function = module.lookupSymbol<mlir::func::FuncOp>(nn::kForwardFunc);
  std::map<std::string, int64_t> counts;
  function.walk([&](mlir::Operation *op) {
    if (op != function.getOperation() &&
        !op->hasTrait<mlir::OpTrait::IsTerminator>())
      ++counts[op->getName().getStringRef().str()];
  });
  std::vector<Row> operations;
  for (const auto &[name, count] : counts)
    operations.push_back({name, "", std::to_string(count), ""});
  print("operations", operations);
}

std::vector<Row> rowsOf(const std::vector<TensorSummary> &tensors) {
  std::vector<Row> rows;
  for (const TensorSummary &tensor : tensors)
    rows.push_back({tensor.name, "",
                    tensor.type + "[" + llvm::join(tensor.shape, ", ") + "]",
                    tensor.note});
  return rows;
}

void printConstants(const FileSummary &file) {
  print("constants (name one in train.trainable to train it)",
        rowsOf(file.constants));
}

// These two functions summarise an ONNX file: the first prints its tensors and
// nodes, the second its symbolic dimensions, bound or not.
void summarise(const FileSummary &file) {
  print("inputs", rowsOf(file.inputs));
  print("outputs", rowsOf(file.outputs));
  print("parameters (" + std::to_string(file.elements) + " elements)",
        rowsOf(file.parameters));
  printConstants(file);
  std::cout << file.nodes << " nodes\n";
}

void summarise(const std::vector<DimSummary> &dims, const Config &config) {
  std::vector<Row> rows;
  for (const DimSummary &dim : dims) {
    auto bound = config.dims.find(dim.name);
    rows.push_back({dim.name.empty() ? "(no name)" : dim.name, "",
                    bound == config.dims.end()
                        ? "unbound"
                        : "= " + std::to_string(bound->second),
                    dim.where});
  }
  print("dimensions (set with --set dims.NAME=SIZE; batch and sequence also "
        "name those of the tokens)",
        rows);
}

} // namespace

std::function<int()> driver::addImport(CLI::App &app) {
  struct Options : CommonOptions {
    std::string model, output;
    bool summary = false;
  };
  auto options = std::make_shared<Options>();
  app.add_option("model", options->model, "the ONNX file")
      ->type_name("MODEL.onnx")
      ->required();
  app.add_option("-o,--output", options->output, "where to write the IR")
      ->type_name("FILE");
  app.add_flag("--summary", options->summary,
               "print inputs, dimensions, outputs and parameters instead; "
               "operations too, once all dimensions are bound");
  addConfigFlags(app, *options);
  addBindFlag(app, *options);
  addDumpFlag(app);
  return [options] {
    LoadedConfig loaded = loadConfigOrFail(*options);
    refuseBookedTypes(loaded.config);
    if (!options->output.empty())
      protectInputs(options->output, options->model, *options, loaded.config);
    mlir::MLIRContext context;
    compiler::loadDialects(context);
    FileSummary summary;
    if (options->summary) {
      Diagnostics diagnostics(context);
      const ImportOptions imports =
          diagnostics.need(compiler::importOptions(loaded.config, &context));
      diagnostics.need(checkTensors(options->model, context, imports));
      summary =
          diagnostics.need(summarizeOnnx(options->model, context, imports));
      summarise(summary.dims, loaded.config);
      bool bound = loaded.config.dims.count("batch") &&
                   loaded.config.dims.count("sequence");
      if (!bound && llvm::any_of(summary.dims, [&](const DimSummary &dim) {
            return !loaded.config.dims.count(dim.name);
          })) {
        summarise(summary);
        if (!summary.unsupported.empty())
          throw Failure(BadUsage, std::vector{options->model + ": " +
                                              summary.unsupported});
        return Success;
      }
    }
    mlir::OwningOpRef<mlir::ModuleOp> module;
    try {
      Diagnostics diagnostics(context);
      module = diagnostics.need(
          compiler::importModel(options->model, loaded.config, context,
                                std::nullopt, /*readWeights=*/false));
    } catch (const Failure &) {
      if (options->summary)
        summarise(summary); // of the file alone
      throw;
    }
    if (options->summary) {
      summariseArguments(*module);
      printConstants(summary);
      summariseOperations(*module);
    }
    if (options->summary && options->output.empty())
      return Success;
    (*module)->removeAttr(kGraphDigestAttr); // of the file, not of this program
    std::string text;
    llvm::raw_string_ostream stream(text);
    mlir::OpPrintingFlags flags;
    flags.enableDebugInfo(!options->output.empty());
    module->print(stream, flags);
    text += "\n";
    if (options->output.empty())
      std::cout << text;
    else
      writeFileAtomically(options->output, text);
    return Success;
  };
}
