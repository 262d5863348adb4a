// Emits the manifest: what the host knows about a compiled program.

#include "Emit.h"

#include "cleave/Dialect/NN/IR/Batch.h"
#include "cleave/Dialect/NN/IR/Parts.h"
#include "cleave/Interfaces/StageAttrs.h"
#include "cleave/Memory/LibraryCalls.h"
#include "cleave/Support/ValueUtils.h"
#include "cleave/Target/Schedule.h"
#include "cleave/Target/Target.h"

#include <set>

using namespace mlir;
using namespace cleave;
using namespace cleave::target;

static std::string dtypeText(Type element) {
  if (element.isInteger(1))
    return "i1";
  FailureOr<program::DType> dtype = dtypeOf(element);
  return succeeded(dtype) ? program::nameOf(*dtype) : "";
}

static std::vector<int64_t> sizesOf(RankedTensorType type) {
  return std::vector<int64_t>(type.getShape().begin(), type.getShape().end());
}

static int64_t number(DictionaryAttr attrs, StringRef key) {
  auto value = attrs ? attrs.getAs<IntegerAttr>(key) : nullptr;
  return value ? value.getInt() : 0;
}

static std::vector<ManifestLookup> lookupsOf(DictionaryAttr attrs) {
  std::vector<ManifestLookup> lookups;
  for (nn::LookupAttr part : nn::lookupsOf(attrs))
    lookups.push_back({part.getOffsets().asArrayRef().vec(),
                       part.getSizes().asArrayRef().vec(),
                       part.getStrides().asArrayRef().vec(), part.getRows(),
                       part.getTable().str(), part.getBits()});
  return lookups;
}

static WeightRef weightOf(nn::DataAttr data) {
  return {data.getFile().str(), uint64_t(data.getOffset()),
          uint64_t(data.getLength()), data.getDtype().str()};
}

/// Returns the manifest entry of a parameter, buffer or constant of the model.
static ManifestTensor tensorOf(const BoundaryBuffer &buffer) {
  ManifestTensor tensor;
  tensor.name = buffer.name;
  tensor.buffer = buffer.buffer;
  // A frozen parameter is still a parameter of the model.
  bool frozen = buffer.attrs && buffer.attrs.get(nn::kFrozenAttr);
  tensor.kind = nn::spell(frozen ? nn::Role::Parameter : buffer.role).str();
  tensor.dtype = dtypeText(buffer.type.getElementType());
  tensor.shape =
      nn::fileShapeOf(buffer.attrs, buffer.globalType.getShape()).vec();
  tensor.trainable = buffer.role == nn::Role::Parameter;
  if (nn::DataAttr data = nn::dataOf(buffer.attrs)) {
    tensor.weight = weightOf(data);
  } else if (nn::InitAttr init = nn::initOf(buffer.attrs)) {
    tensor.init.kind = nn::stringifyEnum(init.getKind()).str();
    if (init.getA())
      tensor.init.a = init.getA().getValueAsDouble();
    if (init.getB())
      tensor.init.b = init.getB().getValueAsDouble();
  } else if (buffer.role == nn::Role::Parameter &&
             nn::fileRankOf(buffer.attrs, tensor.shape.size()) >= 2) {
    // GPT-2 initializes its matrices in this way.
    tensor.init = {"normal", 0.0, 0.02};
  }
  for (nn::PartAttr part : nn::partsOf(buffer.attrs)) {
    ManifestPart entry{part.getName().str(), std::nullopt};
    if (part.getData())
      entry.weight = weightOf(part.getData());
    tensor.parts.push_back(entry);
  }
  for (StringRef other : nn::tiedNamesOf(buffer.attrs))
    tensor.aliases.push_back(other.str());
  return tensor;
}

/// Records the buffer that counts a router's pairs of a token and an expert:
/// all pairs of each expert (`chosen`), or the pairs that were not dropped
/// (`taken`).
static void noteCount(Manifest &manifest, nn::RouterAttr router,
                      const BoundaryBuffer &buffer) {
  std::string name = router.getName().str();
  auto found = llvm::find_if(manifest.routers, [&](const ManifestRouter &r) {
    return r.name == name;
  });
  if (found == manifest.routers.end())
    found = manifest.routers.insert(found, {name, "", ""});
  (router.getCounts() == nn::RouterCounts::Taken ? found->taken
                                                 : found->chosen) =
      buffer.buffer;
}

