// Compares ring attention with attention on one device, forward and backward,
// with every kind of mask, sizes that leave remainders, and poisoned padding.
//
// A failure prints the program with its shardings; this text can be added as a
// test case.

#include "Context.h"

#include "cleave/Interpreter/Interpreter.h"
#include "cleave/Partition/Passes.h"
#include "cleave/Partition/Utils/PortTable.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "gtest/gtest.h"

#include <random>

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;

namespace {

using Random = std::mt19937;

int64_t draw(Random &random, int64_t bound) {
  return std::uniform_int_distribution<int64_t>(0, bound - 1)(random);
}
bool chance(Random &random) { return draw(random, 2) == 0; }

std::string tensor(std::initializer_list<int64_t> shape, StringRef element) {
  std::string text = "tensor<";
  for (int64_t size : shape)
    text += std::to_string(size) + "x";
  return text + element.str() + ">";
}

/// The parameters of one attention, including which optional operands are
/// present.
struct Options {
  int64_t ranks, s, t, window = 0;
  bool causal = false, segments = false, mask = false, bias = false,
       grad = false, capped = false;
  bool dropped = false;
  bool dataPositions = false; // positions are arguments, not indices
  bool noPositions = false;   // attention has no position operands
  bool wholeQueries = false;  // every rank has all queries
};

Options randomOptions(Random &random) {
  Options o;
  o.ranks = 2 + draw(random, 4);
  o.s = o.ranks + draw(random, 2 * o.ranks + 3);
  o.t = chance(random) ? o.s : o.ranks + draw(random, 2 * o.ranks + 3);
  o.causal = chance(random);
  o.window = chance(random) ? 1 + draw(random, o.t) : 0;
  o.segments = chance(random);
  o.mask = chance(random);
  o.bias = chance(random);
  o.grad = chance(random);
  o.capped = chance(random);
  o.dataPositions = draw(random, 4) == 0;
  o.dropped = chance(random);
  return o;
}

/// Writes the text of a program whose queries and keys are sharded over "r".
class ProgramText {
public:
  explicit ProgramText(const Options &o) : o(o) {}

  std::string write() {
    addTensors();
    addPositions();
    addMasks();
    addDropout();
    options += " scale = 0.5";
    options += o.causal ? " causal" : "";
    options += o.window ? " window = " + std::to_string(o.window) : "";
    options += o.capped ? " softcap = 1.5" : "";
    body += "  %y, %lse = nn.attention %q, %k, %v" + options + " : (" + qkv +
            types + ") -> (" + y + ", " + lse + ")\n";
    addResult("%y", y, ofQueries);
    if (o.grad)
      addGradient();
    return "dist.mesh @m <[\"r\"=" + std::to_string(o.ranks) +
           "]>\nfunc.func @f(" + arguments + ") -> (" + results + ") {\n" +
           body + "  return " + returned + " : " + returnedTypes + "\n}\n";
  }

private:
  static std::string sharded(const std::string &dims) {
    return " {dist.sharding = #dist.sharding<@m, [" + dims + "]>}";
  }
  static void append(std::string &list, const std::string &entry) {
    list += (list.empty() ? "" : ", ") + entry;
  }
  void addArgument(const std::string &name, const std::string &type,
                   const std::string &dims) {
    append(arguments, name + ": " + type + sharded(dims));
  }
  /// Adds an optional operand with its type.
  void addOption(const std::string &text,
                 std::initializer_list<std::string> operandTypes) {
    options += " " + text;
    for (const std::string &type : operandTypes)
      types += ", " + type;
  }
  void addResult(const std::string &name, const std::string &type,
                 const std::string &dims) {
    append(returned, name);
    append(returnedTypes, type);
    append(results, type + sharded(dims));
  }
  /// Adds operands with the positions of queries and keys, counted from 0.
  void addIotas(const std::string &queries, const std::string &keys) {
    body += "  " + queries + " = nn.iota dim = 0 : " + si + "\n  " + keys +
            " = nn.iota dim = 0 : " + ti + "\n";
  }

  void addTensors() {
    addArgument("%q", q, ofQueries);
    addArgument("%k", k, ofKeys);
    addArgument("%v", v, ofKeys);
    addArgument("%do", y, ofQueries);
  }

  void addPositions() {
    if (o.dataPositions) {
      addArgument("%qp", si, axes);
      addArgument("%kp", ti, "{\"r\"}");
    } else {
      addIotas("%qp", "%kp");
    }
    if (!o.noPositions)
      addOption("positions(%qp, %kp)", {si, ti});
  }

