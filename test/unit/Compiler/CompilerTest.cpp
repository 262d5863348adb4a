// The compiler as a library: its phases, errors as diagnostics, no output to
// stdout and stderr, and two compilations at once.

#include "../TestFolder.h"

#include "cleave/Check/Programs.h"
#include "cleave/Check/StoredValues.h"
#include "cleave/Compiler/Compiler.h"
#include "cleave/Compiler/Dialects.h"
#include "cleave/Compiler/Import.h"
#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Explain/Explain.h"
#include "cleave/Support/Messages.h"
#include "cleave/program_io.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "gtest/gtest.h"

#include <fcntl.h>
#include <thread>
#include <unistd.h>

using namespace mlir;
using namespace cleave;
using compiler::Compiler;
using compiler::Phase;

namespace {

/// A two-layer classifier with a hidden size of `width`.
std::string classifier(int width) {
  std::string w = std::to_string(width), xw = "tensor<6x" + w + "xf32>",
              h = "tensor<8x" + w + "xf32>", hv = "tensor<" + w + "x5xf32>";
  return "func.func @forward(%w: " + xw +
         R"( {nn.name = "w", nn.role = #nn.role<parameter>}, %v: )" + hv +
         R"( {nn.name = "v", nn.role = #nn.role<parameter>},
    %x: tensor<8x6xf32> {nn.name = "x", nn.role = #nn.role<input>},
    %labels: tensor<8xi64> {nn.name = "labels", nn.role = #nn.role<labels>})
    -> (tensor<8x5xf32> {nn.name = "logits", nn.role = #nn.role<output>}) {
  %0 = nn.einsum "ab,bc->ac" %x, %w : tensor<8x6xf32>, )" +
         xw + " -> " + h + "\n  %1 = math.tanh %0 : " + h +
         "\n  %2 = nn.einsum \"ab,bc->ac\" %1, %v : " + h + ", " + hv +
         R"( -> tensor<8x5xf32>
  return %2 : tensor<8x5xf32>
}
)";
}

/// A configuration and a mesh with these axes.
struct Job {
  explicit Job(const std::vector<std::pair<std::string, int64_t>> &axes = {}) {
    config.data.labels = "labels";
    for (const auto &[name, size] : axes)
      config.mesh.sizes[name] = size;
    auto resolved = resolveMesh(config, std::nullopt);
    EXPECT_TRUE(bool(resolved)) << resolved.error();
    mesh = *resolved;
    applyMesh(config, mesh);
  }
  Config config;
  Mesh mesh;
};

class CompilerTest : public testing::Test {
protected:
  CompilerTest() {
    folder.write("small.mlir", classifier(4));
    folder.write("large.mlir", classifier(16));
  }

  /// Compiles a model. Returns the bytes of program.bin and kernels.so, or
  /// "failed: " and the error messages.
  std::string compiled(const std::string &model, const Job &setup,
                       const std::string &output) {
    MLIRContext context;
    Messages messages(context);
    Compiler compiler(context, setup.config, setup.mesh);
    if (failed(compiler.compile(folder.path(model), folder.path(output))))
      return "failed: " + llvm::join(messages.errors.lines(), "\n");
    return folder.read(output + "/program.bin") +
           folder.read(output + "/kernels.so");
  }

  /// Returns the text of `cleave explain` for a model.
  static std::string explained(const std::string &path, const Job &setup) {
    MLIRContext context;
    Messages messages(context);
    compiler::CompilerOptions options;
    options.purpose = compiler::Purpose::Explain;
    Compiler compiler(context, setup.config, setup.mesh, options);
    auto lowered = compiler.lower(path);
    if (failed(lowered))
      return "failed: " + llvm::join(messages.errors.lines(), "\n");
    auto memory = footprintsOf(lowered->program, *lowered->module);
    auto cluster = compiler::clusterOf(setup.config, &context);
    if (failed(memory) || failed(cluster))
      return "failed";
    auto explanation =
        explain(lowered->program, *lowered->module, std::move(*memory),
                lowered->info.microbatches, *cluster);
    std::string text;
    llvm::raw_string_ostream out(text);
    if (failed(explanation))
      return "failed";
    writeExplanation(*explanation, out);
    return text;
  }

  /// Returns the report of the exact part of `cleave check`, or "failed: " and
  /// the error messages.
  std::string checked(const std::string &model, const Job &setup) {
    MLIRContext context;
    compiler::loadDialects(context);
    Messages messages(context);
    std::string text;
    if (failed(check(context, folder.path(model), setup, text)))
      return "failed: " + llvm::join(messages.errors.lines(), "\n");
    return text;
  }

  static LogicalResult check(MLIRContext &context, const std::string &path,
                             const Job &setup, std::string &text) {
    compiler::LoadOptions load;
    load.readWeights = load.trains = true;
    auto global = compiler::loadModel(path, setup.config, context, load);
    if (failed(global) || failed(compiler::addLoss(**global, setup.config)) ||
        failed(compiler::addGradients(**global, setup.config,
                                      /*tapGradients=*/true)))
      return failure();
    auto stored = check::storedValues(path, "", "", **global);
    if (failed(stored))
      return failure();
    check::Values values(**global, *stored);
    check::CheckedPrograms asked;
    check::Programs engines(asked, setup.config, setup.mesh, "local");
    auto local = engines.partition(**global);
    if (failed(local))
      return failure();
    auto sharded = engines.sharded(**local, /*wide=*/true),
         reference = engines.reference(**global, /*wide=*/true);
    check::CheckReport report;
    check::NamedTensors first;
    if (failed(sharded) || failed(reference) ||
        failed(check::runExact(**global, **sharded, **reference, values, {},
                               report, first)))
      return failure();
    llvm::raw_string_ostream out(text);
    check::writeText(report, out);
    return success(report.pass());
  }

  test::TestFolder folder;
};

TEST_F(CompilerTest, EachPhase) {
  Job setup({{"data", 2}});
  MLIRContext context;
  Messages messages(context);
  Compiler compiler(context, setup.config, setup.mesh);
  std::string model = folder.path("small.mlir");
  auto holds = [&](Phase last, StringRef function) {
    auto module = compiler.runUpTo(model, last);
    EXPECT_TRUE(succeeded(module)) << llvm::join(messages.errors.lines(), "\n");
    return succeeded(module) && (*module)->lookupSymbol(function);
  };
  EXPECT_FALSE(holds(Phase::Import, nn::kLossGradFunc));
  for (Phase last : {Phase::Train, Phase::Shard, Phase::Kernels,
                     Phase::Schedule, Phase::Memory})
    EXPECT_TRUE(holds(last, nn::kLossGradFunc)) << int(last);
}

TEST_F(CompilerTest, ErrorsAreDiagnostics) {
  Job setup({{"data", 2}});
  EXPECT_EQ(compiled("none.mlir", setup, "out"),
            "failed: " + folder.path("none.mlir") +
                ": cannot be read: No such file or directory");
  folder.write("broken.mlir", "func.func @forward(");
  EXPECT_TRUE(StringRef(compiled("broken.mlir", setup, "out"))
                  .starts_with("failed: " + folder.path("broken.mlir")));
  // A failed compilation leaves no partial output.
  EXPECT_FALSE(std::filesystem::exists(folder.path("out")));
  folder.write("other/file", "");
  EXPECT_EQ(compiled("small.mlir", setup, "other"),
            "failed: " + folder.path("other") +
                ": the folder exists and is no compiled program; give another "
                "output path (-o)");
}

TEST_F(CompilerTest, AfterLossCanRefuse) {
  Job setup;
  MLIRContext context;
  Messages messages(context);
  compiler::CompilerOptions options;
  int calls = 0;
  options.afterLoss = [&](ModuleOp module) -> LogicalResult {
    ++calls;
    EXPECT_TRUE(module.lookupSymbol(nn::kLossFunc));
    EXPECT_FALSE(module.lookupSymbol(nn::kLossGradFunc));
    return module.emitError("not this one");
  };
  Compiler compiler(context, setup.config, setup.mesh, options);
  EXPECT_TRUE(failed(compiler.lower(folder.path("small.mlir"))));
  EXPECT_EQ(calls, 1);
}

/// Closes stdout and stderr during its lifetime.
class Closed {
public:
  Closed() {
    for (int fd : {1, 2}) {
      saved[fd - 1] = ::fcntl(fd, F_DUPFD, 100); // neither 1 nor 2
      ::close(fd);
    }
  }
  ~Closed() {
    for (int fd : {1, 2}) {
      ::dup2(saved[fd - 1], fd);
      ::close(saved[fd - 1]);
    }
  }

private:
  int saved[2];
};

// While stdout and stderr are closed, the first files that are opened get their
// descriptors, so a print would go to these files.
TEST_F(CompilerTest, WritesNothingToStdoutAndStderr) {
  Job setup({{"data", 2}});
  folder.write("broken.mlir", "func.func @forward(");
  // An ONNX model of two stages.
  std::string onnx = CLEAVE_TEST_MODELS "/gpt2.onnx";
  Job stages({{"pipeline", 2}});
  stages.config.data.labels = "next";
  stages.config.dims = {{"batch", 4}, {"sequence", 8}};
  stages.config.train.microbatches = 2;
  auto all = [&](const std::string &output) {
    return std::vector<std::string>{compiled("small.mlir", setup, output),
                                    compiled("broken.mlir", setup, "x"),
                                    explained(onnx, stages),
                                    checked("small.mlir", setup)};
  };
  std::vector<std::string> open = all("before"), shut;
  {
    Closed closed;
    shut = all("after");
  }
  EXPECT_EQ(shut, open);
  EXPECT_TRUE(StringRef(open[2]).contains("largest at the peak")) << open[2];
  EXPECT_TRUE(StringRef(open[3]).contains("gradient")) << open[3];
  // While stdout and stderr are open, nothing is printed to them either.
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  all("after");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST_F(CompilerTest, TwoAtOnce) {
  Job data({{"data", 2}}), both({{"data", 2}, {"tensor", 2}});
  std::string small = compiled("small.mlir", data, "small"),
              large = compiled("large.mlir", both, "large");
  ASSERT_FALSE(StringRef(small).starts_with("failed")) << small;
  ASSERT_FALSE(StringRef(large).starts_with("failed")) << large;
  std::string again;
  std::thread other([&] { again = compiled("small.mlir", data, "small2"); });
  std::string largeAgain = compiled("large.mlir", both, "large2");
  other.join();
  EXPECT_EQ(again, small);
  EXPECT_EQ(largeAgain, large);
}

} // namespace
