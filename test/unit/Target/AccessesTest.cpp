// Compares the reads and writes of commands (cleave/accesses.h) with the
// operations from which the commands are emitted: an operation reads its
// operands and writes its results.

#include "cleave/accesses.h"
#include "cleave/Dialect/Dist/IR/Dist.h"
#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Dialect/RT/IR/RT.h"
#include "cleave/Interfaces/Interfaces.h"
#include "cleave/Memory/LibraryCalls.h"
#include "cleave/Target/Target.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Parser/Parser.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

using namespace mlir;
using namespace cleave;

namespace {

/// Every operation of the dialect. Each optional operand is present in at least
/// one operation.
const char *const everything = R"(
dist.mesh @mesh <["data"=2, "tensor"=2]>
func.func private @kernel(%x: tensor<4x6xf32>, %y: tensor<4x6xf32>) -> (tensor<4x6xf32>, tensor<4x6xf32>)
    attributes {nn.kernel, nn.extent = 4 : i64} {
  return %x, %y : tensor<4x6xf32>, tensor<4x6xf32>
}
func.func @products(%a: tensor<4x5xf32>, %b: tensor<5x6xf32>, %bias: tensor<6xf32>, %x: tensor<4x6xf32>) {
  %0 = rt.gemm a(%a [0, 5, 1]) b(%b [0, 6, 1]) c [0, 6, 1] m = 4 n = 6 k = 5
    : (tensor<4x5xf32>, tensor<5x6xf32>) -> tensor<4x6xf32>
  %1:3 = rt.gemm a(%a [0, 5, 1]) b(%b [0, 6, 1]) bias(%bias) accumulate(%0) c [0, 6, 1] m = 4 n = 6 k = 5
    {activation = 3 : i32, keep_pre_activation}
    : (tensor<4x5xf32>, tensor<5x6xf32>, tensor<6xf32>, tensor<4x6xf32>) -> (tensor<4x6xf32>, tensor<4x6xf32>, tensor<64xi8>)
  %2 = rt.gemm a(%a [0, 5, 1]) b(%b [0, 6, 1]) derivative_at(%x) c [0, 6, 1] m = 4 n = 6 k = 5 {activation = 1 : i32}
    : (tensor<4x5xf32>, tensor<5x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32>
  %3:2 = rt.gemm a(%a [0, 5, 1]) b(%b [0, 6, 1]) c [0, 6, 1] m = 4 n = 6 k = 5 {sums_of = 1 : i32}
    : (tensor<4x5xf32>, tensor<5x6xf32>) -> (tensor<4x6xf32>, tensor<4xf32>)
  return
}
func.func @batches(%a: tensor<2x3x4x5xbf16>, %b: tensor<2x5x6xbf16>) {
  %0 = rt.gemm a(%a [0, 60, 20, 5, 1]) b(%b [0, 30, 0, 6, 1]) c [0, 72, 24, 6, 1] batch = [2, 3] m = 4 n = 6 k = 5
    : (tensor<2x3x4x5xbf16>, tensor<2x5x6xbf16>) -> tensor<2x3x4x6xf32>
  return
}
func.func @launches(%x: tensor<4x6xf32>, %y: tensor<4x6xf32>) {
  %0:2 = rt.launch @kernel(%x, %y) extent = 4 grain = 1 : (tensor<4x6xf32>, tensor<4x6xf32>) -> (tensor<4x6xf32>, tensor<4x6xf32>)
  return
}
func.func @chosen(%x: tensor<5x6xf32>, %w: tensor<4x6x8xf32>, %ids: tensor<5x2xi64>) {
  %y = rt.grouped_gemm %x [0, 6, 0, 1] %w [0, 48, 8, 1] ids %ids [0, 2, 1] into [0, 16, 8, 1] rows = [5, 2] e = 4 k = 6 n = 8
    : (tensor<5x6xf32>, tensor<4x6x8xf32>, tensor<5x2xi64>) -> tensor<5x2x8xf32>
  %dw:2 = rt.grouped_gemm outer %x [0, 6, 0, 1] %y [0, 16, 8, 1] ids %ids [0, 2, 1] into [0, 48, 8, 1] rows = [5, 2] e = 4 k = 6 n = 8
    : (tensor<5x6xf32>, tensor<5x2x8xf32>, tensor<5x2xi64>) -> (tensor<4x6x8xf32>, tensor<64xi8>)
  return
}
func.func @rows(%ids: tensor<5xi64>, %slots: tensor<2x5x3xi64>, %s: tensor<5xi64>, %each: tensor<2x5xi64>,
                %loads: tensor<6x4xi64>, %samples: tensor<2xi64>) {
  %sources, %places, %sent, %counts = rt.plan_rows %ids tile = 3
    : tensor<5xi64> -> tensor<1x2x5xi64>, tensor<5xi64>, tensor<1x2x5xi64>, tensor<2x1xi64>
  %order, %at, %sorted = rt.sort_rows %ids groups = 3 : tensor<5xi64> -> tensor<5xi64>, tensor<5xi64>, tensor<5xi64>
  %0, %scratch = rt.position_in_expert %slots, %s after(%loads, %samples) experts = 4
    : (tensor<2x5x3xi64>, tensor<5xi64>, tensor<6x4xi64>, tensor<2xi64>) -> (tensor<2x5x3xi64>, tensor<13xi64>)
  %1, %more = rt.position_in_expert %slots, %each experts = 4
    : (tensor<2x5x3xi64>, tensor<2x5xi64>) -> (tensor<2x5x3xi64>, tensor<13xi64>)
  return
}
func.func @scores(%q: tensor<2x5x3x1x4xbf16>, %k: tensor<2x5x3x4xbf16>, %v: tensor<2x5x3x4xbf16>, %mask: tensor<2x5xi1>,
                  %qpos: tensor<5xi64>, %kpos: tensor<5xi64>, %qdoc: tensor<2x5xi64>, %kdoc: tensor<2x5xi64>,
                  %bias: tensor<5x5xf32>, %keys: tensor<2x3xi64>, %qi: tensor<5xi64>, %ki: tensor<5xi64>,
                  %do: tensor<2x5x3x4xbf16>) {
  %o, %lse, %scratch = rt.attention q(%q) k(%k) v(%v) positions(%qpos, %kpos) segments(%qdoc, %kdoc) key_mask(%mask) bias(%bias)
    dropout(%keys, %qi, %ki) sizes = [2, 5, 5, 3, 1, 4, 4] scale = 0.5
    {causal, dropout = 0.1 : f64,
     q_view = array<i64: 0, 60, 12, 4, 4, 1>, k_view = array<i64: 0, 60, 12, 4, 0, 1>, v_view = array<i64: 0, 60, 12, 4, 0, 1>,
     o_view = array<i64: 0, 60, 12, 4, 4, 1>, lse_view = array<i64: 0, 15, 1, 5, 5, 0>,
     q_positions_view = array<i64: 0, 0, 1>, k_positions_view = array<i64: 0, 0, 1>, q_segments_view = array<i64: 0, 5, 1>,
     k_segments_view = array<i64: 0, 5, 1>, key_mask_view = array<i64: 0, 5, 1>, bias_view = array<i64: 0, 0, 5, 0, 0, 1>,
     dropout_keys_view = array<i64: 0, 3, 0, 1, 1, 0>, q_index_view = array<i64: 0, 0, 1>, k_index_view = array<i64: 0, 0, 1>}
    : (tensor<2x5x3x1x4xbf16>, tensor<2x5x3x4xbf16>, tensor<2x5x3x4xbf16>, tensor<5xi64>, tensor<5xi64>, tensor<2x5xi64>,
       tensor<2x5xi64>, tensor<2x5xi1>, tensor<5x5xf32>, tensor<2x3xi64>, tensor<5xi64>, tensor<5xi64>)
    -> (tensor<2x5x3x1x4xbf16>, tensor<2x3x1x5xf32>, tensor<64xi8>)
  %d:4 = rt.attention_grad do(%do) q(%q) k(%k) v(%v) o(%o) lse(%lse) positions(%qpos, %kpos) segments(%qdoc, %kdoc)
    key_mask(%mask) bias(%bias) dropout(%keys, %qi, %ki) sizes = [2, 5, 5, 3, 1, 4, 4] scale = 0.5 into [0, 1, 2]
    {causal, dropout = 0.1 : f64, do_view = array<i64: 0, 60, 12, 4, 4, 1>,
     q_view = array<i64: 0, 60, 12, 4, 4, 1>, k_view = array<i64: 0, 60, 12, 4, 0, 1>, v_view = array<i64: 0, 60, 12, 4, 0, 1>,
     o_view = array<i64: 0, 60, 12, 4, 4, 1>, lse_view = array<i64: 0, 15, 1, 5, 5, 0>,
     dq_view = array<i64: 0, 60, 12, 4, 4, 1>, dk_view = array<i64: 0, 60, 12, 4, 0, 1>, dv_view = array<i64: 0, 60, 12, 4, 0, 1>,
     q_positions_view = array<i64: 0, 0, 1>, k_positions_view = array<i64: 0, 0, 1>, q_segments_view = array<i64: 0, 5, 1>,
     k_segments_view = array<i64: 0, 5, 1>, key_mask_view = array<i64: 0, 5, 1>, bias_view = array<i64: 0, 0, 5, 0, 0, 1>,
     dropout_keys_view = array<i64: 0, 3, 0, 1, 1, 0>, q_index_view = array<i64: 0, 0, 1>, k_index_view = array<i64: 0, 0, 1>}
    : (tensor<2x5x3x4xbf16>, tensor<2x5x3x1x4xbf16>, tensor<2x5x3x4xbf16>, tensor<2x5x3x4xbf16>, tensor<2x5x3x1x4xbf16>, tensor<2x3x1x5xf32>,
       tensor<5xi64>, tensor<5xi64>, tensor<2x5xi64>, tensor<2x5xi64>, tensor<2x5xi1>, tensor<5x5xf32>, tensor<2x3xi64>, tensor<5xi64>, tensor<5xi64>)
    -> (tensor<2x5x3x1x4xbf16>, tensor<2x5x3x4xbf16>, tensor<2x5x3x4xbf16>, tensor<64xi8>)
  return
}
func.func @windows(%x: tensor<2x6x8xf32>, %w: tensor<4x3x3xf32>, %y: tensor<2x4x4xf32>) {
  %0 = rt.conv forward %x, %w strides = [2] dilations = [1] low = [1] high = [0] groups = 2
    : (tensor<2x6x8xf32>, tensor<4x3x3xf32>) -> tensor<2x4x4xf32>
  %1:2 = rt.conv input_grad %y, %w strides = [2] dilations = [1] low = [1] high = [0] groups = 2
    : (tensor<2x4x4xf32>, tensor<4x3x3xf32>) -> (tensor<2x6x8xf32>, tensor<64xi8>)
  %2 = rt.conv filter_grad %y, %x strides = [2] dilations = [1] low = [1] high = [0] groups = 2
    : (tensor<2x4x4xf32>, tensor<2x6x8xf32>) -> tensor<4x3x3xf32>
  return
}
func.func @transfers(%x: tensor<4x3xf32>, %two: tensor<2x4x3xf32>, %n: tensor<2xi64>, %m: tensor<2xi64>) {
  %0 = rt.collective all_gather(%x) group = [1, 1, 2] layout = [4, 3, 1, 0] purpose = "activation" : (tensor<4x3xf32>) -> tensor<4x6xf32>
  %1 = rt.collective reduce_scatter(%two) group = [1, 1, 2] layout = [4, 3, 1, 0] purpose = "gradient" : (tensor<2x4x3xf32>) -> tensor<4x3xf32>
  %2 = rt.collective all_to_all(%two) group = [0, 1, 2] layout = [4, 3, 3, 4] purpose = "expert" : (tensor<2x4x3xf32>) -> tensor<3x2x4xf32>
  %3 = rt.collective all_to_all_v(%two) counts(%n, %m : tensor<2xi64>, tensor<2xi64>) group = [0, 1, 2] layout = [4, 3, 4, 3] purpose = "expert"
    : (tensor<2x4x3xf32>) -> tensor<2x4x3xf32>
  %4 = rt.collective permute(%x) group = [0, 1, 2] layout = [1, 12, 1, 0] purpose = "activation" {sources = array<i64: 1, 0>}
    : (tensor<4x3xf32>) -> tensor<4x3xf32>
  %5 = rt.collective broadcast(%x) group = [0, 1, 2] layout = [1, 12, 1, 0] purpose = "parameter" : (tensor<4x3xf32>) -> tensor<4x3xf32>
  %6 = rt.collective exchange(%x) group = [0, 1, 2] layout = [1, 12, 1, 12] purpose = "activation"
    {exchanges = array<i64: 2, 8, 3, 1, 0, 1, 2, 0, 1, 0, 1, 2, 0, 0, 0, 1>} : (tensor<4x3xf32>) -> tensor<4x3xf32>
  %7:3 = rt.collective all_reduce(%x, %two) group = [0, 1, 2] layout = [1, 12, 1, 0, 1, 24, 1, 0] purpose = "gradient"
    : (tensor<4x3xf32>, tensor<2x4x3xf32>) -> (tensor<4x3xf32>, tensor<2x4x3xf32>, !rt.token)
  %8:2 = rt.wait %7#2 values(%7#0, %7#1) sources(%x, %two)
    : (!rt.token, tensor<4x3xf32>, tensor<2x4x3xf32>, tensor<4x3xf32>, tensor<2x4x3xf32>) -> (tensor<4x3xf32>, tensor<2x4x3xf32>)
  return
}
func.func private @body(%h: tensor<3xf32>, %w: tensor<3xf32>) -> tensor<3xf32> attributes {rt.body} {
  %0 = rt.copy %h [0, 1] to [0, 1] shape = [3] : (tensor<3xf32>) -> tensor<3xf32>
  return %0 : tensor<3xf32>
}
func.func @loops(%pair: tensor<2x3xf32>, %w: tensor<3xf32>) {
  %0 = rt.repeat @body trips = 5 pairs(%pair) captures(%w) : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  return
}
func.func @moves(%x: tensor<4x6xf32>, %flag: tensor<1xi1>) {
  rt.condition %flag number = 3 : tensor<1xi1>
  %0 = rt.copy %x [0, 1, 6] to [0, 4, 1] shape = [6, 4] {nn.when = 3 : i64} : (tensor<4x6xf32>) -> tensor<6x4xf32>
  %1 = rt.alias %x offset = 0 : (tensor<4x6xf32>) -> tensor<2x3xf32>
  %2 = rt.fill 0.0 : f32 : tensor<6x4xf32>
  %3 = rt.copy %1 [0, 3, 1] to [0, 4, 1] shape = [2, 3] into(%2) : (tensor<2x3xf32>, tensor<6x4xf32>) -> tensor<6x4xf32>
  return
}
)";

/// How a command uses the bytes at an address.
struct Use {
  bool isRead = false, isWritten = false;
  int64_t bytes = 0; ///< at most
  bool operator==(const Use &other) const {
    return isRead == other.isRead && isWritten == other.isWritten;
  }
};
using Uses = std::map<int64_t, Use>;

std::string print(const Uses &uses) {
  std::string text;
  for (auto [at, use] : uses)
    text += " " + std::to_string(at) + (use.isRead ? ":r" : ":") +
            (use.isWritten ? "w" : "");
  return text;
}

int64_t bytesOf(Value value) {
  auto type = cast<RankedTensorType>(value.getType());
  return type.getNumElements() *
         program::sizeOf(*dtypeOf(type.getElementType()));
}

class AccessesTest : public ::testing::Test {
protected:
  AccessesTest() {
    DialectRegistry registry;
    registry.insert<arith::ArithDialect, func::FuncDialect, math::MathDialect,
                    nn::NNDialect, dist::DistDialect, rt::RTDialect>();
    registerInterfaceModels(registry);
    context.appendDialectRegistry(registry);
    context.loadAllAvailableDialects();
    module = parseSourceString<ModuleOp>(everything, &context);
  }

