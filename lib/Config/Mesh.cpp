// The mesh: order of its axes, a size of -1, agreement with the rank count, and
// whether every axis is used, and by one strategy.

#include "cleave/Config/Load.h"

#include "cleave/launcher.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <set>

using namespace cleave;

namespace {

const std::vector<std::string> &defaultOrder() {
  static const std::vector<std::string> order = {"pipeline", "data", "expert",
                                                 "sequence", "tensor"};
  return order;
}

bool contains(const std::vector<std::string> &names, const std::string &name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string join(const std::vector<std::string> &names) {
  std::string text;
  for (const std::string &name : names)
    text += (text.empty() ? "" : ", ") + name;
  return text;
}

// The axes of the mesh in order, sizes as given.
ConfigResult<Mesh> orderedAxes(const MeshConfig &config) {
  const std::vector<std::string> &order =
      config.axes.empty() ? defaultOrder() : config.axes;
  for (size_t i = 0; i < order.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (order[i] == order[j])
        return ConfigError{"mesh.axes names '" + order[i] +
                           "' twice; name every axis once"};

  for (const auto &[name, size] : config.sizes) {
    if (contains(order, name))
      continue;
    std::string message = "mesh." + name + ": '" + name + "' is ";
    if (config.axes.empty()) {
      message += "neither a key of [mesh] nor one of its default axes (" +
                 join(order) + ")";
      message += "; list all axes in mesh.axes, slowest first, to use "
                 "another name";
      std::vector<std::string> known = order;
      known.insert(known.end(), {"axes", "ranks_per_node"});
      const Meaning *meaning = meaningOf(name);
      if (meaning && std::string(meaning->key).starts_with("mesh."))
        message += "; did you mean " + describe(*meaning) + "?";
      else if (auto meant = nearest(name, known))
        message += "; did you mean 'mesh." + *meant + "'?";
      return ConfigError{message};
    }
    message += "not listed in mesh.axes (" + join(order) + ")";
    if (auto meant = nearest(name, order))
      message += "; did you mean 'mesh." + *meant + "'?";
    return ConfigError{message};
  }

  Mesh mesh;
  for (const std::string &name : order) {
    auto found = config.sizes.find(name);
    if (found != config.sizes.end())
      mesh.axes.emplace_back(name, found->second);
    else if (!config.axes.empty())
      mesh.axes.emplace_back(name, 1); // listed, so shardings may name it
  }
  return mesh;
}

} // namespace

int64_t Mesh::ranks() const {
  int64_t product = 1;
  for (const auto &axis : axes)
    product *= axis.second;
  return product;
}

int64_t Mesh::size(const std::string &axis) const {
  for (const auto &[name, size] : axes)
    if (name == axis)
      return size;
  return 1;
}

std::string cleave::describe(const Mesh &mesh) {
  std::string text;
  for (const auto &[name, size] : mesh.axes)
    text += (text.empty() ? "" : ", ") + name + "=" + std::to_string(size);
  return text.empty() ? "no axes" : text;
}

ConfigResult<Mesh> cleave::resolveMesh(const Config &config,
                                       std::optional<int64_t> ranks) {
  ConfigResult<Mesh> mesh = orderedAxes(config.mesh);
  if (!mesh)
    return mesh;
  if (ranks && *ranks < 1)
    return ConfigError{"found " + std::to_string(*ranks) +
                       " ranks; expected at least 1"};

  constexpr int64_t limit = 1 << 24;
  int64_t known = 1;
  std::pair<std::string, int64_t> *rest = nullptr;
  for (auto &axis : mesh->axes) {
    if (axis.second == -1) {
      if (rest)
        return ConfigError{"mesh." + rest->first + " and mesh." + axis.first +
                           " are both -1; only one axis can take what is left "
                           "of the ranks"};
      rest = &axis;
      continue;
    }
    if (axis.second > limit / known)
      return ConfigError{"the mesh (" + describe(*mesh) + ") has more than " +
                         std::to_string(limit) + " ranks"};
    known *= axis.second;
  }

  if (rest) {
    if (!ranks)
      return ConfigError{"mesh." + rest->first +
                         " = -1 takes what is left of the rank count, which is "
                         "not known; give --ranks N or a size"};
    if (*ranks % known != 0)
      return ConfigError{"mesh." + rest->first +
                         " = -1: " + std::to_string(*ranks) +
                         " ranks do not divide by the " +
                         std::to_string(known) + " that the other axes make"};
    rest->second = *ranks / known;
    return mesh;
  }

  if (ranks && *ranks != known) {
    std::string message = "the mesh (" + describe(*mesh) + ") has " +
                          std::to_string(known) +
                          (known == 1 ? " rank" : " ranks") +
                          ", but there are " + std::to_string(*ranks);
    if (mesh->axes.empty())
      message += "; say how to use them, e.g. --set mesh.data=" +
                 std::to_string(*ranks);
    else
      message += "; change the mesh or the rank count, or set one axis to -1";
    return ConfigError{message};
  }
  return mesh;
}

// Megatron's sequence parallelism lives on the axis of 1d tensor parallelism:
// what tensor parallelism leaves whole, it splits.
static std::optional<ConfigError>
checkMegatron(const ParallelConfig &parallel,
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

// A kind once; Ulysses inside the ring.
static std::optional<ConfigError>
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
      return ConfigError{entry + ", comes behind a ring; the list is inner "
                                 "first, and Ulysses goes inside the ring: "
                                 "list it before kind ring"};
    if (kind != "megatron" && list[i].savedInput != "shard")
      return ConfigError{entry + ": saved_input is a policy of kind megatron"};
    if (kind != "ring" && (list[i].plan != "auto" || list[i].order != "zigzag"))
      return ConfigError{entry + ": plan and order are policies of kind ring"};
  }
  return std::nullopt;
}

// ZeRO splits over the data axis, and over those of the positions; its policies
// belong to one stage of it.
static std::optional<ConfigError> checkZero(const Config &config,
                                            const Mesh &mesh) {
  const DataParallelConfig &data = config.parallel.data;
  std::string zero = "parallel.data.zero = " + std::to_string(data.zero);
  bool exists =
      std::any_of(mesh.axes.begin(), mesh.axes.end(),
                  [&](const auto &a) { return a.first == data.axis; });
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

/// The axis of the experts' inner width holds no samples, positions or stages.
static std::optional<ConfigError> checkExpertWidth(
    const ParallelConfig &parallel,
    const std::function<std::optional<ConfigError>(
        const std::string &, const std::string &, const std::string &)> &use,
    const std::map<std::string, std::string> &splitBy) {
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

std::optional<ConfigError> cleave::checkMeshUse(const Config &config,
                                                const Mesh &mesh) {
  std::set<std::string> used;
  std::map<std::string, std::string> splitBy; // axis to strategy
  // A strategy's own axis may be absent (the strategy then does nothing), but
  // only under its default name: another name was typed, and must exist.
  auto use = [&](const std::string &key, const std::string &axis,
                 const std::string &standard) -> std::optional<ConfigError> {
    bool exists = std::any_of(mesh.axes.begin(), mesh.axes.end(),
                              [&](const auto &a) { return a.first == axis; });
    if (!exists && axis != standard) {
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
  };

  // What splits different things, samples, weights or layers, cannot split them
  // over the same ranks. (Experts may: theirs are often the data ranks.)
  auto own = [&](const std::string &strategy, const std::string &axis,
                 const std::string &name =
                     "axis") -> std::optional<ConfigError> {
    std::string key = "parallel." + strategy;
    if (auto error =
            use(key + "." + name, axis, name == "axis" ? strategy : ""))
      return error;
    auto [first, fresh] = splitBy.try_emplace(axis, key + "." + name);
    if (fresh)
      return std::nullopt;
    bool exists = std::any_of(mesh.axes.begin(), mesh.axes.end(),
                              [&](const auto &a) { return a.first == axis; });
    if (!exists)
      return std::nullopt;
    std::string text = first->second + " and " + key + "." + name +
                       " both name the mesh axis '" + axis +
                       "'; give each an axis of its own";
    std::string other = first->second.substr(0, first->second.rfind('.'));
    if (other != key)
      text += ", or switch one off: --set " + (axis == strategy ? key : other) +
              "=false";
    return ConfigError{text};
  };

  const ParallelConfig &parallel = config.parallel;
  if (parallel.data.enabled)
    if (auto error = own("data", parallel.data.axis))
      return error;
  if (parallel.data.enabled && !parallel.data.replicate.empty())
    if (auto error = own("data", parallel.data.replicate, "replicate"))
      return error;
  if (parallel.data.enabled)
    if (auto error = checkZero(config, mesh))
      return error;
  if (parallel.tensor.enabled) {
    const TensorParallelConfig &tensor = parallel.tensor;
    if (tensor.layout == "1d") {
      if (!tensor.axes.empty())
        return ConfigError{"parallel.tensor.axes (" + join(tensor.axes) +
                           ") is for the layouts 2d, 2.5d and 3d, but "
                           "parallel.tensor.layout is 1d; name the one axis in "
                           "parallel.tensor.axis, or set the layout"};
      if (auto error = own("tensor", tensor.axis))
        return error;
    } else {
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
    }
  }
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
  if (parallel.expert.enabled)
    if (auto error =
            use("parallel.expert.axis", parallel.expert.axis, "expert"))
      return error;
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
  for (const SequenceParallelConfig &sequence : parallel.sequence)
    if (parallel.expert.enabled && sequence.axis == parallel.expert.axis)
      return ConfigError{"parallel.sequence and parallel.expert.axis both name "
                         "the mesh axis '" +
                         sequence.axis +
                         "', but experts go with samples; give them an axis of "
                         "their own, or that of parallel.data.axis"};
  // Experts split samples over their axis, as the data axis does.
  if (auto found = splitBy.find(parallel.expert.axis);
      parallel.expert.enabled && found != splitBy.end() &&
      found->second != "parallel.data.axis")
    return ConfigError{found->second +
                       " and parallel.expert.axis both name "
                       "the mesh axis '" +
                       parallel.expert.axis +
                       "', but experts go with samples; give them an axis of "
                       "their own, or that of parallel.data.axis"};
  if (auto error = checkExpertWidth(parallel, use, splitBy))
    return error;
  if (parallel.pipeline.enabled && parallel.expert.enabled &&
      parallel.pipeline.axis == parallel.expert.axis)
    return ConfigError{"parallel.pipeline.axis and parallel.expert.axis both "
                       "name the mesh axis '" +
                       parallel.expert.axis +
                       "', but experts go with samples; give them an axis of "
                       "their own, or that of parallel.data.axis"};
  if (parallel.pipeline.enabled)
    if (auto error = own("pipeline", parallel.pipeline.axis))
      return error;
  for (const ShardConfig &shard : config.shard)
    for (const std::vector<std::string> &dim : shard.dims)
      for (const std::string &axis : dim)
        // A sub-axis is spelled NAME:(BEFORE)SIZE.
        if (auto error = use("[[shard]] match = '" + shard.match + "': dims",
                             axis.substr(0, axis.find(':')), ""))
          return error;

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

std::string cleave::sequenceAxis(const Config &config, const Mesh &mesh,
                                 const std::string &kind) {
  for (const SequenceParallelConfig &sequence : config.parallel.sequence)
    if (sequence.kind == kind && mesh.size(sequence.axis) > 1)
      return sequence.axis;
  return "";
}

BoundaryAxes cleave::boundaryAxes(const Config &config, const Mesh &mesh) {
  BoundaryAxes axes;
  const DataParallelConfig &data = config.parallel.data;
  if (data.enabled && mesh.size(data.replicate) > 1)
    axes.samples = axes.replicas = {data.replicate};
  if (data.enabled && mesh.size(data.axis) > 1)
    axes.samples.push_back(data.axis);
  const ExpertParallelConfig &expert = config.parallel.expert;
  if (expert.enabled && mesh.size(expert.axis) > 1 &&
      !contains(axes.samples, expert.axis))
    axes.samples.push_back(expert.axis);
  for (const char *kind : {"ring", "ulysses"}) // outer first
    if (std::string axis = sequenceAxis(config, mesh, kind); !axis.empty())
      axes.positions.push_back(axis);
  return axes;
}

std::vector<std::string> BoundaryAxes::all() const {
  std::vector<std::string> list = samples;
  list.insert(list.end(), positions.begin(), positions.end());
  return list;
}

std::vector<std::string> BoundaryAxes::sharded() const {
  std::vector<std::string> list;
  for (const std::string &axis : all())
    if (!contains(replicas, axis))
      list.push_back(axis);
  return list;
}

std::optional<ConfigError> cleave::checkTypes(const Config &config) {
  const TrainConfig &train = config.train;
  for (const auto &[key, value] :
       {std::pair("grad_dtype", train.gradDtype),
        std::pair("reduce_dtype", train.reduceDtype),
        std::pair("master_dtype", train.masterDtype)})
    if (!value.empty() && value != "fp32")
      return ConfigError{"train." + std::string(key) + " = \"" + value +
                         "\" is not yet supported: gradients are summed, and "
                         "parameters updated, in fp32; cleave explain books "
                         "it"};
  return std::nullopt;
}

void cleave::applyMesh(Config &config, const Mesh &mesh) {
  config.mesh.axes.clear();
  config.mesh.sizes.clear();
  for (const auto &[name, size] : mesh.axes) {
    config.mesh.axes.push_back(name);
    config.mesh.sizes[name] = size;
  }
}

std::optional<int64_t> cleave::launcherWorldSize() {
  std::optional<Launcher> found = launcher();
  return found ? std::optional(found->size) : std::nullopt;
}
