// Writes a Config as JSON, for the manifest of a compiled program.

#include "cleave/Config/Load.h"

#include "Keys.h"

#include "cleave/io/JsonText.h"

#include <nlohmann/json.hpp>

#include <sstream>

using namespace cleave;
using namespace cleave::config;

namespace {

using Json = nlohmann::ordered_json;

Json toJson(const SequenceParallelConfig &entry) {
  Json json = {{"kind", entry.kind}, {"axis", entry.axis}};
  if (entry.kind != "ring")
    json["saved_input"] = entry.savedInput;
  else
    json.update({{"plan", entry.plan}, {"order", entry.order}});
  return json;
}

Json toJson(const ShardConfig &entry) {
  Json json = {{"match", entry.match}, {"dims", entry.dims}};
  if (!entry.view.empty())
    json["view"] = entry.view;
  return json;
}

template <typename T> Json toJson(const T &value) { return value; }

template <typename T> Json listToJson(const std::vector<T> &values) {
  Json json = Json::array();
  for (const T &value : values)
    json.push_back(toJson(value));
  return json;
}

Json toJson(const std::vector<SequenceParallelConfig> &values) {
  return listToJson(values);
}
Json toJson(const std::vector<ShardConfig> &values) {
  return listToJson(values);
}

} // namespace

std::string cleave::writeConfigJson(const Config &config) {
  Config copy = config; // fields are pointers to non-const
  Json json = Json::object();
  for (const Key &key : keys()) {
    Json *at = &json;
    std::stringstream path(key.path);
    std::string part;
    while (std::getline(path, part, '.')) {
      if (part == "*")
        break;
      at = &(*at)[part];
    }
    std::visit(
        [&](auto *value) {
          using T = std::remove_pointer_t<decltype(value)>;
          if constexpr (requires { typename T::mapped_type; }) {
            if (at->is_null())
              *at = Json::object();
            for (const auto &[name, entry] : *value)
              (*at)[name] = entry;
          } else {
            *at = toJson(*value);
          }
        },
        key.field(copy));
  }
  return jsonText(json);
}
