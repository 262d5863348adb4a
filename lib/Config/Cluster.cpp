// Reads cluster.toml: link classes, ranks per node, the rate of matrix
// products.

#include "cleave/Config/Cluster.h"

#include "KeyScan.h"
#include "Toml.h"

#include "cleave/io/Input.h"

#include <cmath>
#include <optional>
#include <sstream>

using namespace cleave;

const LinkClass &Cluster::link(const std::string &name) const {
  static const LinkClass standard;
  if (auto it = links.find(name); it != links.end())
    return it->second;
  auto it = links.find("intra");
  return it != links.end() ? it->second : standard;
}

double Cluster::matmulSeconds(double flops) const {
  if (flops <= 0 || matmul.empty())
    return 0;
  if (flops <= matmul.front().first)
    return flops / matmul.front().second;
  for (size_t i = 1; i < matmul.size(); ++i) {
    auto [low, lowRate] = matmul[i - 1];
    auto [high, highRate] = matmul[i];
    if (flops > high)
      continue;
    double share = std::log(flops / low) / std::log(high / low);
    return flops / (lowRate * std::pow(highRate / lowRate, share));
  }
  return flops / matmul.back().second;
}

namespace {

// Reads one file. Returns the first error.
class Reader {
public:
  explicit Reader(std::string name) : name(std::move(name)) {}

  ConfigResult<Cluster> read(const toml::table &root) {
    Cluster cluster;
    cluster.name = name;
    for (auto &&[key, node] : root) {
      std::string path(key.str());
      if (path == "links")
        links(node, cluster);
      else if (path == "matmul")
        matmul(node, cluster);
      else if (path == "memory")
        memory(node, cluster);
      else if (path == "overlap")
        overlap(node, cluster);
      else if (path == "ranks_per_node")
        ranksPerNode(node, cluster);
      else
        unknown(node, "", path,
                {"links", "matmul", "memory", "overlap", "ranks_per_node"});
    }
    if (problem)
      return ConfigError{*problem};
    return cluster;
  }

private:
  void fail(const toml::node &node, const std::string &message) {
    if (!problem)
      problem = name + ":" + std::to_string(node.source().begin.line) + ": " +
                message;
  }

  void unknown(const toml::node &node, const std::string &prefix,
               const std::string &key, const std::vector<std::string> &known) {
    std::string message = "unknown key " + prefix + key;
    if (auto meant = nearest(key, known, /*anyDistance=*/true))
      message += "; did you mean " + prefix + *meant + "?";
    fail(node, message);
  }

  const toml::table *table(const toml::node &node, const std::string &path) {
    const toml::table *found = node.as_table();
    if (!found)
      fail(node, path + " must be a table");
    return found;
  }

  // Reads a finite number that is at least 0 (if `zero`) or above 0.
  std::optional<double> number(const toml::node &node, const std::string &path,
                               bool zero) {
    std::optional<double> value;
    if (auto real = node.as_floating_point())
      value = real->get();
    else if (auto integer = node.as_integer())
      value = double(integer->get());
    if (!value || !std::isfinite(*value) || *value < 0 ||
        (!zero && *value == 0)) {
      std::ostringstream found;
      if (value)
        found << "found " << *value << "; ";
      fail(node, path + ": " + found.str() + "expected a number " +
                     (zero ? "of at least 0" : "above 0"));
      return std::nullopt;
    }
    return value;
  }

  void links(const toml::node &node, Cluster &cluster) {
    const toml::table *classes = table(node, "links");
    if (!classes)
      return;
    for (auto &&[key, entry] : *classes) {
      std::string path = "links." + std::string(key.str());
      const toml::table *fields = table(entry, path);
      if (!fields)
        return;
      LinkClass &link = cluster.links[std::string(key.str())];
      for (auto &&[field, value] : *fields) {
        std::string what(field.str()), where = path + "." + what;
        if (what == "latency_us") {
          if (auto read = number(value, where, true))
            link.latency = *read * 1e-6;
        } else if (what == "message_us") {
          if (auto read = number(value, where, true))
            link.message = *read * 1e-6;
        } else if (what == "gbytes_per_s") {
          if (auto read = number(value, where, false))
            link.bytesPerSecond = *read * 1e9;
        } else {
          unknown(value, path + ".", what,
                  {"latency_us", "message_us", "gbytes_per_s"});
        }
      }
    }
  }

  std::vector<double> numbers(const toml::node &node, const std::string &path) {
    std::vector<double> values;
    const toml::array *list = node.as_array();
    if (!list || list->empty()) {
      fail(node, path + " must be a list of numbers");
      return values;
    }
    for (const toml::node &entry : *list)
      values.push_back(number(entry, path, false).value_or(1));
    return values;
  }