  static bool isCommand(Operation &op) {
    return !isa<rt::AliasOp, rt::ConditionOp, func::ReturnOp>(op);
  }

  /// Gives every value its own memory, except a result that must share the
  /// memory of an operand, as memory planning does.
  void plan() {
    Builder builder(&context);
    int64_t next = 0;
    auto place = [&](Value value) {
      next += 4096;
      addresses[value] = next;
      return rt::AddressAttr::get(&context, 0, next);
    };
    for (auto func : module->getOps<func::FuncOp>()) {
      if (func->hasAttr("nn.kernel"))
        continue;
      for (BlockArgument arg : func.getArguments()) {
        unsigned i = arg.getArgNumber();
        func.setArgAttr(
            i, "nn.name",
            builder.getStringAttr(func.getName() + std::to_string(i)));
        func.setArgAttr(
            i, "nn.role",
            nn::RoleAttr::get(builder.getContext(), nn::Role::Input));
        func.setArgAttr(i, rt::kBufferAttr, place(arg));
      }
      for (Operation &op : func.getBody().front())
        if (op.getNumResults())
          op.setAttr(rt::kBuffersAttr, planResults(&op, place));
      func->setAttr(rt::kLifetimesAttr, builder.getArrayAttr({}));
    }
    (*module)->setAttr(rt::kArenasAttr,
                       builder.getDenseI64ArrayAttr({next + 4096, 0}));
  }

