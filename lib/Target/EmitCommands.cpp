// Emits operations of the rt dialect as commands of a program.

#include "Emit.h"

#include "cleave/Interfaces/Condition.h"
#include "cleave/Interfaces/Interfaces.h"
#include "cleave/Memory/LibraryCalls.h"
#include "cleave/Memory/Source.h"
#include "cleave/Support/ValueUtils.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::target;

static int64_t elementBytes(Value value) {
  auto type = typeOf(value);
  return program::sizeOf(*dtypeOf(type.getElementType()));
}

static std::vector<int64_t> numbers(ArrayRef<int64_t> values) {
  return std::vector<int64_t>(values.begin(), values.end());
}

/// Converts triples (index of the mesh axis, pre, size) to sub-axes; see
/// program::SubAxis.
static std::vector<program::SubAxis> subAxes(ArrayRef<int64_t> triples) {
  std::vector<program::SubAxis> axes;
  for (; !triples.empty(); triples = triples.drop_front(3))
    axes.push_back({int32_t(triples[0]), triples[1], triples[2]});
  return axes;
}

program::StringId CommandEmitter::intern(StringRef text) {
  if (text.empty())
    return 0;
  auto [entry, isNew] = strings.try_emplace(text, program.strings.size());
  if (isNew)
    program.strings.push_back(text.str());
  return entry->second;
}

/// Returns the index of the kernel in the program, and adds the kernel if it is
/// new. The operands of its first launch describe it, because all launches of a
/// kernel have the same operand types, and read equally far past the ends of
/// their operands.
uint32_t CommandEmitter::kernelIndex(rt::LaunchOp op) {
  auto [entry, isNew] =
      kernels.try_emplace(op.getKernel(), program.kernels.size());
  if (!isNew)
    return entry->second;
  program::Kernel &kernel = program.kernels.emplace_back();
  kernel.symbol = op.getKernel().str();
  for (Value operand : op->getOperands())
    kernel.args.push_back({bytesOf(operand.getType()), false});
  if (auto beyond = op->getAttrOfType<DenseI64ArrayAttr>(rt::kBeyondAttr))
    for (auto [arg, operand, elements] :
         llvm::zip(kernel.args, op->getOperands(), beyond.asArrayRef()))
      arg.bytes += elements * elementBytes(operand);
  // If an operand shares memory with a result, only the result is marked as
  // written.
  for (Value result : op->getResults())
    kernel.args.push_back({bytesOf(result.getType()), true});
  kernel.numArgs = kernel.args.size();
  return entry->second;
}

/// Adds terms that depend on the rank to the address `ref`. Each term consists
/// of a sub-axis (three numbers) and an offset. Operations state the offset in
/// elements of `width` bytes, a BufferRef in bytes.
static void addTerms(program::BufferRef &ref, ArrayRef<int64_t> terms,
                     int64_t width) {
  for (; !terms.empty(); terms = terms.drop_front(4))
    ref.terms.push_back(
        {{int32_t(terms[0]), terms[1], terms[2]}, terms[3] * width});
}

program::BufferRef CommandEmitter::ref(Value value, int64_t offset) {
  int64_t width = elementBytes(value);
  if (auto alias = value.getDefiningOp<rt::AliasOp>()) {
    program::BufferRef source =
        ref(alias.getSource(), int64_t(alias.getOffset()) + offset);
    addTerms(source, alias.getAxisTerms(), width);
    return source;
  }
  rt::AddressAttr where = rt::addressOf(value);
  program::BufferRef result;
  result.arena = where.getArena();
  result.offset = where.getOffset() + offset * width;
  if (where.getTrips())
    for (ArrayRef<int64_t> terms = where.getTrips(); !terms.empty();
         terms = terms.drop_front(3))
      result.terms.push_back(
          program::AxisTerm::ofTrip(int32_t(terms[0]), terms[1], terms[2]));
  return result;
}

program::Launch CommandEmitter::launch(rt::LaunchOp op, int64_t &flops) {
  program::Launch launch;
  for (Value value : op->getOperands())
    launch.args.push_back(ref(value));
  for (Value value : op->getResults())
    launch.args.push_back(ref(value));
  launch.kernel = kernelIndex(op);
  launch.extent = op.getExtent();
  launch.grain = op.getGrain();
  auto [entry, isNew] = kernelFlops.try_emplace(op.getKernel(), 0);
  if (isNew)
    if (auto kernel = module.lookupSymbol<func::FuncOp>(op.getKernel()))
      kernel.walk(
          [&](CostInterface cost) { entry->second += cost.getFlops(); });
  flops = entry->second;
  return launch;
}

