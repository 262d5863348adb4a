// The compiler as a library: its phases, errors as diagnostics, no output to
// stdout and stderr, and two compilations at once.

#include "../TestFolder.h"

#include "cleave/Compiler/Compiler.h"
#include "cleave/Dialect/NN/IR/NN.h"
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
                "-o");
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
  std::string expected = compiled("small.mlir", setup, "before");
  ASSERT_FALSE(StringRef(expected).starts_with("failed"));
  folder.write("broken.mlir", "func.func @forward(");
  std::string found, error, errorExpected = compiled("broken.mlir", setup, "x");
  {
    Closed closed;
    found = compiled("small.mlir", setup, "after");
    error = compiled("broken.mlir", setup, "x");
  }
  EXPECT_EQ(found, expected);
  EXPECT_EQ(error, errorExpected);
  // While stdout and stderr are open, nothing is printed to them either.
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  compiled("small.mlir", setup, "after");
  compiled("broken.mlir", setup, "x");
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
