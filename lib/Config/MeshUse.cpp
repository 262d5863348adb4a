// Checks that every mesh axis is used, and that no two strategies use the same
// axis.

#include "cleave/Config/Load.h"

#include "Names.h"

#include <map>
#include <set>

using namespace cleave;
using namespace cleave::config;

namespace {

using MaybeError = std::optional<ConfigError>;

// Checks, for one strategy after another, what the strategy requires of the
// mesh.
class MeshUse {
public:
  MeshUse(const Config &config, const Mesh &mesh)
      : config(config), parallel(config.parallel), mesh(mesh) {}

  MaybeError check() {
    for (auto part :
         {&MeshUse::checkData, &MeshUse::checkTensor, &MeshUse::checkSequence,
          &MeshUse::checkExpert, &MeshUse::checkPipeline, &MeshUse::checkShards,
          &MeshUse::checkUnused})
      if (MaybeError error = (this->*part)())
        return error;
    return std::nullopt;
  }

private:
  MaybeError checkData();
  MaybeError checkZero() const;
  MaybeError checkTensor();
  MaybeError checkTensorLayout();
  MaybeError checkSequence();
  MaybeError checkExpert();
  MaybeError checkExchange() const;
  MaybeError checkExpertAxis() const;
  MaybeError checkExpertWidth();
  MaybeError checkPipeline();
  MaybeError checkShards();
  MaybeError checkUnused();

  bool has(const std::string &axis) const {
    return std::any_of(mesh.axes.begin(), mesh.axes.end(),
                       [&](const auto &a) { return a.first == axis; });
  }
  MaybeError use(const std::string &key, const std::string &axis,
                 const std::string &standard);
  MaybeError own(const std::string &strategy, const std::string &axis,
                 const std::string &name = "axis");

  const Config &config;
  const ParallelConfig &parallel;
  const Mesh &mesh;
  std::set<std::string> used;
  std::map<std::string, std::string> splitBy; // axis to strategy
};

} // namespace

// The axis of a strategy may be missing from the mesh only if the axis has the
// strategy's default name (the strategy then has no effect). A name that the
// user gave must exist.
MaybeError MeshUse::use(const std::string &key, const std::string &axis,
                        const std::string &standard) {
  if (!has(axis) && axis != standard) {
    std::vector<std::string> names;
    for (const auto &a : mesh.axes)
      names.push_back(a.first);
    std::string message = key + " names the axis '" + axis +
                          "', but the mesh has " + describe(mesh);
    if (auto meant = nearest(axis, names))
      message += "; did you mean '" + *meant + "'?";
    return ConfigError{message};
  }
  used.insert(axis);
  return std::nullopt;
}

// Strategies that shard different things (samples, weights, layers) cannot use
// the same axis. Expert parallelism is not checked here, since its axis is
// often the data axis.
MaybeError MeshUse::own(const std::string &strategy, const std::string &axis,
                        const std::string &name) {
  std::string key = "parallel." + strategy;
  if (auto error = use(key + "." + name, axis, name == "axis" ? strategy : ""))
    return error;
  auto [first, fresh] = splitBy.try_emplace(axis, key + "." + name);
  if (fresh)
    return std::nullopt;
  if (!has(axis))
    return std::nullopt;
  std::string text = first->second + " and " + key + "." + name +
                     " both name the mesh axis '" + axis +
                     "'; give each an axis of its own";
  std::string other = first->second.substr(0, first->second.rfind('.'));
  if (other != key)
    text += ", or switch one off: --set " + (axis == strategy ? key : other) +
            "=false";
  return ConfigError{text};
}

MaybeError MeshUse::checkData() {
  const DataParallelConfig &data = parallel.data;
  if (!data.enabled)
    return std::nullopt;
  if (auto error = own("data", data.axis))
    return error;
  if (!data.replicate.empty())
    if (auto error = own("data", data.replicate, "replicate"))
      return error;
  return checkZero();
}

