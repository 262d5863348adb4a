//===- ManifestRead.cpp - reading manifest.json ---------------------------===//
//
// Reading checks every key that it uses and refuses versions that it does not
// know; unknown keys are ignored, because a newer compiler may add some.
//
//===----------------------------------------------------------------------===//
#include "cleave/io/Digest.h"
#include "cleave/io/Escape.h"
#include "cleave/io/Nesting.h"
#include "cleave/manifest.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <stdexcept>

using Json = nlohmann::ordered_json;

namespace cleave {

namespace {
/// A JSON object, and its path in the manifest for messages, e.g. "inputs[2]".
struct Reader {
  const Json &json;
  std::string path;

  [[noreturn]] static void fail(const std::string &where,
                                const std::string &expected) {
    throw std::runtime_error(
        escaped("key '" + where + "': expected " + expected));
  }
  std::string at(const char *key) const {
    return path.empty() ? key : path + "." + key;
  }
  bool has(const char *key) const {
    return json.is_object() && json.contains(key);
  }
  const Json &need(const char *key) const {
    if (!json.is_object())
      fail(path.empty() ? "(document)" : path, "an object");
    auto it = json.find(key);
    if (it == json.end())
      fail(at(key), "a value, found nothing");
    return *it;
  }
  std::string string(const char *key) const {
    const Json &value = need(key);
    if (!value.is_string())
      fail(at(key), "a string");
    return value.get<std::string>();
  }
  std::string string(const char *key, std::string otherwise) const {
    return has(key) ? string(key) : otherwise;
  }
  int64_t integer(const char *key) const {
    const Json &value = need(key);
    if (!value.is_number_integer())
      fail(at(key), "an integer");
    return value.get<int64_t>();
  }
  int64_t integer(const char *key, int64_t otherwise) const {
    return has(key) ? integer(key) : otherwise;
  }
  int64_t size(const char *key) const {
    int64_t value = integer(key);
    if (value < 0)
      fail(at(key), "a number of at least 0");
    return value;
  }
  double number(const char *key, double otherwise) const {
    if (!has(key))
      return otherwise;
    if (!json[key].is_number())
      fail(at(key), "a number");
    return json[key].get<double>();
  }
  bool boolean(const char *key, bool otherwise) const {
    if (!has(key))
      return otherwise;
    if (!json[key].is_boolean())
      fail(at(key), "true or false");
    return json[key].get<bool>();
  }
  std::string dtype(const char *key) const {
    std::string value = string(key);
    if (!elementSize(value))
      fail(at(key), "an element type, found '" + value + "'");
    return value;
  }
  std::vector<int64_t> integers(const char *key) const {
    const Json &value = need(key);
    std::vector<int64_t> result;
    if (!value.is_array())
      fail(at(key), "a list of integers");
    for (const Json &item : value) {
      if (!item.is_number_integer() || item.get<int64_t>() < 0)
        fail(at(key), "a list of integers of at least 0");
      result.push_back(item.get<int64_t>());
    }
    return result;
  }
  std::vector<std::string> strings(const char *key) const {
    std::vector<std::string> result;
    if (!has(key))
      return result;
    if (!json[key].is_array())
      fail(at(key), "a list of strings");
    for (const Json &item : json[key]) {
      if (!item.is_string())
        fail(at(key), "a list of strings");
      result.push_back(item.get<std::string>());
    }
    return result;
  }
  template <typename F> void each(const char *key, F &&visit) const {
    if (!has(key))
      return;
    if (!json[key].is_array())
      fail(at(key), "a list");
    size_t index = 0;
    for (const Json &item : json[key]) {
      visit(Reader{item, at(key) + "[" + std::to_string(index) + "]"});
      ++index;
    }
  }
};
} // namespace

/// Returns the number of elements of `shape`. Fails if it exceeds 2^59. Then
/// the size in bytes, at most 8 per element, does not exceed 2^62.
static int64_t elements(const Reader &r, const std::vector<int64_t> &shape) {
  int64_t count = 1;
  for (int64_t dim : shape)
    if (__builtin_mul_overflow(count, dim, &count) || count > (1ll << 59))
      Reader::fail(r.at("shape"), "a shape that fits into memory");
  return count;
}

/// Reads the place at which the `count` elements of a weight are stored.
static WeightRef readWeight(const Reader &r, int64_t count) {
  Reader w{r.need("weight"), r.at("weight")};
  WeightRef ref;
  ref.file = w.string("file");
  ref.offset = w.size("offset");
  ref.length = w.size("length");
  ref.dtype = w.dtype("dtype");
  if (ref.length != count * elementSize(ref.dtype))
    Reader::fail(w.at("length"),
                 std::to_string(count * elementSize(ref.dtype)) +
                     " bytes, found " + std::to_string(ref.length));
  return ref;
}

static ManifestTensor readTensor(const Reader &r) {
  ManifestTensor t;
  t.name = r.string("name");
  t.buffer = r.string("buffer", t.name);
  t.kind = r.string("kind", "parameter");
  if (t.kind != "parameter" && t.kind != "buffer" && t.kind != "constant")
    Reader::fail(r.at("kind"), "parameter, buffer or constant");
  t.dtype = r.dtype("dtype");
  t.shape = r.integers("shape");
  int64_t count = elements(r, t.shape);
  t.trainable = r.boolean("trainable", true);
  if (r.has("weight"))
    t.weight = readWeight(r, count);
  if (r.has("init")) {
    Reader init{r.need("init"), r.at("init")};
    t.init.kind = init.string("kind");
    if (t.init.kind != "zeros" && t.init.kind != "constant" &&
        t.init.kind != "normal" && t.init.kind != "uniform")
      Reader::fail(init.at("kind"), "zeros, constant, normal or uniform");
    t.init.a = init.number("a", 0);
    t.init.b = init.number("b", 1);
  }
  t.aliases = r.strings("aliases");
  if (r.has("parts") && t.shape.empty())
    Reader::fail(r.at("parts"), "no parts of a tensor without dimensions");
  r.each("parts", [&](const Reader &p) {
    ManifestPart part;
    part.name = p.string("name");
    if (p.has("weight"))
      part.weight = readWeight(p, count / std::max<int64_t>(t.shape[0], 1));
    t.parts.push_back(std::move(part));
  });
  if (!t.parts.empty() && int64_t(t.parts.size()) != t.shape[0])
    Reader::fail(r.at("parts"), std::to_string(t.shape[0]) + " parts, found " +
                                    std::to_string(t.parts.size()));
  return t;
}

static ManifestState readState(const Reader &r, const Manifest &m) {
  ManifestState s;
  s.buffer = r.string("buffer");
  s.parameter = r.string("parameter", "");
  s.slot = r.string("slot");
  s.init = r.string("init", "zeros");
  if (s.init != "zeros" && s.init != "parameter")
    Reader::fail(r.at("init"), "zeros or parameter");
  if (!s.parameter.empty() && !m.tensor(s.parameter))
    Reader::fail(r.at("parameter"),
                 "the name of a tensor, found '" + s.parameter + "'");
  if (s.parameter.empty() && s.init == "parameter")
    Reader::fail(r.at("parameter"), "the parameter that it belongs to");
  return s;
}

static ManifestLookup readLookup(const Reader &r,
                                 const std::vector<int64_t> &shape) {
  ManifestLookup lookup;
  lookup.offsets = r.integers("offsets");
  lookup.sizes = r.integers("sizes");
  lookup.strides = r.integers("strides");
  lookup.rows = r.integer("rows");
  lookup.table = r.string("table", "");
  lookup.bits = r.integer("bits", 0);
  size_t rank = shape.size();
  if (lookup.offsets.size() != rank || lookup.sizes.size() != rank ||
      lookup.strides.size() != rank)
    Reader::fail(r.path, "a part of the shape");
  for (size_t dim = 0; dim < rank; ++dim)
    if (lookup.sizes[dim] < 1 || lookup.sizes[dim] > shape[dim] ||
        lookup.offsets[dim] >= shape[dim] || lookup.strides[dim] < 1 ||
        (lookup.sizes[dim] - 1) >
            (shape[dim] - 1 - lookup.offsets[dim]) / lookup.strides[dim])
      Reader::fail(r.path, "a part of the shape");
  return lookup;
}

static ManifestInput readInput(const Reader &r) {
  ManifestInput input;
  input.name = r.string("name");
  input.buffer = r.string("buffer", input.name);
  std::string text = r.string("role");
  std::optional<InputRole> role = inputRoleOf(text);
  if (!role)
    Reader::fail(r.at("role"), "a known role, found '" + text + "'");
  input.role = *role;
  input.dtype = r.dtype("dtype");
  input.shape = r.integers("shape");
  elements(r, input.shape);
  input.batchDim = r.integer("batch_dim", -1);
  if (input.batchDim < -1 ||
      input.batchDim >= static_cast<int64_t>(input.shape.size()))
    Reader::fail(r.at("batch_dim"), "a dimension of the shape, or -1");
  input.source = r.string("source", "");
  input.vocabulary = r.integer("vocabulary", 0);
  r.each("lookups", [&](const Reader &part) {
    input.lookups.push_back(readLookup(part, input.shape));
  });
  input.trainingOnly = r.boolean("training_only", false);
  input.stepOf = r.string("step_of", "");
  return input;
}

static ManifestOutput readOutput(const Reader &r) {
  ManifestOutput output;
  output.name = r.string("name");
  output.buffer = r.string("buffer", output.name);
  output.dtype = r.dtype("dtype");
  output.shape = r.integers("shape");
  elements(r, output.shape);
  output.batchDim = r.integer("batch_dim", -1);
  if (output.batchDim < -1 ||
      output.batchDim >= static_cast<int64_t>(output.shape.size()))
    Reader::fail(r.at("batch_dim"), "a dimension of the shape, or -1");
  output.wholeCall = r.boolean("whole_call", false);
  return output;
}

static void readManifest(const Json &json, Manifest &m) {
  Reader r{json, ""};
  if (r.string("format") != "cleave-program")
    Reader::fail("format", "\"cleave-program\"");
  m.version = r.integer("version");
  if (m.version != Manifest::currentVersion)
    Reader::fail("version", std::to_string(Manifest::currentVersion) +
                                ", found " + std::to_string(m.version) +
                                "; compile the model again");
  m.model = r.string("model");
  // The model's name becomes a part of a path, so it must be a plain folder
  // name.
  if (m.model.empty() || m.model == "." || m.model == ".." ||
      m.model.find('/') != std::string::npos ||
      m.model.find('\0') != std::string::npos)
    Reader::fail("model", "a name without '/', found '" + m.model + "'");
  m.fingerprint = r.string("fingerprint", "");
  m.graph = r.string("graph", "");
  m.weightsFolder = r.string("weights_folder", "");
  r.each("mesh", [&](const Reader &axis) {
    if (!axis.json.is_array() || axis.json.size() != 2 ||
        !axis.json[0].is_string() || !axis.json[1].is_number_integer())
      Reader::fail(axis.path, "a pair [name, size]");
    m.mesh.emplace_back(axis.json[0].get<std::string>(),
                        axis.json[1].get<int64_t>());
  });
  m.ranks = r.integer("ranks");
  int64_t product = 1;
  for (const auto &[axis, size] : m.mesh)
    product *= size;
  if (m.ranks < 1 || product != m.ranks)
    Reader::fail("ranks", "the product of the mesh's axes, " +
                              std::to_string(product) + ", found " +
                              std::to_string(m.ranks));
  m.batch = r.integer("batch");
  m.microbatches = r.integer("microbatches");
  if (m.batch < 1 || m.microbatches < 1 || m.batch % m.microbatches)
    Reader::fail("microbatches", "a divisor of the batch, " +
                                     std::to_string(m.batch) + ", found " +
                                     std::to_string(m.microbatches));
  m.sequence = r.integer("sequence", 0);
  m.accumulates = r.boolean("accumulates", false);
  m.pipelined = r.boolean("pipelined", false);
  m.actions = r.strings("actions");
  m.unread = r.strings("unread");
  r.each("bound", [&](const Reader &input) {
    m.bound[input.string("name")] = input.string("hash");
  });
  r.each("inputs", [&](const Reader &i) { m.inputs.push_back(readInput(i)); });
  r.each("outputs",
         [&](const Reader &o) { m.outputs.push_back(readOutput(o)); });
  r.each("metrics", [&](const Reader &metric) {
    m.metrics.push_back({metric.string("action"), metric.string("name"),
                         metric.string("buffer")});
  });
  r.each("routers", [&](const Reader &router) {
    m.routers.push_back({router.string("name"), router.string("chosen"),
                         router.string("taken", "")});
  });
  r.each("tensors",
         [&](const Reader &t) { m.tensors.push_back(readTensor(t)); });
  r.each("state", [&](const Reader &s) { m.state.push_back(readState(s, m)); });
  r.each("files", [&](const Reader &f) {
    m.files.push_back({f.string("name"), f.size("bytes"), f.string("hash")});
  });
  r.each("weights", [&](const Reader &w) {
    m.weights.push_back({w.string("file"), w.size("bytes"),
                         w.integer("modified"), w.string("hash")});
  });
  if (r.has("config"))
    m.configJson = r.need("config").dump();
  if (m.fingerprint.empty())
    m.fingerprint = fingerprintOf(m);
}

bool manifestFromJson(std::string_view text, Manifest &manifest,
                      std::string &error) {
  try {
    Manifest result;
    if (nestsTooDeep(text)) {
      error = "is damaged; compile the model again";
      return false;
    }
    readManifest(Json::parse(text), result);
    if (!isSealed(text)) {
      error = "is not what was written (its digest does not fit); compile the "
              "model again";
      return false;
    }
    manifest = std::move(result);
    return true;
  } catch (const Json::parse_error &e) {
    error = "is damaged at byte " + std::to_string(e.byte) +
            "; compile the model again";
    return false;
  } catch (const Json::exception &) {
    error = "is damaged; compile the model again";
    return false;
  } catch (const std::exception &e) {
    error = e.what();
    return false;
  }
}

} // namespace cleave