namespace {

/// Fills a manifest from a module and its boundary table.
class ManifestWriter {
public:
  ManifestWriter(ModuleOp module, const ManifestInfo &info,
                 const BoundaryTable &table,
                 const std::optional<PipelineSchedule> &schedule)
      : module(module), info(info), table(table), schedule(schedule) {}

  FailureOr<Manifest> run() {
    manifest.pipelined = schedule.has_value();
    manifest.model = info.model;
    manifest.weightsFolder = info.weightsFolder;
    manifest.configJson = info.configJson;
    manifest.microbatches = info.microbatches;
    manifest.accumulates = info.microbatches > 1;
    addMesh();
    addActions();
    for (auto [index, buffer] : llvm::enumerate(table.buffers))
      if (failed(addBuffer(index, buffer)))
        return failure();
    manifest.unread = info.unread;
    addCounts();
    shareSources();
    // If a model's inputs have no batch dimension, a call of @forward computes
    // one sample.
    manifest.batch = info.batch
                         ? info.batch
                         : std::max<int64_t>(1, samples) * info.microbatches;
    manifest.fingerprint = fingerprintOf(manifest);
    manifest.graph = info.graph;
    manifest.bound = info.bound;
    return std::move(manifest);
  }

private:
  void addMesh() {
    for (auto mesh : module.getOps<dist::MeshOp>())
      for (dist::MeshAxisAttr axis : mesh.getMesh().getAxes()) {
        manifest.mesh.push_back({axis.getName().str(), axis.getSize()});
        manifest.ranks *= axis.getSize();
      }
    if (!schedule)
      return;
    int64_t ranks = schedule->table.ranks;
    for (auto &[axis, size] : manifest.mesh)
      if (axis == schedule->axis) // its size is 1 within a stage
        size = ranks;
    manifest.ranks *= ranks;
  }

  /// Returns the name of the action that the host calls for a function; empty
  /// if the host does not call this function. In a pipeline, functions are
  /// named NAME.STAGE.
  StringRef actionOf(func::FuncOp func) const {
    StringRef name = func.getName();
    if (!schedule)
      return name;
    name = name.rsplit('.').first;
    if (name == kForwardPart)
      return nn::kLossGradFunc;
    if (name.starts_with(nn::kUpdateFunc))
      return nn::kUpdateFunc;
    bool isPart = llvm::is_contained(
        {kInputPart, kWeightPart, kBackwardPart, kLoadPart}, name);
    return isPart ? StringRef() : name;
  }

  void addActions() {
    for (func::FuncOp func : actionsOf(module)) {
      StringRef name = actionOf(func);
      if (name.empty())
        continue;
      if (!llvm::is_contained(manifest.actions, name))
        manifest.actions.push_back(name.str());
      if (name != nn::kForwardFunc)
        continue;
      hasForward = true;
      for (unsigned i = 0; i < func.getNumArguments(); ++i)
        ofForward.insert(table.ofArgument(func, i));
    }
  }

  LogicalResult addBuffer(int64_t index, const BoundaryBuffer &buffer) {
    switch (buffer.role) {
    case nn::Role::Parameter:
    case nn::Role::Buffer:
    case nn::Role::Constant:
      manifest.tensors.push_back(tensorOf(buffer));
      return success();
    case nn::Role::State:
      addState(buffer);
      return success();
    case nn::Role::Output:
      addOutput(buffer);
      return success();
    case nn::Role::Metric:
      manifest.metrics.push_back(
          {nn::kUpdateFunc.str(), buffer.name, buffer.buffer});
      return success();
    case nn::Role::Accumulator:
      if (nn::RouterAttr router = nn::routerOf(buffer.attrs))
        noteCount(manifest, router, buffer);
      else
        manifest.metrics.push_back(
            {nn::kLossGradFunc.str(), buffer.name, buffer.buffer});
      return success();
    case nn::Role::Loss:
    case nn::Role::Weight:
      for (StringRef action : {nn::kLossGradFunc, nn::kLossFunc})
        if (llvm::is_contained(manifest.actions, action))
          manifest.metrics.push_back(
              {action.str(), nn::spell(buffer.role).str(), buffer.buffer});
      return success();
    case nn::Role::Count:
    case nn::Role::Gradient:
    case nn::Role::Tap:
      return success();
    default:
      return addInput(index, buffer);
    }
  }

