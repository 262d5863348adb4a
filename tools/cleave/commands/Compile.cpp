// cleave compile: compiles a model with a configuration to a folder for
// cleave-run, or writes the IR after one of the phases.

#include "Diagnostics.h"
#include "commands/Commands.h"

#include "cleave/Compiler/Compiler.h"
#include "cleave/Compiler/Import.h"
#include "cleave/io/Bundle.h"
#include "cleave/io/File.h"

#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/raw_ostream.h"

#include <filesystem>
#include <iostream>
#include <memory>

using namespace cleave;
using namespace cleave::driver;
using compiler::Compiler;
using compiler::Phase;

static std::optional<Phase> phaseNamed(const std::string &name) {
  return llvm::StringSwitch<std::optional<Phase>>(name)
      .Case("import", Phase::Import)
      .Case("train", Phase::Train)
      .Case("shard", Phase::Shard)
      .Case("kernels", Phase::Kernels)
      .Case("schedule", Phase::Schedule)
      .Case("memory", Phase::Memory)
      .Default(std::nullopt);
}

static void writePhase(const std::string &model, const Config &config,
                       const Mesh &mesh, Phase phase,
                       const std::string &output) {
  mlir::MLIRContext context;
  Diagnostics diagnostics(context);
  Compiler compiler(context, config, mesh);
  mlir::OwningOpRef<mlir::ModuleOp> module =
      diagnostics.need(compiler.runUpTo(model, phase));
  std::string text;
  llvm::raw_string_ostream stream(text);
  module->print(stream, mlir::OpPrintingFlags().enableDebugInfo());
  if (output == "-")
    std::cout << text << std::flush;
  else
    writeFileAtomically(output, text);
}

static void writeFolder(const std::string &model, const Config &config,
                        const Mesh &mesh, const std::string &folder) {
  mlir::MLIRContext context;
  Diagnostics diagnostics(context);
  Compiler compiler(context, config, mesh);
  diagnostics.need(compiler.compile(model, folder));
}

// Writes an executable: the cleave-run beside this program, followed by the
// files of the program's folder.
static void writeExecutable(const std::string &model, const Config &config,
                            const Mesh &mesh, const std::string &output) {
  checkOutputPath(output);
  // An existing file is replaced if it is empty, because mktemp creates an
  // empty file, or if it is an earlier executable of cleave.
  if (std::error_code error;
      std::filesystem::exists(output, error) &&
      !(std::filesystem::is_regular_file(output, error) &&
        (std::filesystem::is_empty(output, error) || carriesBundle(output))))
    throw Failure(BadUsage, output + ": exists and is no executable of "
                                     "`--emit exe`; give another -o");
  std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe");
  AtomicFolder parts(output + ".parts"); // never committed
  std::string folder = parts.path() + "/program";
  writeFolder(model, config, mesh, folder);
  std::vector<std::string> others;
  std::filesystem::path mpi =
      self.parent_path().parent_path() / "lib" / carriedMpiLibrary;
  if (std::filesystem::exists(mpi))
    others.push_back(mpi.string());
  writeBundle((self.parent_path() / "cleave-run").string(), folder, others,
              output);
}

std::function<int()> driver::addCompile(CLI::App &app) {
  struct Options : CommonOptions {
    std::string model, output, emit = "folder";
  };
  auto options = std::make_shared<Options>();
  app.add_option("model", options->model, "an ONNX file, or nn IR")
      ->type_name("MODEL")
      ->required();
  app.add_option("-o,--output", options->output,
                 "the folder, or the file of IR, to write; -: IR on standard "
                 "output")
      ->type_name("PATH")
      ->required();
  app.add_option("--emit", options->emit,
                 "folder (default); exe: one executable that carries it; a "
                 "phase: the IR after it")
      ->type_name("folder|exe|import|train|shard|kernels|schedule|memory");
  addConfigFlags(app, *options);
  addBindFlag(app, *options);
  addDumpFlag(app);
  addRanksFlag(app, *options);
  return [options] {
    std::optional<Phase> phase = phaseNamed(options->emit);
    bool isExe = options->emit == "exe";
    if (!phase && !isExe && options->emit != "folder")
      throw Failure(BadUsage,
                    "--emit " + options->emit +
                        ": expected folder, exe, import, train, shard, "
                        "kernels, schedule or memory");
    if (!phase && options->output == "-")
      throw Failure(BadUsage, "-o -: only IR is written to standard output; "
                              "name a " +
                                  std::string(isExe ? "file" : "folder"));
    if (isExe && std::filesystem::is_directory(options->output))
      throw Failure(BadUsage, options->output + " is a folder; --emit exe "
                                                "writes a file");
    LoadedConfig loaded = loadConfigOrFail(*options);
    refuseBookedTypes(loaded.config);
    Mesh mesh = resolveMeshOrFail(loaded.config, *options, options->model);
    warnOfIdleKeys(loaded, mesh);
    if (std::error_code error;
        std::filesystem::exists(loaded.config.data.path, error))
      bindDataInputs(loaded, options->model, loaded.config.data.path);
    if (phase || isExe)
      protectInputs(options->output, options->model, *options, loaded.config);
    if (phase) {
      writePhase(options->model, loaded.config, mesh, *phase, options->output);
      return Success;
    }
    if (isExe)
      writeExecutable(options->model, loaded.config, mesh, options->output);
    else
      writeFolder(options->model, loaded.config, mesh, options->output);
    return Success;
  };
}
