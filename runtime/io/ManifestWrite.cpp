//===- ManifestWrite.cpp - writing manifest.json --------------------------===//
//
// Keys are written in a fixed order and empty optional parts are left out, so
// that compiling twice gives the same bytes.
//
//===----------------------------------------------------------------------===//
#include "cleave/io/Digest.h"
#include "cleave/manifest.h"

#include "cleave/io/JsonText.h"

#include <nlohmann/json.hpp>

using Json = nlohmann::ordered_json;

namespace cleave {

static Json toJson(const WeightRef &ref) {
  return {{"file", ref.file},
          {"offset", ref.offset},
          {"length", ref.length},
          {"dtype", ref.dtype}};
}

static Json toJson(const ManifestTensor &t) {
  Json json = {{"name", t.name},
               {"buffer", t.buffer},
               {"kind", t.kind},
               {"dtype", t.dtype},
               {"shape", t.shape}};
  if (!t.trainable)
    json["trainable"] = false;
  if (t.weight)
    json["weight"] = toJson(*t.weight);
  else
    json["init"] = {{"kind", t.init.kind}, {"a", t.init.a}, {"b", t.init.b}};
  if (!t.aliases.empty())
    json["aliases"] = t.aliases;
  for (const ManifestPart &part : t.parts) {
    Json entry = {{"name", part.name}};
    if (part.weight)
      entry["weight"] = toJson(*part.weight);
    json["parts"].push_back(entry);
  }
  return json;
}

static Json toJson(const ManifestState &s) {
  return {{"buffer", s.buffer},
          {"parameter", s.parameter},
          {"slot", s.slot},
          {"init", s.init}};
}

static Json toJson(const ManifestInput &input) {
  Json json = {{"name", input.name},        {"buffer", input.buffer},
               {"role", spell(input.role)}, {"dtype", input.dtype},
               {"shape", input.shape},      {"batch_dim", input.batchDim}};
  if (!input.source.empty())
    json["source"] = input.source;
  if (input.vocabulary)
    json["vocabulary"] = input.vocabulary;
  for (const ManifestLookup &lookup : input.lookups) {
    json["lookups"].push_back({{"offsets", lookup.offsets},
                               {"sizes", lookup.sizes},
                               {"strides", lookup.strides},
                               {"rows", lookup.rows},
                               {"table", lookup.table}});
    if (lookup.bits)
      json["lookups"].back()["bits"] = lookup.bits;
  }
  if (input.trainingOnly)
    json["training_only"] = true;
  if (!input.stepOf.empty())
    json["step_of"] = input.stepOf;
  return json;
}

static Json toJson(const ManifestOutput &output) {
  Json json = {{"name", output.name},
               {"buffer", output.buffer},
               {"dtype", output.dtype},
               {"shape", output.shape},
               {"batch_dim", output.batchDim}};
  if (output.wholeCall)
    json["whole_call"] = true;
  return json;
}

static Json toJson(const ManifestMetric &metric) {
  return {{"action", metric.action},
          {"name", metric.name},
          {"buffer", metric.buffer}};
}

static Json toJson(const ManifestRouter &router) {
  Json json = {{"name", router.name}, {"chosen", router.chosen}};
  if (!router.taken.empty())
    json["taken"] = router.taken;
  return json;
}

static Json toJson(const ManifestFile &file) {
  return {{"name", file.name}, {"bytes", file.bytes}, {"hash", file.hash}};
}

static Json toJson(const ManifestWeights &weights) {
  return {{"file", weights.file},
          {"bytes", weights.bytes},
          {"modified", weights.modified},
          {"hash", weights.hash}};
}

template <typename T> static Json listToJson(const std::vector<T> &items) {
  Json list = Json::array();
  for (const T &item : items)
    list.push_back(toJson(item));
  return list;
}

static Json boundToJson(const std::map<std::string, std::string> &bound) {
  Json list = Json::array();
  for (const auto &[name, hash] : bound)
    list.push_back({{"name", name}, {"hash", hash}});
  return list;
}

std::string manifestToJson(const Manifest &m) {
  Json mesh = Json::array();
  for (const auto &[axis, size] : m.mesh)
    mesh.push_back(Json::array({axis, size}));
  Json config = Json::object();
  if (!m.configJson.empty()) {
    config = Json::parse(m.configJson, nullptr, /*allow_exceptions=*/false);
    if (config.is_discarded())
      config = Json::object();
  }
  Json json = {
      {"format", "cleave-program"},
      {"version", m.version},
      {"model", m.model},
      {"fingerprint", m.fingerprint.empty() ? fingerprintOf(m) : m.fingerprint},
      {"graph", m.graph},
      {"weights_folder", m.weightsFolder},
      {"mesh", mesh},
      {"ranks", m.ranks},
      {"batch", m.batch},
      {"microbatches", m.microbatches},
      {"sequence", m.sequence},
      {"accumulates", m.accumulates},
      {"pipelined", m.pipelined},
      {"bound", boundToJson(m.bound)},
      {"unread", m.unread},
      {"actions", m.actions},
      {"inputs", listToJson(m.inputs)},
      {"outputs", listToJson(m.outputs)},
      {"metrics", listToJson(m.metrics)},
      {"routers", listToJson(m.routers)},
      {"tensors", listToJson(m.tensors)},
      {"state", listToJson(m.state)},
      {"files", listToJson(m.files)},
      {"weights", listToJson(m.weights)},
      {"config", config}};
  // Names in a model file need not be UTF-8. Invalid bytes are replaced, so
  // that nlohmann::json does not throw.
  return sealJson(jsonText(json, 1) + "\n");
}

} // namespace cleave
