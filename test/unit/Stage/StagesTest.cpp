// A model that is cut into stages computes the same as the whole model:
// functions are equal bit by bit, gradients and updates up to rounding, in
// double.

#include "Models.h"

#include "cleave/Autodiff/Passes.h"
#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Dialect/Pipe/IR/Pipe.h"
#include "cleave/Interfaces/Interfaces.h"
#include "cleave/Interpreter/Interpreter.h"
#include "cleave/Stage/Passes.h"

#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"
#include "gtest/gtest.h"

#include <map>
#include <random>

using namespace mlir;
using namespace cleave;

namespace {

struct Case {
  std::string name, text;
  int64_t stages;
  double dropout = 0;
};

/// Returns the model in which the parameters whose names begin with one of
/// `names` are frozen.
std::string frozen(std::string text, const std::vector<std::string> &names) {
  const std::string role = "nn.role = #nn.role<parameter>";
  for (const std::string &name : names)
    for (size_t at = 0;
         (at = text.find("nn.name = \"" + name, at)) != std::string::npos;
         ++at) {
      size_t end = text.find('}', at), found = text.find(role, at);
      if (found < end)
        text.replace(found, role.size(),
                     "nn.role = #nn.role<constant>, nn.frozen");
    }
  return text;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (int64_t stages : {1, 2, 4, 7})
    all.push_back(
        {"gpt3_into_" + std::to_string(stages), test::gptModel(3), stages});
  all.push_back({"gpt5_into_4", test::gptModel(5), 4});
  all.push_back({"gpt2_dropout_into_3", test::gptModel(2), 3, 0.3});
  for (int64_t stages : {2, 3, 5})
    all.push_back({"encoder_decoder_into_" + std::to_string(stages),
                   test::encoderDecoderModel(2), stages});
  // Stage 0 has no trained parameter, so no gradient is sent back to it.
  all.push_back({"gpt3_frozen_into_3",
                 frozen(test::gptModel(3), {"table", "places", "h.0"}), 3});
  for (uint64_t seed = 1; seed <= 40; ++seed)
    all.push_back({"random_" + std::to_string(seed),
                   test::randomModel(seed, 4 + seed),
                   static_cast<int64_t>(2 + seed % 5)});
  return all;
}

using Values = std::map<std::string, Tensor>; // by role and name

std::string keyOf(DictionaryAttr attrs) {
  return (nn::spell(nn::roleOf(attrs)) + " " + nn::nameOf(attrs)).str();
}

/// Returns a value for an argument that no other function computes. The value
/// depends only on the key, so that the whole model and its stages get the same
/// one.
Tensor valueOf(const std::string &key, RankedTensorType type) {
  std::mt19937_64 random(std::hash<std::string>()(key));
  Tensor tensor(type);
  std::normal_distribution<double> normal;
  for (double &x : tensor.floats)
    x = 0.6 * normal(random);
  for (int64_t &x : tensor.ints)
    x = random() % 11;
  if (key.find("state ") == 0 || key.find("weight ") == 0)
    for (double &x : tensor.floats)
      x = std::abs(x) + 0.1;
  if (key == "lr lr")
    tensor.floats[0] = 0.01;
  return tensor;
}

/// Interprets a function. Arguments come from `values`; missing ones are made
/// up from their keys, or zero if `zeros` is true. The results are added to
/// `values`.
void run(func::FuncOp func, Values &values, bool zeros = false) {
  std::vector<Tensor> arguments;
  for (unsigned i = 0; i < func.getNumArguments(); ++i) {
    std::string key = keyOf(func.getArgAttrDict(i));
    auto type = cast<RankedTensorType>(func.getArgumentTypes()[i]);
    auto known = values.find(key);
    arguments.push_back(known != values.end() ? known->second
                        : zeros && key.find("cotangent ") == 0
                            ? Tensor(type)
                            : valueOf(key, type));
  }
  auto results = interpret(func, arguments);
  ASSERT_TRUE(succeeded(results));
  for (unsigned i = 0; i < func.getNumResults(); ++i)
    values[keyOf(func.getResultAttrDict(i))] = (*results)[i];
}

double difference(const Tensor &a, const Tensor &b) {
  EXPECT_EQ(a.type, b.type);
  double worst = 0, scale = 1e-3;
  for (size_t i = 0; i < a.floats.size(); ++i) {
    worst = std::max(worst, std::abs(a.floats[i] - b.floats[i]));
    scale = std::max(scale, std::abs(b.floats[i]));
  }
  EXPECT_EQ(a.ints, b.ints);
  return worst / scale;
}

DialectRegistry makeRegistry() {
  DialectRegistry registry;
  registry.insert<arith::ArithDialect, math::MathDialect, func::FuncDialect,
                  nn::NNDialect, pipe::PipeDialect>();
  registerInterfaceModels(registry);
  return registry;
}

class Stages : public testing::TestWithParam<Case> {
protected:
  Stages() : context(makeRegistry()) { context.loadAllAvailableDialects(); }

