// Parses the keys and values of --set, which are TOML in one line.

#ifndef CLEAVE_LIB_CONFIG_PARSEPATH_H
#define CLEAVE_LIB_CONFIG_PARSEPATH_H

#include "Toml.h"

#include <optional>
#include <string>
#include <vector>

namespace cleave::config {

// The segments of a key's path. A quoted segment may itself contain dots.
using Path = std::vector<std::string>;

// Parses a TOML table that is written in one line. If the line is no table,
// returns nullopt and sets `mistake` to the reason.
std::optional<toml::table> parseLine(const std::string &line,
                                     std::string &mistake);

// Splits a path: "dims.batch" -> {"dims", "batch"}; segments may be quoted as
// in TOML.
Path parsePath(const std::string &text);

} // namespace cleave::config

#endif // CLEAVE_LIB_CONFIG_PARSEPATH_H
