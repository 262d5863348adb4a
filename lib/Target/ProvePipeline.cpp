// Proves that every emitted pipeline program follows its schedule and cannot
// deadlock (VerifyProgram.h).

#include "EmitPipeline.h"

#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Interfaces/StageAttrs.h"
#include "cleave/PipelineSchedule/VerifyProgram.h"

#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::target;
using namespace cleave::pipeline;

/// Returns the properties of each stage that its functions determine: whether
/// it reduces gradients, and whether its weight gradients read gathered
/// weights. The table of the schedule does not contain them.
static std::vector<StageTraits> traitsOf(ModuleOp module, int stages) {
  std::vector<StageTraits> traits(stages);
  for (int stage = 0; stage < stages; ++stage) {
    auto find = [&](StringRef name) {
      return module.lookupSymbol<func::FuncOp>(
          (name + "." + Twine(stage)).str());
    };
    traits[stage].reduces = bool(find(kReduceGradFunc));
    traits[stage].weightsRead = false;
    if (func::FuncOp weights = find(kWeightPart))
      for (unsigned i = 0; i < weights.getNumArguments(); ++i)
        traits[stage].weightsRead |=
            pipe::slotOf(weights.getArgAttrDict(i)) == kGatheredSlot;
  }
  return traits;
}

LogicalResult PipelineEmitter::prove() {
  auto replayed = replay(schedule.table);
  if (!replayed)
    return module.emitError() << replayed.error();
  Program lowered = programOf(table, *replayed);
  lowered.traits = traitsOf(module, table.stages);

  StepOrigin origin{nn::kLossGradFunc.str(), table, {}};
  origin.slotBytes.resize(program.arenas.size());
  for (const auto &[place, instance] : instances)
    for (const auto &[name, slots] : instance->slots)
      if (!slots.slotOf.empty() && name != "version") // microbatches share it
        origin.slotBytes[instance->arenas[slots.arena]] = slots.bytes;

  for (const auto &findings :
       {verify(lowered), verify(program), verifyStep(program, origin)}) {
    for (const Finding &finding : findings)
      module.emitError() << "schedule " << table.schedule
                         << " is rejected: " << finding.rule << ": "
                         << finding.message;
    if (!findings.empty())
      return failure();
  }
  return success();
}

LogicalResult PipelineEmitter::checkPorts() const {
  // Reports values with this role and this `pipe.slot` that one of the
  // functions `readers` of stage `to` reads but none of the functions `makers`
  // of stage `from` computes.
  auto check = [&](const Instance &from, const Instance &to,
                   ArrayRef<StringRef> makers, ArrayRef<StringRef> readers,
                   nn::Role role, StringRef slot) -> LogicalResult {
    SmallVector<std::string> given = handedOver(from, to, makers, role);
    for (StringRef reader : readers) {
      auto found = to.functions.find(reader.str());
      if (found == to.functions.end())
        continue;
      func::FuncOp func = found->second;
      for (unsigned i = 0; i < func.getNumArguments(); ++i) {
        StringRef own = pipe::slotOf(func.getArgAttrDict(i));
        StringRef name = nn::nameOf(func, i);
        if (nn::roleOf(func, i) == role && own.starts_with(slot) &&
            !llvm::is_contained(given, name))
          return func.emitError("@")
                 << func.getName() << " reads " << nn::spell(role) << " '"
                 << name << "', which no action of stage " << from.stage
                 << " hands over; expected a result of that name and role in "
                 << llvm::join(makers, " or ");
      }
    }
    return success();
  };
  const StringRef all[] = {kForwardPart, kInputPart, kWeightPart,
                           kBackwardPart};
  for (int stage = 0; stage + 1 < table.stages; ++stage) {
    const Instance &below = at(ownerOf(stage), stage);
    const Instance &above = at(ownerOf(stage + 1), stage + 1);
    if (failed(check(below, above, {kForwardPart}, all, nn::Role::Activation,
                     "recv_f")) ||
        failed(check(above, below, {kInputPart, kBackwardPart},
                     ArrayRef(all).drop_front(), nn::Role::Cotangent,
                     "recv_b")))
      return failure();
    for (StringRef function : {nn::kLossFunc, nn::kForwardFunc})
      if (failed(check(below, above, function, function, nn::Role::Activation,
                       "")))
        return failure();
  }
  return success();
}
