// Pieces of TOML.

#ifndef CLEAVE_TRAINER_TOML_H
#define CLEAVE_TRAINER_TOML_H

#include <nlohmann/json.hpp>

#include <string>

namespace cleave {

/// A key, quoted where TOML wants it.
std::string tomlKey(const std::string &key);
std::string tomlValue(const nlohmann::ordered_json &value);

} // namespace cleave

#endif // CLEAVE_TRAINER_TOML_H