// Checks the keys of ZeRO, which shards parameters over the data axis and over
// the axes of sequence parallelism. Some keys, such as zero2_reduce, are
// allowed for one stage of ZeRO only.
MaybeError MeshUse::checkZero() const {
  const DataParallelConfig &data = parallel.data;
  std::string zero = "parallel.data.zero = " + std::to_string(data.zero);
  bool exists = has(data.axis);
  if (data.zero > 0 && !exists && boundaryAxes(config, mesh).all().empty())
    return ConfigError{zero + " splits over the mesh axis '" + data.axis +
                       "', but the mesh has " + describe(mesh) +
                       "; add --set mesh." + data.axis +
                       "=N, or leave zero out"};
  if (!data.replicate.empty() && !exists)
    return ConfigError{"parallel.data.replicate = '" + data.replicate +
                       "' is the outer axis of hybrid sharding, whose inner "
                       "one is '" +
                       data.axis + "', but the mesh has " + describe(mesh) +
                       "; to replicate only, set parallel.data.axis"};
  if (data.zero != 2 && data.zero2Reduce != "per_step")
    return ConfigError{"parallel.data.zero2_reduce = '" + data.zero2Reduce +
                       "' is a policy of ZeRO 2, but " + zero};
  if (data.zero != 3 && !data.reshardAfterForward)
    return ConfigError{
        "parallel.data.reshard_after_forward = false is a policy of ZeRO 3, "
        "but " +
        zero};
  return std::nullopt;
}

MaybeError MeshUse::checkTensor() {
  const TensorParallelConfig &tensor = parallel.tensor;
  if (!tensor.enabled)
    return std::nullopt;
  if (tensor.layout != "1d")
    return checkTensorLayout();
  if (!tensor.axes.empty())
    return ConfigError{"parallel.tensor.axes (" + join(tensor.axes) +
                       ") is for the layouts 2d, 2.5d and 3d, but "
                       "parallel.tensor.layout is 1d; name the one axis in "
                       "parallel.tensor.axis, or set the layout"};
  return own("tensor", tensor.axis);
}

// Checks the axes of the tensor-parallel layouts that use several mesh axes:
// 2d, 2.5d and 3d.
MaybeError MeshUse::checkTensorLayout() {
  const TensorParallelConfig &tensor = parallel.tensor;
  size_t count = tensor.layout == "2d" ? 2 : 3;
  const char *roles = tensor.layout == "2d"     ? "[row, col]"
                      : tensor.layout == "2.5d" ? "[depth, row, col]"
                                                : "[i, j, k]";
  if (tensor.axes.size() != count)
    return ConfigError{"parallel.tensor.layout = " + tensor.layout +
                       " lays weights over " + std::to_string(count) +
                       " axes; expected parallel.tensor.axes = " + roles +
                       ", found [" + join(tensor.axes) + "]"};
  for (size_t i = 0; i < count; ++i) {
    const std::string &axis = tensor.axes[i];
    if (auto error = use("parallel.tensor.axes", axis, ""))
      return error;
    if (std::count(tensor.axes.begin(), tensor.axes.end(), axis) > 1)
      return ConfigError{"parallel.tensor.axes names '" + axis +
                         "' twice; layout " + tensor.layout + " needs " +
                         std::to_string(count) + " axes of the mesh"};
    auto [first, fresh] = splitBy.try_emplace(axis, "parallel.tensor.axes");
    if (!fresh)
      return ConfigError{first->second +
                         " and parallel.tensor.axes both name the mesh "
                         "axis '" +
                         axis +
                         "': one splits the samples, the other the "
                         "weights; give each an axis of its own"};
  }
  return std::nullopt;
}

// Checks Megatron's sequence parallelism. It uses the axis of 1d tensor
// parallelism, and shards the values that tensor parallelism leaves replicated.
static MaybeError checkMegatron(const ParallelConfig &parallel,
                                const SequenceParallelConfig &sequence) {
  const TensorParallelConfig &tensor = parallel.tensor;
  std::string where =
      "parallel.sequence: kind megatron on axis '" + sequence.axis + "'";
  if (!tensor.enabled)
    return ConfigError{where + " needs tensor parallelism on that axis, which "
                               "is switched off (parallel.tensor = false)"};
  if (tensor.layout != "1d") {
    bool shared = contains(tensor.axes, sequence.axis);
    return ConfigError{
        where + " and parallel.tensor.layout = " + tensor.layout + " on [" +
        join(tensor.axes) + "] " +
        (shared ? "both split the values between products over it, one by "
                  "positions, the other by samples and features"
                : "do not go together: that layout has no such axis") +
        "; use layout 1d, or leave parallel.sequence out"};
  }
  if (sequence.axis != tensor.axis)
    return ConfigError{where + " needs the axis of tensor parallelism, '" +
                       tensor.axis + "' (parallel.tensor.axis)"};
  return std::nullopt;
}

