#include "BigramExecutor.h"
#include "cleave/io/Error.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace cleave::test {

Manifest bigramManifest(const BigramOptions &o) {
  Manifest m;
  m.model = "bigram";
  m.weightsFolder = ".";
  m.configJson = R"({"data":{"validation":0.25,"dtype":"uint16"},)"
                 R"("train":{"lr":0.5,"schedule":"linear","steps":)" +
                 std::to_string(o.steps) + "}}";
  m.mesh = {{"data", o.ranks}};
  m.ranks = o.ranks;
  m.batch = o.batch;
  m.microbatches = o.microbatches;
  m.sequence = o.sequence;
  m.accumulates = o.microbatches > 1;
  m.pipelined = o.pipelined;
  m.actions = {"loss_grad", "update", "loss", "forward"};
  int64_t b = o.batch / o.microbatches;
  m.inputs = {
      {"input_ids",
       "input_ids",
       InputRole::Tokens,
       "i64",
       {b, o.sequence},
       0,
       "",
       o.vocabulary},
      {"labels", "labels", InputRole::Labels, "i64", {b, o.sequence}, 0, "", 0},
      {"ids", "ids", InputRole::SampleIds, "i64", {b}, 0, "", 0},
      {"mask",
       "mask",
       InputRole::AttentionMask,
       "i64",
       {b, o.sequence},
       0,
       "ones",
       0},
      {"step", "step", InputRole::Step, "i64", {}, -1, "", 0},
      {"lr", "lr", InputRole::LearningRate, "f64", {}, -1, "", 0},
      {"microbatch",
       "microbatch",
       InputRole::Microbatch,
       "i64",
       {},
       -1,
       "",
       0}};
  m.metrics = {{"update", "finite", "metric.finite"}};
  m.outputs = {{"logits", "logits", "f64", {b, o.sequence, o.vocabulary}, 0}};
  ManifestTensor t;
  t.name = "table";
  t.buffer = "p.table";
  t.dtype = "f64";
  t.shape = {o.vocabulary, o.vocabulary};
  t.init = {"normal", 0, 0.1};
  m.tensors = {t};
  m.state = {{"s.table", "table", "momentum", "zeros"}};
  m.fingerprint = fingerprintOf(m);
  return m;
}

BigramExecutor::BigramExecutor(const BigramOptions &o) : options(o) {
  int64_t b = o.batch / o.microbatches;
  rowsPerRank = (b + o.ranks - 1) / o.ranks;
  std::vector<int64_t> square = {o.vocabulary, o.vocabulary};
  table = {{"input_ids", "", "input", "", "i64", {b, o.sequence}},
           {"labels", "", "input", "", "i64", {b, o.sequence}},
           {"ids", "", "input", "", "i64", {b}},
           {"mask", "", "input", "", "i64", {b, o.sequence}},
           {"step", "", "step", "", "i64", {}},
           {"lr", "", "lr", "", "f64", {}},
           {"microbatch", "", "microbatch", "", "i64", {}},
           {"p.table", "", "parameter", "", "f64", square},
           {"s.table", "", "state", "p.table", "f64", square},
           {"g.table", "", "gradient", "p.table", "f64", square},
           {"acc.loss", "", "loss", "", "f64", {}},
           {"acc.weight", "", "weight", "", "f64", {}},
           {"metric.grad_norm", "", "metric", "", "f64", {}},
           {"metric.finite", "", "metric", "", "f64", {}},
           {"logits", "", "output", "", "f64", {b, o.sequence, o.vocabulary}}};
  for (const BufferInfo &info : table) {
    bool split = info.role == "input";
    std::vector<int64_t> shape = info.shape;
    if (split)
      shape[0] = rowsPerRank;
    storage[info.name].assign(split ? o.ranks : 1,
                              makeArray(info.dtype, shape));
  }
}

bool BigramExecutor::hasAction(const std::string &action) const {
  return action == "loss_grad" || action == "update" || action == "loss" ||
         action == "forward" ||
         (options.pipelined && action.starts_with("load.") &&
          std::stoll(action.substr(5)) < options.microbatches);
}

double *BigramExecutor::values(const std::string &buffer) {
  return storage.at(buffer)[0].as<double>();
}

void BigramExecutor::scatter(const std::string &buffer, const ArrayView &array,
                             const void *padding) {
  const BufferInfo &info = need(buffer);
  if (info.shape != array.shape || info.dtype != array.dtype)
    throw InputError("scatter of " + buffer);
  const std::byte *at = array.data;
  size_t left = array.byteSize();
  for (Array &tile : storage.at(buffer)) {
    size_t part = std::min(left, tile.bytes.size());
    std::fill(tile.bytes.begin(), tile.bytes.end(), std::byte(0));
    if (padding)
      for (size_t i = 0; i < tile.bytes.size(); i += 8)
        std::memcpy(tile.bytes.data() + i, padding, 8);
    std::memcpy(tile.bytes.data(), at, part);
    at += part;
    left -= part;
  }
}

Array BigramExecutor::gather(const std::string &buffer,
                             const std::string &dtype) {
  const BufferInfo &info = need(buffer);
  if (info.dtype != dtype || info.role == "input")
    throw InputError("gather of " + buffer);
  return storage.at(buffer)[0];
}

