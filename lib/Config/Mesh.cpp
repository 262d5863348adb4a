// Determines the mesh: the order of its axes, an axis of size -1, whether its
// size is the number of ranks, and the axes that shard samples and positions.
// MeshUse.cpp checks which strategies use the axes.

#include "cleave/Config/Load.h"

#include "Names.h"
#include "cleave/launcher.h"

using namespace cleave;
using namespace cleave::config;

namespace {

const std::vector<std::string> &defaultOrder() {
  static const std::vector<std::string> order = {"pipeline", "data", "expert",
                                                 "sequence", "tensor"};
  return order;
}

// Returns the axes of the mesh in order, with the sizes of the configuration.
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
      // An axis that is listed without a size has size 1; shardings may name
      // it.
      mesh.axes.emplace_back(name, 1);
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
                         "not known; give it (--ranks N), or a size"};
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
