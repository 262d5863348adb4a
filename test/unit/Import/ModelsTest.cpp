// In the reference interpreter, the exported models compute the same logits as
// in PyTorch. This is tested for the module that the ONNX importer makes from
// the nodes of the file, and for the module after all passes of the import
// phase.

#include "cleave/Compiler/Compiler.h"
#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Import/ONNX/Import.h"
#include "cleave/Interfaces/Interfaces.h"
#include "cleave/Interpreter/Interpreter.h"
#include "cleave/io/Npy.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

using namespace mlir;
using namespace cleave;

namespace {

class Models : public testing::TestWithParam<std::string> {
protected:
  Models() {
    DialectRegistry registry;
    registry.insert<func::FuncDialect, arith::ArithDialect, math::MathDialect,
                    nn::NNDialect>();
    registerInterfaceModels(registry);
    context.appendDialectRegistry(registry);
    context.loadAllAvailableDialects();
  }

  std::string path() const {
    return std::string(CLEAVE_TEST_MODELS) + "/" + GetParam() + ".onnx";
  }

  /// Returns the module that the ONNX importer makes, before any pass has run.
  OwningOpRef<ModuleOp> import() {
    ImportOptions options;
    options.dims = {{"batch", batch}, {"sequence", sequence}};
    options.inputs = {{"attention_mask", InputBinding::Ones}};
    FailureOr<std::vector<Tie>> ties = findTiesByContent(path(), context, {});
    EXPECT_TRUE(succeeded(ties));
    options.ties = *ties;
    return importOnnx(path(), options, context);
  }

  /// Returns the module after the passes of the import phase.
  OwningOpRef<ModuleOp> load() {
    Config config;
    config.dims = {{"batch", batch}, {"sequence", sequence}};
    compiler::Compiler compiler(context, config, Mesh());
    FailureOr<OwningOpRef<ModuleOp>> module = compiler.load(path());
    return succeeded(module) ? std::move(*module) : nullptr;
  }

  /// Reads the weight from the file at the offset that nn.data states. Its
  /// bytes are in the order of the argument's elements.
  Tensor weight(func::FuncOp function, unsigned index) {
    Tensor tensor(cast<RankedTensorType>(function.getArgumentTypes()[index]));
    nn::DataAttr data = nn::dataOf(function.getArgAttrDict(index));
    std::ifstream file(std::string(CLEAVE_TEST_MODELS) + "/" +
                           data.getFile().str(),
                       std::ios::binary);
    file.seekg(data.getOffset());
    std::vector<float> values(tensor.size());
    EXPECT_EQ(data.getLength(), int64_t(values.size() * sizeof(float)));
    file.read(reinterpret_cast<char *>(values.data()),
              values.size() * sizeof(float));
    EXPECT_TRUE(bool(file));
    tensor.floats.assign(values.begin(), values.end());
    return tensor;
  }

  /// Returns the largest difference from PyTorch's logits, relative to the
  /// largest logit.
  double error(ModuleOp module) {
    auto function = module.lookupSymbol<func::FuncOp>("forward");
    std::string family = GetParam().substr(0, GetParam().find('.'));
    NpzReader reference(std::string(CLEAVE_TEST_MODELS) + "/" + family +
                        ".npz");
    Array ids = reference.read("input_ids"), want = reference.read("logits");
    std::vector<Tensor> arguments;
    for (unsigned i = 0; i < function.getNumArguments(); ++i) {
      if (nn::roleOf(function, i) != nn::Role::Tokens) {
        arguments.push_back(weight(function, i));
        continue;
      }
      Tensor tokens(cast<RankedTensorType>(function.getArgumentTypes()[i]));
      EXPECT_EQ(tokens.size(), batch * sequence);
      for (int64_t k = 0; k < tokens.size(); ++k)
        tokens.ints[k] =
            ids.as<int64_t>()[k / sequence * ids.shape[1] + k % sequence];
      arguments.push_back(tokens);
    }
    FailureOr<std::vector<Tensor>> results = interpret(function, arguments);
    if (failed(results))
      return std::nan("");
    const Tensor &logits = results->front();
    EXPECT_EQ(logits.size(), batch * sequence * want.shape[2]);
    // Later tokens do not change earlier logits, so a shorter sequence must
    // have the same logits.
    double worst = 0, scale = 0;
    int64_t row = sequence * want.shape[2];
    for (int64_t k = 0; k < logits.size(); ++k) {
      double expected =
          want.as<float>()[k / row * want.shape[1] * want.shape[2] + k % row];
      worst = std::max(worst, std::abs(logits.floats[k] - expected));
      scale = std::max(scale, std::abs(expected));
    }
    return worst / scale;
  }

  int64_t batch = 2, sequence = 96;
  MLIRContext context;
};

/// Counts the operations of each kind.
std::map<std::string, int> countOps(ModuleOp module) {
  std::map<std::string, int> counts;
  module.walk(
      [&](Operation *op) { ++counts[op->getName().getStringRef().str()]; });
  return counts;
}

TEST_P(Models, ComputesWhatPyTorchComputes) {
  OwningOpRef<ModuleOp> module = load();
  ASSERT_TRUE(module);
  // The limit is 1e-6, because the reference logits are stored in float32.
  EXPECT_LT(error(*module), 1e-6);
  std::map<std::string, int> counts = countOps(*module);
  bool llama = GetParam().rfind("llama", 0) == 0;
  EXPECT_EQ(counts["nn.attention"], 5);
  EXPECT_EQ(counts["nn.softmax"], 0);
  EXPECT_EQ(counts["nn.transpose"], 0);
  EXPECT_EQ(counts["nn.layer_norm"], llama ? 0 : 11);
  EXPECT_EQ(counts["nn.rms_norm"], llama ? 11 : 0);
  EXPECT_EQ(counts["nn.rotary"], llama ? 10 : 0);
  EXPECT_EQ(counts["nn.gelu"], llama ? 0 : 5);
  EXPECT_EQ(counts["nn.einsum"], llama ? 36 : 21);
  EXPECT_EQ(counts["math.cos"], llama ? 1 : 0);
  // The reshapes around attention only add or drop dimensions of size 1.
  EXPECT_EQ(counts["nn.reshape"], llama ? 0 : 20);
}

TEST_P(Models, LoweringAloneComputesTheSame) {
  OwningOpRef<ModuleOp> module = import();
  ASSERT_TRUE(module);
  EXPECT_LT(error(*module), 1e-6);
}

TEST_P(Models, OneShortSample) {
  batch = 1;
  sequence = 29;
  OwningOpRef<ModuleOp> module = load();
  ASSERT_TRUE(module);
  EXPECT_LT(error(*module), 1e-6);
  EXPECT_EQ(countOps(*module)["nn.attention"], 5);
}

INSTANTIATE_TEST_SUITE_P(Exports, Models,
                         testing::Values("gpt2", "gpt2.ts17", "gpt2.dynamo18",
                                         "gpt2.dynamo23", "llama", "llama.ts17",
                                         "llama.dynamo18", "llama.dynamo23"),
                         [](const auto &info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '.', '_');
                           return name;
                         });

} // namespace