  void addState(const BoundaryBuffer &buffer) {
    ManifestState state;
    state.buffer = buffer.buffer;
    state.parameter = StringRef(buffer.name).rsplit('.').first.str();
    state.slot = StringRef(buffer.name).rsplit('.').second.str();
    if (StringRef(buffer.name).ends_with(nn::kMasterSuffix))
      state.init = nn::spell(nn::Role::Parameter).str();
    if (StringRef count = textOf(buffer.attrs, nn::kCountAttr); !count.empty())
      countOf[state.parameter] = count.str();
    manifest.state.push_back(state);
  }

  static int64_t batchDimOf(const BoundaryBuffer &buffer) {
    return nn::batchDimOf(buffer.attrs, buffer.globalType.getRank())
        .value_or(-1);
  }

  void addOutput(const BoundaryBuffer &buffer) {
    manifest.outputs.push_back({buffer.name, buffer.buffer,
                                dtypeText(buffer.type.getElementType()),
                                sizesOf(buffer.globalType), batchDimOf(buffer),
                                bool(buffer.attrs.get(nn::kWholeCallAttr))});
  }

  LogicalResult addInput(int64_t index, const BoundaryBuffer &buffer) {
    std::optional<InputRole> role = inputRoleOf(nn::spell(buffer.role));
    if (!role)
      return module.emitError("'")
             << buffer.name << "' has the role " << nn::spell(buffer.role)
             << " and no slot; expected a slot (pipe.slot), or the role of "
                "an input";
    ManifestInput input;
    input.name = buffer.name;
    input.buffer = buffer.buffer;
    input.role = *role;
    input.dtype = dtypeText(buffer.type.getElementType());
    input.shape = sizesOf(buffer.globalType);
    input.batchDim = batchDimOf(buffer);
    if (buffer.role == nn::Role::Input) {
      auto source = info.sources.find(buffer.name);
      input.source =
          source != info.sources.end() ? source->second : buffer.name;
    }
    if (buffer.role == nn::Role::Labels)
      input.source = info.labelsSource;
    input.trainingOnly = hasForward && !ofForward.count(index);
    input.vocabulary = number(buffer.attrs, nn::kVocabularyAttr);
    input.stepOf = textOf(buffer.attrs, nn::kWholeStepAttr).str();
    input.lookups = lookupsOf(buffer.attrs);
    if (input.batchDim >= 0 && input.stepOf.empty())
      samples = input.shape[input.batchDim];
    if (buffer.role == nn::Role::Tokens && input.shape.size() > 1)
      manifest.sequence = input.shape[1];
    manifest.inputs.push_back(input);
    return success();
  }

  /// Some parameters have a step count of their own. Adds these counts to the
  /// state in the manifest.
  void addCounts() {
    for (const auto &[parameter, name] : countOf)
      if (int64_t count = table.find(name, nn::Role::Count); count >= 0)
        manifest.state.push_back(
            {table.buffers[count].buffer, parameter, "step", "zeros"});
  }

  /// An input of the whole step gets its data from the same source as the
  /// corresponding input of a microbatch.
  void shareSources() {
    for (ManifestInput &input : manifest.inputs)
      for (const ManifestInput &own : manifest.inputs)
        if (!input.stepOf.empty() && own.name == input.stepOf) {
          input.role = own.role;
          input.source = own.source.empty() && own.role != InputRole::Labels
                             ? own.name
                             : own.source;
        }
  }

  ModuleOp module;
  const ManifestInfo &info;
  const BoundaryTable &table;
  const std::optional<PipelineSchedule> &schedule;
  Manifest manifest;
  /// The inputs that @forward reads. @loss may read more inputs, such as
  /// labels.
  std::set<int64_t> ofForward;
  bool hasForward = false;
  std::map<std::string, std::string> countOf; // name of the count, by parameter
  int64_t samples = 0;
};

} // namespace

FailureOr<Manifest> target::emitManifest(ModuleOp module,
                                         const ManifestInfo &info) {
  FailureOr<BoundaryTable> table = BoundaryTable::visible(module);
  FailureOr<std::optional<PipelineSchedule>> schedule = scheduleOf(module);
  if (failed(table) || failed(schedule))
    return failure();
  return ManifestWriter(module, info, *table, *schedule).run();
}
