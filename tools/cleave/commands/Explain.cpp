// cleave explain: shows memory, communication and kernels of a step, without
// running it and without reading weights.

#include "Diagnostics.h"
#include "commands/Commands.h"

#include "cleave/Compiler/Compiler.h"
#include "cleave/Explain/Explain.h"

#include <iostream>
#include <memory>

using namespace cleave;
using namespace cleave::driver;

std::function<int()> driver::addExplain(CLI::App &app) {
  struct Options : CommonOptions {
    std::string model;
    bool json = false, remarks = false;
  };
  auto options = std::make_shared<Options>();
  app.add_option("model", options->model, "an ONNX file, or nn IR")
      ->type_name("MODEL")
      ->required();
  app.add_flag("--json", options->json, "print JSON");
  app.add_flag("--remarks", options->remarks,
               "also say what the compiler decided and why");
  addConfigFlags(app, *options);
  addBindFlag(app, *options);
  addDumpFlag(app);
  addRanksFlag(app, *options);
  return [options] {
    LoadedConfig loaded = loadConfigOrFail(*options);
    Mesh mesh = resolveMeshOrFail(loaded.config, *options, options->model);
    warnOfIdleKeys(loaded, mesh);
    mlir::MLIRContext context;
    compiler::CompilerOptions purpose;
    purpose.purpose = compiler::Purpose::Explain;
    purpose.allRemarks = options->remarks;
    compiler::Compiler compiler(context, loaded.config, mesh, purpose);
    std::vector<std::string> remarks;
    compiler::Lowered lowered = [&] {
      Diagnostics diagnostics(context, &remarks);
      return diagnostics.need(compiler.lower(options->model));
    }();
    Diagnostics diagnostics(context);
    const TrainConfig &train = loaded.config.train;
    auto width = [](const std::string &type) { return type == "bf16" ? 2 : 4; };
    Booking booking;
    booking.gradient =
        width(train.gradDtype.empty() ? train.precision : train.gradDtype);
    // If train.master_dtype is bf16 there are no master copies: the optimizer
    // updates the bf16 weights themselves.
    if (train.masterDtype == "bf16")
      booking.master = 0;
    auto memory = footprintsOf(lowered.program, *lowered.module, booking);
    Explanation explanation = diagnostics.need(explain(
        lowered.program, *lowered.module, diagnostics.need(std::move(memory)),
        lowered.info.microbatches,
        diagnostics.need(compiler::clusterOf(loaded.config, &context))));
    if (lowered.info.batch)
      explanation.batch = lowered.info.batch;
    bookCollectives(explanation, train.reduceDtype);
    explanation.remarks = remarks;
    std::string text;
    llvm::raw_string_ostream out(text);
    if (options->json)
      writeExplanationJson(explanation, out);
    else
      writeExplanation(explanation, out);
    std::cout << text;
    return Success;
  };
}