  void addMasks() {
    if (o.segments) {
      std::string qs = tensor({b, o.s}, "i64"), ks = tensor({b, o.t}, "i64");
      addArgument("%qs", qs, "{}, " + axes);
      addArgument("%ks", ks, "{}, {\"r\"}");
      addOption("segments(%qs, %ks)", {qs, ks});
    }
    if (o.mask) {
      std::string type = tensor({b, o.t}, "i1");
      addArgument("%mask", type, "{}, {\"r\"}");
      addOption("key_mask(%mask)", {type});
    }
    if (o.bias) {
      std::string type = tensor({1, n, 1, o.s, o.t}, "f64");
      addArgument("%bias", type, "{}, {}, {}, " + axes + ", {}");
      addOption("bias(%bias)", {type});
    }
  }

  void addDropout() {
    if (!o.dropped)
      return;
    std::string type = tensor({b, n, g}, "i64");
    addArgument("%keys", type, "{}, {}, {}");
    addIotas("%qi", "%ki");
    addOption("dropout(%keys, %qi, %ki) p = 0.4", {type, si, ti});
  }

  void addGradient() {
    body += "  %dq, %dk, %dv = nn.attention_grad %do, %q, %k, %v, %y, %lse" +
            options + " : (" + y + ", " + qkv + ", " + y + ", " + lse + types +
            ") -> (" + qkv + ")\n";
    addResult("%dq", q, ofQueries);
    addResult("%dk", k, ofKeys);
    addResult("%dv", v, ofKeys);
  }