// Checks that each kind of sequence parallelism appears at most once, and that
// Ulysses comes after (inside) ring attention.
static MaybeError
checkSequenceKinds(const std::vector<SequenceParallelConfig> &list) {
  std::set<std::string> kinds;
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string &kind = list[i].kind;
    std::string entry = "parallel.sequence: entry " + std::to_string(i + 1) +
                        ", kind " + kind + " on axis '" + list[i].axis + "'";
    if (!kinds.insert(kind).second)
      return ConfigError{entry + ", is the second of its kind; each kind "
                                 "splits the positions over one axis"};
    if (kind == "ulysses" && kinds.count("ring"))
      return ConfigError{entry + ", comes after a ring; the list is inner "
                                 "first, and Ulysses goes inside the ring: "
                                 "list it before kind ring"};
    if (kind != "megatron" && list[i].savedInput != "shard")
      return ConfigError{entry + ": saved_input is a policy of kind megatron"};
    if (kind != "ring" && (list[i].plan != "auto" || list[i].order != "zigzag"))
      return ConfigError{entry + ": plan and order are policies of kind ring"};
  }
  return std::nullopt;
}

MaybeError MeshUse::checkSequence() {
  if (auto error = checkSequenceKinds(parallel.sequence))
    return error;
  for (const SequenceParallelConfig &sequence : parallel.sequence) {
    if (sequence.kind == "megatron") {
      if (auto error = checkMegatron(parallel, sequence))
        return error;
      if (auto error = use("parallel.sequence", sequence.axis, ""))
        return error;
      continue;
    }
    std::string key = "parallel.sequence (" + sequence.kind + ")";
    if (auto error = use(key, sequence.axis, ""))
      return error;
    auto [first, fresh] = splitBy.try_emplace(sequence.axis, key);
    if (!fresh)
      return ConfigError{first->second + " and " + key +
                         " both name the mesh axis '" + sequence.axis +
                         "': positions need an axis of their own; only kind "
                         "megatron shares that of tensor parallelism"};
  }
  return std::nullopt;
}

MaybeError MeshUse::checkExpert() {
  if (parallel.expert.enabled)
    if (auto error =
            use("parallel.expert.axis", parallel.expert.axis, "expert"))
      return error;
  if (auto error = checkExchange())
    return error;
  if (auto error = checkExpertAxis())
    return error;
  return checkExpertWidth();
}

MaybeError MeshUse::checkExchange() const {
  if (parallel.expert.exchange == "hierarchical" &&
      (!parallel.expert.enabled || mesh.size(parallel.expert.axis) == 1))
    return ConfigError{
        "parallel.expert.exchange = 'hierarchical' sends rows by way of nodes, "
        "but experts are split over no axis (" +
        (parallel.expert.enabled
             ? "mesh axis '" + parallel.expert.axis + "' has 1 rank"
             : std::string("parallel.expert is switched off")) +
        "); leave it out, or give '" + parallel.expert.axis +
        "' ranks on several nodes"};
  return std::nullopt;
}

// Checks that the axis of expert parallelism does not also shard positions,
// because it already shards samples, as in data parallelism.
MaybeError MeshUse::checkExpertAxis() const {
  for (const SequenceParallelConfig &sequence : parallel.sequence)
    if (parallel.expert.enabled && sequence.axis == parallel.expert.axis)
      return ConfigError{"parallel.sequence and parallel.expert.axis both name "
                         "the mesh axis '" +
                         sequence.axis +
                         "', but experts go with samples; give them an axis of "
                         "their own, or that of parallel.data.axis"};
  if (auto found = splitBy.find(parallel.expert.axis);
      parallel.expert.enabled && found != splitBy.end() &&
      found->second != "parallel.data.axis")
    return ConfigError{found->second +
                       " and parallel.expert.axis both name "
                       "the mesh axis '" +
                       parallel.expert.axis +
                       "', but experts go with samples; give them an axis of "
                       "their own, or that of parallel.data.axis"};
  return std::nullopt;
}

