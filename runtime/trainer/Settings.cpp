//===- Settings.cpp - the keys of the configuration that the loop obeys ---===//
#include "cleave/trainer/Settings.h"
#include "Toml.h"
#include "cleave/io/Error.h"

#include "cleave/io/JsonText.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <numbers>

using Json = nlohmann::ordered_json;

namespace cleave {

static Json parseConfig(const std::string &text) {
  if (text.empty())
    return Json::object();
  Json config = Json::parse(text, nullptr, false);
  if (!config.is_object())
    throw InputError("manifest.json, key 'config': expected an object");
  return config;
}

template <typename T>
static void read(const Json &config, const char *section, const char *key,
                 T &value) {
  auto table = config.find(section);
  if (table == config.end() || !table->is_object() || !table->contains(key))
    return;
  try {
    value = (*table)[key].get<T>();
  } catch (const Json::exception &) {
    throw InputError(std::string("configuration key '") + section + "." + key +
                     "': unexpected value " + jsonText((*table)[key]));
  }
}

Settings settingsOf(const Manifest &manifest) {
  Json config = parseConfig(manifest.configJson);
  Settings s;
  read(config, "data", "path", s.dataPath);
  read(config, "data", "dtype", s.dataDtype);
  read(config, "data", "ignore_index", s.ignoreIndex);
  read(config, "data", "seed", s.dataSeed);
  read(config, "data", "validation", s.validation);
  read(config, "data", "shuffle_split", s.shuffleSplit);
  read(config, "data", "eval_path", s.evalPath);
  read(config, "train", "lr", s.lr);
  read(config, "train", "min_lr", s.minLr);
  read(config, "train", "schedule", s.schedule);
  read(config, "train", "warmup_steps", s.warmupSteps);
  read(config, "train", "steps", s.steps);
  read(config, "train", "seed", s.seed);
  read(config, "train", "loss", s.loss);
  read(config, "train", "optimizer", s.optimizer);
  read(config, "train", "save_minutes", s.saveMinutes);
  read(config, "train", "keep", s.keep);
  read(config, "target", "transport", s.transport);
  read(config, "target", "kind", s.device);
  s.lastStep = s.steps;
  std::string onNan = "stop";
  read(config, "train", "on_nan", onNan);
  if (onNan != "stop" && onNan != "skip")
    throw InputError("configuration key 'train.on_nan': expected stop or "
                     "skip, found '" +
                     onNan + "'");
  s.skipNonFinite = onNan == "skip";
  if (s.schedule != "constant" && s.schedule != "linear" &&
      s.schedule != "cosine")
    throw InputError("configuration key 'train.schedule': expected constant, "
                     "linear or cosine, found '" +
                     s.schedule + "'");
  if (s.shuffleSplit != "auto" && s.shuffleSplit != "true" &&
      s.shuffleSplit != "false")
    throw InputError("configuration key 'data.shuffle_split': expected auto, "
                     "true or false, found '" +
                     s.shuffleSplit + "'");
  if (!(s.validation >= 0 && s.validation < 1))
    throw InputError("configuration key 'data.validation': expected a share "
                     "of at least 0 and below 1");
  return s;
}

double learningRate(const Settings &s, int64_t step) {
  int64_t index = step - 1; // steps done before this one
  if (index < s.warmupSteps)
    return s.lr * static_cast<double>(index + 1) /
           static_cast<double>(s.warmupSteps);
  if (s.schedule == "constant")
    return s.lr;
  double length = std::max<int64_t>(1, s.steps - s.warmupSteps);
  double done =
      std::min(1.0, static_cast<double>(index - s.warmupSteps) / length);
  double share = s.schedule == "linear"
                     ? 1 - done
                     : 0.5 * (1 + std::cos(std::numbers::pi * done));
  return s.minLr + (s.lr - s.minLr) * share;
}

//===----------------------------------------------------------------------===//
// TOML
//===----------------------------------------------------------------------===//

/// JSON and TOML agree on basic strings, but TOML wants DEL escaped as well.
static std::string tomlString(const std::string &text) {
  return Json(text).dump(-1, ' ', true, Json::error_handler_t::replace);
}

std::string tomlKey(const std::string &key) {
  bool bare = !key.empty() && std::all_of(key.begin(), key.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-';
  });
  return bare ? key : tomlString(key);
}

std::string tomlValue(const Json &value) {
  if (value.is_string())
    return tomlString(value.get<std::string>());
  if (value.is_number_float()) {
    std::string text = jsonText(value);
    // TOML tells integers from floats by the point or exponent.
    return text.find_first_of(".eE") == std::string::npos ? text + ".0" : text;
  }
  if (value.is_array()) {
    std::string text = "[";
    for (size_t i = 0; i < value.size(); ++i)
      text += (i ? ", " : "") + tomlValue(value[i]);
    return text + "]";
  }
  if (value.is_object()) {
    if (value.empty())
      return "{}";
    std::string text = "{ ";
    bool first = true;
    for (const auto &[key, item] : value.items()) {
      if (item.is_null())
        continue;
      text += (first ? "" : ", ") + tomlKey(key) + " = " + tomlValue(item);
      first = false;
    }
    return text + " }";
  }
  return jsonText(value);
}

std::string configJson(const Manifest &manifest, const Settings &settings) {
  Json config = parseConfig(manifest.configJson);
  config["data"]["path"] = settings.dataPath;
  if (!settings.evalPath.empty())
    config["data"]["eval_path"] = settings.evalPath;
  if (settings.shuffleSplit != "auto")
    config["data"]["shuffle_split"] = settings.shuffleSplit;
  config["train"]["steps"] = settings.steps;
  return jsonText(config);
}

std::string configToml(const std::string &json) {
  Json config = parseConfig(json);
  std::string text;
  for (const auto &[key, value] : config.items())
    if (!value.is_object() && !value.is_null() &&
        !(value.is_array() && !value.empty() && value[0].is_object()))
      text += tomlKey(key) + " = " + tomlValue(value) + "\n";
  auto table = [&](const std::string &header, const Json &value) {
    text += (text.empty() ? "" : "\n") + header + "\n";
    for (const auto &[key, item] : value.items())
      if (!item.is_null())
        text += tomlKey(key) + " = " + tomlValue(item) + "\n";
  };
  for (const auto &[key, value] : config.items()) {
    if (value.is_object())
      table("[" + tomlKey(key) + "]", value);
    else if (value.is_array() && !value.empty() && value[0].is_object())
      for (const Json &item : value)
        table("[[" + tomlKey(key) + "]]", item);
  }
  return text;
}

} // namespace cleave