void BigramExecutor::zero(const std::string &buffer) {
  for (Array &tile : storage.at(buffer))
    std::fill(tile.bytes.begin(), tile.bytes.end(), std::byte(0));
}

std::span<std::byte> BigramExecutor::tile(const std::string &buffer,
                                          int64_t rank) {
  std::vector<Array> &tiles = storage.at(buffer);
  return tiles[tiles.size() == 1 ? 0 : rank].bytes;
}

void BigramExecutor::setScalar(const std::string &buffer, double value) {
  values(buffer)[0] = value;
}
void BigramExecutor::setInteger(const std::string &buffer, int64_t value) {
  storage.at(buffer)[0].as<int64_t>()[0] = value;
}

void BigramExecutor::forward(bool gradients) {
  const int64_t v = options.vocabulary;
  const double *w = values("p.table");
  double *g = values("g.table"), *logits = values("logits");
  double &loss = values("acc.loss")[0], &weight = values("acc.weight")[0];
  if (!gradients || options.microbatches == 1)
    loss = weight = 0;
  if (gradients && options.microbatches == 1)
    std::fill(g, g + v * v, 0);
  const int64_t rows = options.batch / options.microbatches;
  for (int64_t rank = 0; rank < options.ranks; ++rank) {
    const int64_t *tokens = storage["input_ids"][rank].as<int64_t>();
    const int64_t *labels = storage["labels"][rank].as<int64_t>();
    const int64_t *mask = storage["mask"][rank].as<int64_t>();
    const int64_t *ids = storage["ids"][rank].as<int64_t>();
    for (int64_t row = 0; row < rowsPerRank; ++row) {
      int64_t global = rank * rowsPerRank + row;
      if (gradients && global < rows)
        seenSamples.push_back(ids[row]);
      for (int64_t s = 0; s < options.sequence; ++s) {
        int64_t at = row * options.sequence + s, token = tokens[at];
        if (global < rows) {
          std::copy(w + token * v, w + (token + 1) * v,
                    logits + (global * options.sequence + s) * v);
          if (mask[at] != 1)
            throw InputError("mask is not one");
        }
        if (labels[at] < 0)
          continue;
        double sum = 0;
        for (int64_t i = 0; i < v; ++i)
          sum += std::exp(w[token * v + i]);
        loss += std::log(sum) - w[token * v + labels[at]];
        weight += 1;
        if (gradients)
          for (int64_t i = 0; i < v; ++i)
            g[token * v + i] +=
                std::exp(w[token * v + i]) / sum - (i == labels[at]);
      }
    }
  }
}

void BigramExecutor::load(const std::string &microbatch) {
  auto number = std::stoll(microbatch);
  if (number != storage["microbatch"][0].as<int64_t>()[0] ||
      number != static_cast<int64_t>(loaded.size()))
    throw InputError("microbatch " + microbatch + " in the place of another");
  std::map<std::string, std::vector<Array>> &kept = loaded.emplace_back();
  for (const BufferInfo &info : table)
    if (info.role == "input")
      kept[info.name] = storage[info.name];
}

void BigramExecutor::replay() {
  if (static_cast<int64_t>(loaded.size()) != options.microbatches)
    throw InputError("not all microbatches were loaded");
  for (auto &microbatch : loaded) {
    for (auto &[name, tiles] : microbatch)
      storage[name] = tiles;
    forward(/*gradients=*/true);
  }
  loaded.clear();
}

void BigramExecutor::run(const std::string &action) {
  if (before)
    before(*this, action, storage["step"][0].as<int64_t>()[0]);
  if (traces) {
    int64_t now = ++clock * 5000;
    events.push_back({action, "call", now, now + 1500, false});
    events.push_back({"WAIT \"x\"", "wait", now + 1500, now + 2000, true});
  }
  if (action.starts_with("load."))
    return load(action.substr(5));
  if (action == "loss_grad" && options.pipelined)
    return replay();
  if (action != "update")
    return forward(action == "loss_grad");
  const int64_t n = options.vocabulary * options.vocabulary;
  double *w = values("p.table"), *m = values("s.table"), *g = values("g.table");
  double norm = 0, weight = values("acc.weight")[0], lr = values("lr")[0];
  for (int64_t i = 0; i < n; ++i)
    norm += g[i] / weight * (g[i] / weight);
  bool isFinite = std::isfinite(norm) && std::isfinite(values("acc.loss")[0]);
  for (int64_t i = 0; i < n && isFinite; ++i) {
    m[i] = 0.9 * m[i] + g[i] / weight;
    w[i] -= lr * m[i];
  }
  values("metric.grad_norm")[0] = std::sqrt(norm);
  values("metric.finite")[0] = isFinite;
  sent += 1000;
}

std::vector<RankEvent> BigramExecutor::takeTrace(int64_t rank) {
  std::vector<RankEvent> taken = events;
  if (rank + 1 == options.ranks)
    events.clear();
  return taken;
}

std::vector<RankTraffic> BigramExecutor::traffic(int64_t rank) {
  return {{"gradient", sent, sent, sent ? 1 : 0}};
}

RankMemory BigramExecutor::memory(int64_t rank) {
  RankMemory memory;
  memory.arenaBytes = 4096;
  return memory;
}

} // namespace cleave::test