  void matmul(const toml::node &node, Cluster &cluster) {
    const toml::table *fields = table(node, "matmul");
    if (!fields)
      return;
    std::vector<double> flops, rates;
    for (auto &&[field, value] : *fields) {
      std::string what(field.str());
      if (what == "flops")
        flops = numbers(value, "matmul.flops");
      else if (what == "gflops_per_s")
        rates = numbers(value, "matmul.gflops_per_s");
      else
        unknown(value, "matmul.", what, {"flops", "gflops_per_s"});
    }
    if (flops.size() != rates.size() || flops.empty())
      return fail(node, "matmul: found " + std::to_string(flops.size()) +
                            " flops and " + std::to_string(rates.size()) +
                            " gflops_per_s; expected as many of both");
    cluster.matmul.clear();
    for (size_t i = 0; i < flops.size(); ++i) {
      if (i && flops[i] <= flops[i - 1])
        return fail(node, "matmul.flops must ascend");
      cluster.matmul.emplace_back(flops[i], rates[i] * 1e9);
    }
  }

  void memory(const toml::node &node, Cluster &cluster) {
    const toml::table *fields = table(node, "memory");
    if (!fields)
      return;
    for (auto &&[field, value] : *fields) {
      std::string what(field.str());
      if (what != "gbytes_per_s")
        unknown(value, "memory.", what, {"gbytes_per_s"});
      else if (auto read = number(value, "memory.gbytes_per_s", false))
        cluster.memoryBytesPerSecond = *read * 1e9;
    }
  }

  void overlap(const toml::node &node, Cluster &cluster) {
    const toml::table *fields = table(node, "overlap");
    if (!fields)
      return;
    for (auto &&[field, value] : *fields) {
      std::string what(field.str());
      if (what != "contention")
        unknown(value, "overlap.", what, {"contention"});
      else if (auto read = number(value, "overlap.contention", true))
        cluster.contention = *read;
    }
  }

  void ranksPerNode(const toml::node &node, Cluster &cluster) {
    auto value = node.as_integer();
    if (!value || value->get() < 0)
      return fail(node, "ranks_per_node: expected an integer of at least 0");
    cluster.ranksPerNode = value->get();
  }

  const std::string name;
  std::optional<std::string> problem;
};

} // namespace

// Built-in descriptions for nodes of eight H100 or H200. Links within a node:
// measured all-gathers and all-reduces of NCCL (Bekman, "Machine Learning
// Engineering", chapter on networks: 361 GB/s; all-reduces of 1 and 16 MiB on
// eight GPUs take 46 and 134 us). Links between nodes: 90 % of 400 Gbit/s each,
// and the latency constants that NCCL assumes for one step. Products: 794
// TFLOP/s is the highest bf16 rate that Bekman measured; small products are
// limited by kernel launches of some microseconds. Memory: 85 % of 3.35 TB/s.
// Contention: 16 of 132 multiprocessors move messages. docs/cluster.md has the
// same description.
std::optional<Cluster> cleave::builtInCluster(const std::string &name) {
  Cluster h100;
  h100.name = name;
  h100.links = {{"inter", {25e-6, 4e-6, 45e9}},
                {"intra", {15e-6, 2e-6, 360e9}}};
  h100.memoryBytesPerSecond = 2.85e12;
  h100.contention = 0.12;
  if (name == "h100-bf16")
    h100.matmul = {{1e5, 25e9},
                   {1e7, 2.5e12},
                   {1e9, 150e12},
                   {1e11, 600e12},
                   {1e12, 780e12}};
  else if (name == "h100-tf32")
    h100.matmul = {{1e5, 25e9},
                   {1e7, 2.5e12},
                   {1e9, 110e12},
                   {1e11, 320e12},
                   {1e12, 390e12}};
  else if (name == "h100-fp32")
    h100.matmul = {{1e5, 25e9}, {1e7, 2e12}, {1e9, 35e12}, {1e11, 50e12}};
  else
    return std::nullopt;
  return h100;
}

ConfigResult<Cluster> cleave::loadClusterText(const std::string &text,
                                              const std::string &name) {
  if (std::optional<config::Mistake> wrong = config::mistakeIn(text))
    return ConfigError{name + ":" + wrong->text};
  try {
    return Reader(name).read(toml::parse(text));
  } catch (const toml::parse_error &error) {
    return ConfigError{name + ":" + std::to_string(error.source().begin.line) +
                       ": " + std::string(error.description())};
  } catch (const config::BrokenAssumption &) {
    return ConfigError{name + ": not valid TOML"};
  }
}

ConfigResult<Cluster> cleave::loadCluster(const std::string &path) {
  if (std::optional<Cluster> known = builtInCluster(path))
    return *known;
  std::string text, reason;
  if (!readInput(path, text, reason))
    return ConfigError{"cannot read the cluster file " + path + ": " + reason +
                       "; target.cluster names a file in TOML, or one of "
                       "h100-fp32, h100-tf32 and "
                       "h100-bf16 (docs/cluster.md)"};
  return loadClusterText(text, path);
}