  template <class Place> Attribute planResults(Operation *op, Place place) {
    auto command = cast<rt::CommandOpInterface>(op);
    SmallVector<Attribute> buffers;
    for (OpResult result : op->getResults()) {
      place(result);
      if (auto alias = command.getAlias(result.getResultNumber()))
        addresses[result] = addresses[op->getOperand(alias->operand)];
      for (rt::Reuse reuse : command.getReuse())
        if (reuse.required && reuse.result == result.getResultNumber())
          addresses[result] = addresses[op->getOperand(reuse.operand)];
      buffers.push_back(rt::AddressAttr::get(&context, 0, addresses[result]));
    }
    return ArrayAttr::get(&context, buffers);
  }

  /// Returns how an operation uses memory according to its definition: it reads
  /// its operands and writes its results.
  Uses usesOf(Operation &op) {
    Uses uses;
    // A wait's accesses are those of the command that it waits for. A loop's
    // are those of the commands of its body.
    if (isa<rt::WaitOp, rt::RepeatOp>(op))
      return uses;
    auto note = [&](Value value) -> Use & {
      Use &use = uses[addresses[value]];
      use.bytes = std::max(use.bytes, bytesOf(value));
      return use;
    };
    for (OpOperand &operand : op.getOpOperands()) {
      // A copy does not read its destination; it leaves the other elements of
      // the destination unchanged.
      auto copy = dyn_cast<rt::CopyOp>(op);
      if (!copy || operand.get() != copy.getDestination())
        note(operand.get()).isRead = true;
    }
    for (Value result : op.getResults())
      if (isa<RankedTensorType>(result.getType()))
        note(result).isWritten = true;
    if (auto number = op.getAttrOfType<IntegerAttr>("nn.when"))
      op.getBlock()->walk([&](rt::ConditionOp condition) {
        if (condition.getNumberAttr() == number)
          note(condition.getFlag()).isRead = true;
      });
    return uses;
  }