// Checks that the axis that shards the inner width of experts does not also
// shard samples, positions or pipeline stages.
MaybeError MeshUse::checkExpertWidth() {
  const ExpertParallelConfig &expert = parallel.expert;
  const TensorParallelConfig &tensor = parallel.tensor;
  std::string key = "parallel.expert.tensor_axis", axis = expert.tensorAxis;
  if (axis.empty())
    return std::nullopt;
  if (!expert.enabled)
    return ConfigError{key + " = '" + axis +
                       "' splits experts, but parallel.expert is switched off"};
  if (auto error = use(key, axis, ""))
    return error;
  bool isTensor =
      tensor.enabled && tensor.layout == "1d" && tensor.axis == axis;
  bool pins = tensor.enabled && tensor.layout != "1d";
  for (const SequenceParallelConfig &sequence : parallel.sequence)
    pins |= sequence.kind == "megatron";
  if (pins && !isTensor)
    return ConfigError{key + " = '" + axis + "' and " +
                       (tensor.layout != "1d"
                            ? "parallel.tensor.layout = " + tensor.layout
                            : "parallel.sequence (megatron)") +
                       " do not go together: products of experts are laid out "
                       "like all others there; leave " +
                       key + " out"};
  auto found = splitBy.find(axis);
  std::string other =
      axis == expert.axis ? "parallel.expert.axis"
      : parallel.pipeline.enabled && axis == parallel.pipeline.axis
          ? "parallel.pipeline.axis"
      : found != splitBy.end() && !isTensor ? found->second
                                            : "";
  if (!other.empty())
    return ConfigError{other + " and " + key + " both name the mesh axis '" +
                       axis +
                       "', but the ranks that share an expert need the same "
                       "samples; take parallel.tensor.axis, or an axis of its "
                       "own"};
  return std::nullopt;
}

MaybeError MeshUse::checkPipeline() {
  if (parallel.pipeline.enabled && parallel.expert.enabled &&
      parallel.pipeline.axis == parallel.expert.axis)
    return ConfigError{"parallel.pipeline.axis and parallel.expert.axis both "
                       "name the mesh axis '" +
                       parallel.expert.axis +
                       "', but experts go with samples; give them an axis of "
                       "their own, or that of parallel.data.axis"};
  if (!parallel.pipeline.enabled)
    return std::nullopt;
  return own("pipeline", parallel.pipeline.axis);
}

MaybeError MeshUse::checkShards() {
  for (const ShardConfig &shard : config.shard)
    for (const std::vector<std::string> &dim : shard.dims)
      for (const std::string &axis : dim)
        // A sub-axis is written NAME:(BEFORE)SIZE.
        if (auto error = use("[[shard]] match = '" + shard.match + "': dims",
                             axis.substr(0, axis.find(':')), ""))
          return error;
  return std::nullopt;
}

MaybeError MeshUse::checkUnused() {
  for (const auto &[name, size] : mesh.axes)
    if (size > 1 && !used.count(name)) {
      if (name == "sequence")
        return ConfigError{
            "mesh.sequence = " + std::to_string(size) +
            " is used by no strategy; say how the positions are split over it: "
            "--set 'parallel.sequence=[{kind=\"ulysses\", axis=\"sequence\"}]' "
            "for heads inside attention, kind=\"ring\" for a ring (kind "
            "megatron splits positions over the tensor axis)"};
      return ConfigError{
          "mesh." + name + " = " + std::to_string(size) +
          " is used by no strategy; name it in [parallel] (for example "
          "--set parallel.data.axis=" +
          name + "), in a [[shard]], or remove it"};
    }
  return std::nullopt;
}

std::optional<ConfigError> cleave::checkMeshUse(const Config &config,
                                                const Mesh &mesh) {
  return MeshUse(config, mesh).check();
}