program::Gemm CommandEmitter::gemm(rt::GemmOp op) {
  program::Gemm gemm = describe(op);
  gemm.a.buffer = ref(op.getA(), op.getAView()[0]);
  gemm.b.buffer = ref(op.getB(), op.getBView()[0]);
  gemm.c.buffer = ref(op.getC(), op.getCView()[0]);
  if (op.getBias())
    gemm.bias = ref(op.getBias(), op.getBiasOffset());
  if (Value kept = op.getPreActivation())
    gemm.preActivation = ref(kept, op.getCView()[0]);
  if (Value at = op.getDerivativeAt())
    gemm.derivativeAt = ref(at, op.getCView()[0]);
  if (Value sums = op.getSums())
    gemm.sums = ref(sums);
  if (Value scratch = op.getScratchResult()) {
    gemm.workspace = ref(scratch);
    gemm.workspaceSize = bytesOf(scratch.getType());
  }
  return gemm;
}

program::GroupedGemm CommandEmitter::grouped(rt::GroupedGemmOp op) {
  program::GroupedGemm x = describe(op);
  program::BufferRef other = ref(op.getOther(), op.getOtherView()[0]),
                     result = ref(op.getResult(), op.getResultView()[0]);
  x.a.buffer = ref(op.getLeft(), op.getLeftView()[0]);
  x.c.buffer = op.getOuter() ? other : result;
  x.w.buffer = op.getOuter() ? result : other;
  x.ids.buffer = ref(op.getIds(), op.getIdsView()[0]);
  if (Value scratch = op.getScratchResult()) {
    x.workspace = ref(scratch);
    x.workspaceSize = bytesOf(scratch.getType());
  }
  return x;
}

program::AttentionRef CommandEmitter::strided(program::AttentionRef described,
                                              Value value,
                                              ArrayRef<int64_t> view) {
  described.buffer = ref(value, view[0]);
  return described;
}

template <class Op>
void CommandEmitter::fillShared(program::Attention &x, Op op) {
  x.q = strided(x.q, op.getQ(), op.getQView());
  x.k = strided(x.k, op.getK(), op.getKView());
  x.v = strided(x.v, op.getV(), op.getVView());
  x.o = strided(x.o, op.getO(), op.getOView());
  x.lse = strided(x.lse, op.getLse(), op.getLseView());
  auto index = [&](program::IndexRef &described, Value value,
                   ArrayRef<int64_t> view) {
    if (value)
      described.buffer = ref(value, view[0]);
  };
  index(x.queryPositions, op.getQPositions(), op.getQPositionsView());
  index(x.keyPositions, op.getKPositions(), op.getKPositionsView());
  index(x.querySegments, op.getQSegments(), op.getQSegmentsView());
  index(x.keySegments, op.getKSegments(), op.getKSegmentsView());
  index(x.keyMask, op.getKeyMask(), op.getKeyMaskView());
  if (op.getBias())
    x.bias = strided(x.bias, op.getBias(), op.getBiasView());
  index(x.queryIndices, op.getQIndex(), op.getQIndexView());
  index(x.keyIndices, op.getKIndex(), op.getKIndexView());
  if (op.getDropoutKeys())
    x.dropoutKeys =
        strided(x.dropoutKeys, op.getDropoutKeys(), op.getDropoutKeysView());
  if (Value scratch = op.getScratchResult()) {
    x.workspace = ref(scratch);
    x.workspaceSize = bytesOf(scratch.getType());
  }
}

program::Attention CommandEmitter::attention(rt::AttentionOp op) {
  program::Attention x = describe(op);
  fillShared(x, op);
  return x;
}

program::Attention CommandEmitter::attention(rt::AttentionGradOp op) {
  program::Attention x = describe(op);
  fillShared(x, op);
  ArrayRef<int64_t> into = op.getInto();
  x.dO = strided(x.dO, op.getDO(), op.getDoView());
  x.dq = strided(x.dq, op.getResult(into[0]), op.getDqView());
  x.dk = strided(x.dk, op.getResult(into[1]), op.getDkView());
  x.dV = strided(x.dV, op.getResult(into[2]), op.getDvView());
  return x;
}

program::Convolution CommandEmitter::convolution(rt::ConvOp op) {
  program::Convolution x = describe(op);
  x.x = ref(op.getInput());
  x.w = ref(op.getFilter());
  x.y = ref(op.getOutput());
  if (Value scratch = op.getScratchResult()) {
    x.workspace = ref(scratch);
    x.workspaceSize = bytesOf(scratch.getType());
  }
  return x;
}