  OwningOpRef<ModuleOp> parse() {
    auto module = parseSourceString<ModuleOp>(GetParam().text, &context);
    EXPECT_TRUE(module) << GetParam().text;
    if (GetParam().dropout != 0) {
      PassManager passes(&context);
      AddDropoutPassOptions dropout;
      dropout.p = GetParam().dropout;
      passes.addPass(createAddDropoutPass(dropout));
      EXPECT_TRUE(succeeded(passes.run(*module)));
    }
    return module;
  }

  static void addTraining(OpPassManager &passes, bool accumulate) {
    DifferentiatePassOptions differentiate;
    differentiate.accumulate = accumulate;
    passes.addPass(createDifferentiatePass(differentiate));
    passes.addPass(createAddOptimizerPass());
    passes.addPass(createCanonicalizerPass());
    passes.addPass(createCSEPass());
  }

  void cut(ModuleOp module, bool train, bool accumulate = false) {
    PassManager passes(&context);
    MarkStagesPassOptions mark;
    mark.stages = GetParam().stages;
    passes.addPass(createMarkStagesPass(mark));
    passes.addPass(createCutStagesPass());
    if (train)
      addTraining(passes.nest<ModuleOp>(), accumulate);
    ASSERT_TRUE(succeeded(passes.run(module)));
    parts = llvm::to_vector(module.getOps<ModuleOp>());
    ASSERT_EQ(static_cast<int64_t>(parts.size()), GetParam().stages);
  }

  func::FuncOp part(size_t stage, StringRef name) {
    return parts[stage].lookupSymbol<func::FuncOp>(name);
  }

  /// Runs @loss_grad of all stages: first the forward passes, with zeros for
  /// the missing cotangents, then the backward passes. Gradients of tied
  /// parameters are summed over their stages.
  Values runGradients() {
    Values forward;
    for (size_t stage = 0; stage < parts.size(); ++stage)
      run(part(stage, "loss_grad"), forward, /*zeros=*/true);
    Values sums, received;
    for (auto &[key, value] : forward)
      if (key.find("activation ") == 0)
        received[key] = value;
    for (size_t stage = parts.size(); stage-- > 0;) {
      Values results = received;
      func::FuncOp func = part(stage, "loss_grad");
      for (unsigned i = 0; i < func.getNumArguments(); ++i) {
        std::string key = keyOf(func.getArgAttrDict(i));
        if (key.find("cotangent ") == 0)
          EXPECT_TRUE(received.count(key)) << key;
      }
      run(func, results);
      for (unsigned i = 0; i < func.getNumResults(); ++i) {
        std::string key = keyOf(func.getResultAttrDict(i));
        const Tensor &value = results[key];
        if (key.find("cotangent ") == 0)
          received[key] = value;
        if (key.find("gradient ") == 0)
          gradients[stage][key] = value;
        if (key.find("gradient ") == 0 && sums.count(key))
          for (size_t j = 0; j < value.floats.size(); ++j)
            sums[key].floats[j] += value.floats[j];
        else if (key.find("cotangent ") != 0)
          sums[key] = value;
      }
    }
    return sums;
  }