  /// Returns how a command uses memory according to accesses().
  Uses usesOf(const program::Program &program,
              const program::Command &command) {
    Uses uses;
    std::map<program::OperandKind, size_t> numbers;
    program::accesses(program.kernels, command, [&](const auto &operand) {
      bool isCondition = operand.kind == program::OperandKind::Condition;
      used[{isCondition ? 0 : command.op.index(), operand.kind,
            numbers[operand.kind]++}] |= operand.isUsed();
      if (!operand.isUsed())
        return;
      Use &use = uses[operand.buffer.offset];
      use.isRead |= operand.isRead;
      use.isWritten |= operand.isWritten;
      use.bytes = std::max(use.bytes, operand.spannedBytes());
    });
    return uses;
  }

  MLIRContext context;
  OwningOpRef<ModuleOp> module;
  llvm::DenseMap<Value, int64_t> addresses;
  /// Records whether a command of the program uses an operand, by command,
  /// operand kind, and index among the operands of that kind.
  std::map<std::tuple<size_t, program::OperandKind, size_t>, bool> used;
};

TEST_F(AccessesTest, AreThoseOfTheOperations) {
  ASSERT_TRUE(module);
  plan();
  FailureOr<program::Program> program = target::emitProgram(*module, {});
  ASSERT_TRUE(succeeded(program));
  std::set<std::string> operations;
  std::set<size_t> commands;
  for (auto func : module->getOps<func::FuncOp>()) {
    if (func->hasAttr("nn.kernel"))
      continue;
    std::string name = func.getName().str();
    const program::Action *action =
        program->findAction(func->hasAttr(rt::kBodyAttr) ? "." + name : name);
    ASSERT_TRUE(action) << func.getName().str();
    size_t index = 0;
    for (Operation &op : func.getBody().front()) {
      operations.insert(op.getName().getStringRef().str());
      if (!isCommand(op))
        continue;
      ASSERT_LT(index, action->commands.size());
      const program::Command &command = action->commands[index++];
      commands.insert(command.op.index());
      Uses said = usesOf(*program, command), expected = usesOf(op);
      std::string where = func.getName().str() + ": " +
                          op.getName().getStringRef().str() + " " +
                          std::to_string(index);
      EXPECT_TRUE(said == expected) << where << "\nfound:   " << print(said)
                                    << "\nexpected:" << print(expected);
      for (auto [at, use] : said) {
        EXPECT_GT(use.bytes, 0) << where << " at " << at;
        EXPECT_LE(use.bytes, expected[at].bytes) << where << " at " << at;
      }
    }
    EXPECT_EQ(index, action->commands.size());
  }
  // The module must have every operation of the dialect, the program must have
  // every command, and each operand must be used at least once.
  for (RegisteredOperationName name :
       context.getRegisteredOperationsByDialect("rt"))
    EXPECT_TRUE(operations.count(name.getStringRef().str()))
        << name.getStringRef().str();
  size_t call = program::Command{program::Call()}.op.index(); // no operation
  for (size_t i = 0; i < std::variant_size_v<decltype(program::Command::op)>;
       ++i)
    EXPECT_EQ(commands.count(i), i != call) << "command " << i;
  for (auto [operand, isUsed] : used)
    EXPECT_TRUE(isUsed) << "of command " << std::get<0>(operand) << " operand "
                        << std::get<2>(operand) << " of kind "
                        << int(std::get<1>(operand));
}

} // namespace