program::PlanRows CommandEmitter::planRows(rt::PlanRowsOp op) {
  program::PlanRows plan;
  ArrayRef<int64_t> sizes = typeOf(op.getSources()).getShape();
  plan.rounds = sizes[0];
  plan.ranks = sizes[1];
  plan.places = sizes[2];
  plan.rows = typeOf(op.getIds()).getNumElements();
  plan.tile = op.getTile();
  plan.ids = ref(op.getIds());
  plan.sources = ref(op.getSources());
  plan.placeOf = ref(op.getPlaces());
  plan.sent = ref(op.getSent());
  plan.counts = ref(op.getCounts());
  return plan;
}

program::SortRows CommandEmitter::sortRows(rt::SortRowsOp op) {
  program::SortRows sort;
  sort.rows = typeOf(op.getIds()).getNumElements();
  sort.groups = op.getGroups();
  sort.ids = ref(op.getIds());
  sort.order = ref(op.getOrder());
  sort.placeOf = ref(op.getPlaces());
  sort.sorted = ref(op.getSorted());
  return sort;
}

program::PositionInExpert
CommandEmitter::positionInExpert(rt::PositionInExpertOp op) {
  auto shapeOf = [](Value value) { return typeOf(value).getShape(); };
  program::PositionInExpert order;
  ArrayRef<int64_t> ids = shapeOf(op.getIds());
  order.b = ids[0];
  order.s = ids[1];
  order.k = ids.size() == 3 ? ids[2] : 1;
  order.e = op.getExperts();
  order.perSample = shapeOf(op.getPositions()).size() == 2;
  order.ids = ref(op.getIds());
  order.positions = ref(op.getPositions());
  if (op.getLoads()) {
    order.rows = shapeOf(op.getLoads())[0];
    order.loads = ref(op.getLoads());
    order.samples = ref(op.getSamples());
  }
  order.result = ref(op.getResult());
  order.scratch = ref(op.getScratch());
  return order;
}

program::Collective CommandEmitter::collective(rt::CollectiveOp op) {
  program::Collective collective;
  collective.kind = static_cast<program::CollectiveKind>(op.getKind());
  collective.reduce = static_cast<program::ReduceOp>(op.getReduce());
  auto type = typeOf(op.getInputs()[0]);
  collective.dtype = *dtypeOf(type.getElementType());
  collective.group = subAxes(op.getGroup());
  ArrayRef<int64_t> layout = op.getLayout();
  for (unsigned i = 0; i < op.getInputs().size(); ++i) {
    program::Transfer part;
    part.src = ref(op.getInputs()[i]);
    part.dst = ref(op.getValues()[i]);
    part.outer = layout[4 * i];
    part.inner = layout[4 * i + 1];
    part.dstOuter = layout[4 * i + 2];
    part.dstInner = layout[4 * i + 3];
    part.count = part.outer * part.inner;
    collective.parts.push_back(std::move(part));
  }
  collective.purpose = intern(op.getPurpose());
  if (Value token = op.getToken()) {
    collective.token = tokens.size();
    tokens[token] = collective.token;
  }
  for (int64_t source : op.getSources())
    collective.sources.push_back(source);
  collective.root = op.getRoot();
  collective.exchanges = *op.describeExchanges();
  if (!op.getCounts().empty()) {
    collective.sent = ref(op.getCounts()[0]);
    collective.received = ref(op.getCounts()[1]);
    collective.expected = numbers(op.getExpected());
    collective.by = subAxes(op.getBy());
    collective.home = op.getHome();
  }
  return collective;
}

program::Copy CommandEmitter::copy(rt::CopyOp op) {
  program::Copy copy;
  copy.src = ref(op.getSource(), op.getSourceView()[0]);
  copy.dst = ref(op.getResult(), op.getResultView()[0]);
  copy.elementSize = elementBytes(op.getResult());
  addTerms(copy.src, op.getAxisTerms(), copy.elementSize);
  copy.shape = numbers(op.getShape());
  copy.srcStrides = numbers(op.getSourceView().drop_front());
  copy.dstStrides = numbers(op.getResultView().drop_front());
  return copy;
}