  MLIRContext context;
  SmallVector<ModuleOp> parts;
  std::map<size_t, Values> gradients; // of each stage
};

TEST_P(Stages, FunctionsAreThoseOfTheWholeToTheBit) {
  OwningOpRef<ModuleOp> whole = parse(), pieces = parse();
  cut(*pieces, /*train=*/false);
  for (auto func : whole->getOps<func::FuncOp>()) {
    Values expected, found;
    run(func, expected);
    for (size_t stage = 0; stage < parts.size(); ++stage)
      if (func::FuncOp own = part(stage, func.getName()))
        run(own, found);
    for (auto &[key, value] : expected) {
      ASSERT_TRUE(found.count(key)) << key;
      EXPECT_EQ(found[key].floats, value.floats) << key;
      EXPECT_EQ(found[key].ints, value.ints) << key;
    }
  }
}

/// Every parameter is in at least one stage; a parameter in several stages
/// lists these stages.
TEST_P(Stages, NoParameterIsLost) {
  OwningOpRef<ModuleOp> whole = parse(), pieces = parse();
  cut(*pieces, /*train=*/false);
  bool hasTrain = !!whole->lookupSymbol("loss_train");
  StringRef training = hasTrain ? "loss_train" : "loss";
  std::map<std::string, std::vector<int64_t>> stages;
  for (size_t stage = 0; stage < parts.size(); ++stage) {
    func::FuncOp func = part(stage, training);
    ASSERT_TRUE(func);
    for (unsigned i = 0; i < func.getNumArguments(); ++i)
      stages[keyOf(func.getArgAttrDict(i))].push_back(stage);
  }
  auto func = whole->lookupSymbol<func::FuncOp>(training);
  for (unsigned i = 0; i < func.getNumArguments(); ++i)
    EXPECT_TRUE(stages.count(keyOf(func.getArgAttrDict(i))));
  for (size_t stage = 0; stage < parts.size(); ++stage) {
    func::FuncOp func = part(stage, training);
    for (unsigned i = 0; i < func.getNumArguments(); ++i) {
      auto said = func.getArgAttrOfType<DenseI64ArrayAttr>(i, "pipe.stages");
      std::string key = keyOf(func.getArgAttrDict(i));
      if (key.find("parameter ") != 0)
        continue;
      std::vector<int64_t> expected = stages[key];
      EXPECT_EQ(!!said, expected.size() > 1) << key;
      if (said)
        EXPECT_EQ(said.asArrayRef().vec(), expected) << key;
    }
  }
}

TEST_P(Stages, GradientsAreThoseOfTheWhole) {
  for (bool accumulate : {false, true}) {
    OwningOpRef<ModuleOp> whole = parse(), pieces = parse();
    PassManager passes(&context);
    addTraining(passes, accumulate);
    ASSERT_TRUE(succeeded(passes.run(*whole)));
    Values expected;
    run(whole->lookupSymbol<func::FuncOp>("loss_grad"), expected);
    cut(*pieces, /*train=*/true, accumulate);
    gradients.clear();
    Values found = runGradients();
    for (auto &[key, value] : expected) {
      ASSERT_TRUE(found.count(key)) << key;
      Tensor sum = found[key];
      // In every stage with the tied parameter, the gradient was added to the
      // same initial value valueOf(key). So the sum over stages contains this
      // value several times instead of once.
      int64_t copies = -1;
      for (auto &[stage, own] : gradients)
        copies += own.count(key);
      if (accumulate && copies > 0) {
        Tensor start = valueOf(key, sum.type);
        for (size_t j = 0; j < sum.floats.size(); ++j)
          sum.floats[j] -= copies * start.floats[j];
      }
      EXPECT_LT(difference(sum, value), 1e-12) << key;
    }
  }
}

/// Prefixes of the keys of sums over stages.
const std::string kSum = "residual ", kAccumulator = "accumulator ";

/// Replaces each sum over stages by an argument of role `residual`, and returns
/// the operands of the sum as results of role `accumulator`. The argument and
/// the results have the same names in all stages.
void exposeSums(func::FuncOp func) {
  Builder builder(func.getContext());
  SmallVector<pipe::SumStagesOp> sums;
  func.walk([&](pipe::SumStagesOp op) { sums.push_back(op); });
  Operation *end = func.getBody().front().getTerminator();
  SmallVector<Value> results(end->getOperands());
  SmallVector<DictionaryAttr> attrs;
  func.getAllResultAttrs(attrs);
  for (pipe::SumStagesOp op : sums)
    for (auto [operand, result] : llvm::zip(op.getInputs(), op.getResults())) {
      std::string name =
          cast<NameLoc>(op.getLoc()).getName().str() + "." +
          std::to_string(cast<OpResult>(result).getResultNumber());
      auto named = [&](nn::Role role) {
        return nn::portAttrs(func.getContext(), name, role);
      };
      unsigned index = func.getNumArguments();
      ASSERT_TRUE(succeeded(func.insertArgument(
          index, result.getType(), named(nn::Role::Residual), op.getLoc())));
      result.replaceAllUsesWith(func.getArgument(index));
      results.push_back(operand);
      attrs.push_back(named(nn::Role::Accumulator));
    }
  // A returned value may have been one of the replaced sums, so the current
  // operand of the return is taken.
  for (auto [value, own] : llvm::zip(results, end->getOperands()))
    value = own;
  end->setOperands(results);
  func.setType(builder.getFunctionType(func.getArgumentTypes(),
                                       TypeRange(ValueRange(results))));
  func.setAllResultAttrs(attrs);
  for (pipe::SumStagesOp op : sums)
    op.erase();
}

TEST_P(Stages, UpdatesAreThoseOfTheWhole) {
  OwningOpRef<ModuleOp> whole = parse(), pieces = parse();
  PassManager passes(&context);
  addTraining(passes, false);
  ASSERT_TRUE(succeeded(passes.run(*whole)));
  cut(*pieces, /*train=*/true);
  Values inputs = runGradients(), expected = inputs;
  run(whole->lookupSymbol<func::FuncOp>("update"), expected);
  for (size_t stage = 0; stage < parts.size(); ++stage)
    exposeSums(part(stage, "update"));
  // Some sums depend on other sums: squares are computed from summed gradients.
  // So each round can compute sums that depend on those of the previous round.
  Values sums;
  std::vector<Values> found;
  for (int round = 0; round < 3; ++round) {
    Values next;
    found.clear();
    for (size_t stage = 0; stage < parts.size(); ++stage) {
      Values &own = found.emplace_back(inputs);
      for (auto &[key, value] : gradients[stage])
        own[key] = value;
      own.insert(sums.begin(), sums.end());
      func::FuncOp update = part(stage, "update");
      run(update, own);
      for (unsigned i = 0; i < update.getNumResults(); ++i) {
        std::string key = keyOf(update.getResultAttrDict(i));
        if (key.find(kAccumulator) != 0)
          continue;
        auto [sum, isNew] =
            next.try_emplace(kSum + key.substr(kAccumulator.size()), own[key]);
        if (!isNew)
          for (size_t j = 0; j < sum->second.floats.size(); ++j)
            sum->second.floats[j] += own[key].floats[j];
      }
    }
    sums = next;
  }
  Values first;
  for (size_t stage = 0; stage < parts.size(); ++stage) {
    func::FuncOp update = part(stage, "update");
    for (unsigned i = 0; i < update.getNumResults(); ++i) {
      std::string key = keyOf(update.getResultAttrDict(i));
      if (key.find(kAccumulator) == 0)
        continue;
      ASSERT_TRUE(expected.count(key)) << key;
      EXPECT_LT(difference(found[stage][key], expected[key]), 1e-11)
          << key << " in stage " << stage;
      // Copies are equal.
      auto [copy, isNew] = first.try_emplace(key, found[stage][key]);
      if (!isNew)
        EXPECT_EQ(copy->second.floats, found[stage][key].floats) << key;
    }
  }
  auto update = whole->lookupSymbol<func::FuncOp>("update");
  for (unsigned i = 0; i < update.getNumResults(); ++i)
    EXPECT_TRUE(first.count(keyOf(update.getResultAttrDict(i))));
}

/// Checks that the cases cover every kind of value that crosses stages.
TEST(StagesCases, CoverEveryKindOfCrossing) {
  MLIRContext context(makeRegistry());
  context.loadAllAvailableDialects();
  int64_t handedOn = 0, integers = 0, withoutCotangent = 0, tied = 0, of3 = 0;
  for (const Case &c : cases()) {
    auto module = parseSourceString<ModuleOp>(c.text, &context);
    ASSERT_TRUE(module);
    PassManager passes(&context);
    MarkStagesPassOptions mark;
    mark.stages = c.stages;
    passes.addPass(createMarkStagesPass(mark));
    passes.addPass(createCutStagesPass());
    ASSERT_TRUE(succeeded(passes.run(*module)));
    module->walk([&](func::FuncOp func) {
      if (func.getName() != "loss")
        return;
      Operation *end = func.getBody().front().getTerminator();
      for (unsigned i = 0; i < func.getNumResults(); ++i) {
        if (nn::resultRoleOf(func, i) != nn::Role::Activation)
          continue;
        bool isFloat =
            isa<FloatType>(getElementTypeOrSelf(func.getResultTypes()[i]));
        handedOn += isa<BlockArgument>(end->getOperand(i));
        integers += !isFloat;
        withoutCotangent +=
            isFloat && !func.getResultAttr(i, pipe::kDifferentiableAttr);
      }
      for (unsigned i = 0; i < func.getNumArguments(); ++i)
        if (auto stages = func.getArgAttrOfType<DenseI64ArrayAttr>(
                i, pipe::kStagesAttr)) {
          ++tied;
          of3 += stages.size() > 2;
        }
    });
  }
  EXPECT_GT(handedOn, 10);
  EXPECT_GT(integers, 3);
  EXPECT_GT(withoutCotangent, 3);
  EXPECT_GT(tied, 20);
  EXPECT_GT(of3, 3);
}

INSTANTIATE_TEST_SUITE_P(Models, Stages, testing::ValuesIn(cases()),
                         [](const testing::TestParamInfo<Case> &info) {
                           return info.param.name;
                         });

} // namespace