  const Options &o;
  const int64_t b = 2, n = 2, g = 2, d = 3, e = 2;
  const std::string q = tensor({b, o.s, n, g, d}, "f64"),
                    k = tensor({b, o.t, n, d}, "f64"),
                    v = tensor({b, o.t, n, e}, "f64"),
                    y = tensor({b, o.s, n, g, e}, "f64"),
                    lse = tensor({b, n, g, o.s}, "f64");
  const std::string si = tensor({o.s}, "i64"), ti = tensor({o.t}, "i64");
  const std::string qkv = q + ", " + k + ", " + v;
  const std::string axes = o.wholeQueries ? "{}" : "{\"r\"}"; // of queries
  const std::string ofQueries = "{}, " + axes + ", {}, {}, {}",
                    ofKeys = "{}, {\"r\"}, {}, {}";
  std::string arguments, body, options, types; // types of options' operands
  std::string results, returned, returnedTypes;
};

std::string program(const Options &o) { return ProgramText(o).write(); }

Tensor randomTensor(Random &random, RankedTensorType type) {
  Tensor tensor(type);
  for (double &value : tensor.floats)
    value = std::normal_distribution<double>()(random);
  bool isBool = type.getElementType().isInteger(1);
  for (int64_t &value : tensor.ints)
    value = isBool ? draw(random, 3) != 0 : draw(random, 4);
  return tensor;
}

void addPasses(PassManager &passes, bool rings) {
  PartitionOptions options;
  if (rings) {
    options.rings = {"r"};
    options.ringPlan = "ring";
  }
  buildPartitionPipeline(passes, options);
}

template <typename Op> int64_t count(ModuleOp module) {
  int64_t found = 0;
  module.walk([&](Op) { ++found; });
  return found;
}

/// Interprets the program on one device and on all ranks of the mesh, and
/// compares the results. `look` receives the partitioned program.
void expectAgreement(TestContext &test, const Options &options, Random &random,
                     llvm::function_ref<void(ModuleOp)> look) {
  MLIRContext &context = test.context;
  std::string &diagnostics = test.diagnostics;
  std::string text = program(options);
  SCOPED_TRACE(text);
  diagnostics.clear();
  OwningOpRef<ModuleOp> global = parseSourceString<ModuleOp>(text, &context);
  ASSERT_TRUE(global) << diagnostics;
  func::FuncOp whole = *global->getOps<func::FuncOp>().begin();
  std::vector<Tensor> arguments;
  for (Type type : whole.getArgumentTypes())
    arguments.push_back(randomTensor(random, cast<RankedTensorType>(type)));
  FailureOr<std::vector<Tensor>> expected = interpret(whole, arguments);
  ASSERT_TRUE(succeeded(expected)) << diagnostics;

  OwningOpRef<ModuleOp> local = global->clone();
  PassManager passes(&context);
  addPasses(passes, /*rings=*/true);
  ASSERT_TRUE(succeeded(passes.run(*local))) << diagnostics;
  std::string printed;
  llvm::raw_string_ostream(printed) << *local;
  SCOPED_TRACE(printed);
  look(*local);
  func::FuncOp part = *local->getOps<func::FuncOp>().begin();
  MeshAttr mesh = (*local->getOps<MeshOp>().begin()).getMesh();
  std::vector<RankTensors> tiles;
  for (unsigned i = 0; i < arguments.size(); ++i)
    tiles.push_back(shardTensor(arguments[i], mesh,
                                partition::Port{part, false, i}.sharding()));
  auto actual = interpretRanks(part, mesh, tiles);
  ASSERT_TRUE(succeeded(actual)) << diagnostics;
  for (unsigned i = 0; i < expected->size(); ++i) {
    const Tensor &want = (*expected)[i];
    Assembled got = assembleTensor((*actual)[i], want.type, mesh,
                                   partition::Port{part, true, i}.sharding());
    for (int64_t at = 0; at < want.size(); ++at)
      ASSERT_NEAR(got.whole.floats[at], want.floats[at],
                  1e-10 * std::max(1.0, std::abs(want.floats[at])))
          << "result " << i << " at " << at;
  }
}

TEST(Ring, AgreesWithOneDevice) {
  TestContext test;
  Random random(7);
  int64_t rings = 0, shorter = 0;
  for (int trial = 0; trial < 300 && !testing::Test::HasFatalFailure();
       ++trial) {
    Options options = randomOptions(random);
    expectAgreement(test, options, random, [&](ModuleOp local) {
      if (int64_t rounds = count<nn::AttentionOp>(local); rounds > 1) {
        ++rings;
        shorter += rounds < options.ranks;
      }
    });
  }
  // Most cases use a ring instead of gathering keys and values, and in some of
  // them a window ends the ring early.
  EXPECT_GT(rings, 150);
  EXPECT_GT(shorter, 5);
}

/// If only the keys are sharded, all ranks hold all queries. Each rank attends
/// to its own keys, and the results are combined.
TEST(Ring, SplitsKeysAlone) {
  TestContext test;
  Random random(11);
  int64_t split = 0;
  for (int trial = 0; trial < 200 && !testing::Test::HasFatalFailure();
       ++trial) {
    Options options = randomOptions(random);
    options.wholeQueries = true;
    options.noPositions = !options.dataPositions && chance(random);
    expectAgreement(test, options, random, [&](ModuleOp local) {
      bool gathers = false;
      local.walk([&](AllGatherOp op) {
        gathers |=
            cast<RankedTensorType>(op.getInputs()[0].getType()).getRank() == 4;
      });
      split += !gathers && count<AllReduceOp>(local) > 0;
    });
  }
  EXPECT_GT(split, 120);
}

/// A ring sends as many bytes as a gather of K and V would. The tiles that move
/// around the ring are K and V in the forward pass, and K, V and their
/// cotangents in the backward pass.
TEST(Ring, SendsWhatGatheringSends) {
  TestContext test;
  for (int64_t ranks : {2, 3, 4, 8}) {
    Options options;
    options.ranks = ranks;
    options.s = options.t = 2 * ranks;
    options.causal = options.grad = true;
    int64_t bytes[2] = {};
    for (bool rings : {false, true}) {
      OwningOpRef<ModuleOp> module =
          parseSourceString<ModuleOp>(program(options), &test.context);
      PassManager passes(&test.context);
      addPasses(passes, rings);
      ASSERT_TRUE(succeeded(passes.run(*module))) << test.diagnostics;
      EXPECT_EQ(count<AllGatherOp>(*module) == 0, rings);
      module->walk([&](CollectiveOpInterface op) {
        bytes[rings] += op.getSentBytes(ranks);
      });
    }
    // The expected bytes are the same with and without a ring. Without a ring,
    // K and V are gathered, and the backward pass reuses the tensors that the
    // forward pass gathered.
    int64_t tile = 2 * 2 * 2 * (3 + 2) * 8; // b, s / P, n, d + e, bytes
    EXPECT_EQ(bytes[0], 2 * (ranks - 1) * tile);
    EXPECT_EQ(bytes[1], 2 * (ranks - 1) * tile);
  }
}

} // namespace