program::Fill CommandEmitter::fill(rt::FillOp op) {
  program::Fill fill;
  fill.dst = ref(op.getResult());
  fill.elementSize = elementBytes(op.getResult());
  fill.count = op.getType().getNumElements();
  if (auto real = dyn_cast<FloatAttr>(op.getValue()))
    fill.pattern = real.getValue().bitcastToAPInt().getZExtValue();
  else
    fill.pattern = cast<IntegerAttr>(op.getValue()).getValue().getZExtValue();
  return fill;
}

LogicalResult CommandEmitter::emit(Operation *op) {
  if (auto condition = dyn_cast<rt::ConditionOp>(op))
    flags[condition.getNumberAttr()] = ref(condition.getFlag());
  if (isa<rt::AliasOp, rt::ConditionOp, func::ReturnOp>(op))
    return success();
  program::Command command;
  // The flag of a condition that another action computes is not known here. The
  // command then always runs, which is allowed (Condition.h).
  if (Attribute when = op->getAttr(kWhenAttrName); when && flags.contains(when))
    command.when = flags[when];
  if (auto interface = dyn_cast<rt::CommandOpInterface>(op))
    command.flops = interface.getFlops();
  LogicalResult known =
      llvm::TypeSwitch<Operation *, LogicalResult>(op)
          .Case([&](rt::LaunchOp op) {
            command.op = launch(op, command.flops);
            return success();
          })
          .Case([&](rt::GemmOp op) {
            command.op = gemm(op);
            return success();
          })
          .Case([&](rt::GroupedGemmOp op) {
            command.op = grouped(op);
            return success();
          })
          .Case<rt::AttentionOp, rt::AttentionGradOp>([&](auto op) {
            command.op = attention(op);
            return success();
          })
          .Case([&](rt::ConvOp op) {
            command.op = convolution(op);
            return success();
          })
          .Case([&](rt::CollectiveOp op) {
            command.op = collective(op);
            return success();
          })
          .Case([&](rt::PlanRowsOp op) {
            command.op = planRows(op);
            return success();
          })
          .Case([&](rt::SortRowsOp op) {
            command.op = sortRows(op);
            return success();
          })
          .Case([&](rt::PositionInExpertOp op) {
            command.op = positionInExpert(op);
            return success();
          })
          .Case([&](rt::WaitOp op) {
            command.op = program::Wait{tokens.lookup(op.getToken())};
            return success();
          })
          .Case([&](rt::CopyOp op) {
            command.op = copy(op);
            return success();
          })
          .Case([&](rt::FillOp op) {
            command.op = fill(op);
            return success();
          })
          .Case([&](rt::RepeatOp op) {
            command.op = repeat(op, command.flops);
            return success();
          })
          .Default([](Operation *op) {
            return op->emitOpError("is no command that can be emitted");
          });
  if (failed(known))
    return failure();
  command.source =
      intern(isa<rt::CollectiveOp>(op) ? sourcesOf(op) : sourceOf(op));
  action->commands.push_back(std::move(command));
  return success();
}

program::Repeat CommandEmitter::repeat(rt::RepeatOp op, int64_t &flops) {
  program::Repeat repeat{bodies.lookup(op.getBody()), int64_t(op.getTrips())};
  flops = 0;
  for (const program::Command &command :
       program.actions[repeat.action].commands)
    flops += repeat.trips * command.flops;
  return repeat;
}

LogicalResult CommandEmitter::emitBodies(func::FuncOp func) {
  for (auto repeat : func.getOps<rt::RepeatOp>()) {
    auto body = cast<func::FuncOp>(repeat.lookupBody().getOperation());
    if (failed(emit(body)))
      return failure();
    program.actions.back().name.insert(0, ".");
    bodies[repeat.getBody()] = program.actions.size() - 1;
  }
  return success();
}

LogicalResult CommandEmitter::emit(func::FuncOp func) {
  if (failed(emitBodies(func)))
    return failure();
  action = &program.actions.emplace_back();
  action->name = func.getName().str();
  tokens.clear();
  flags.clear();
  for (Operation &op : actionBody(func))
    if (failed(emit(&op)))
      return failure();
  auto lifetimes = func->getAttrOfType<ArrayAttr>(rt::kLifetimesAttr);
  for (auto entry : lifetimes.getAsRange<rt::LifetimeAttr>()) {
    program::Lifetime lifetime;
    lifetime.name = intern(entry.getName());
    lifetime.arena = rt::kTransientArena;
    lifetime.offset = entry.getOffset();
    lifetime.size = entry.getSize();
    lifetime.first = entry.getFirst();
    lifetime.last = entry.getLast();
    action->lifetimes.push_back(lifetime);
  }
  return success();
}
