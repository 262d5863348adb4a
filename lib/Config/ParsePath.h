// TOML of one line: the keys and values of --set.

#ifndef CLEAVE_LIB_CONFIG_PARSEPATH_H
#define CLEAVE_LIB_CONFIG_PARSEPATH_H

#include "Toml.h"

#include <optional>
#include <string>
#include <vector>

namespace cleave::config {

// A key's path as segments: a segment may itself hold dots where it is quoted.
using Path = std::vector<std::string>;

// The table of one line; nothing, and why, where it is none.
std::optional<toml::table> parseLine(const std::string &line,
                                     std::string &mistake);

// "dims.batch" -> {"dims", "batch"}; quoted segments as in TOML.
Path parsePath(const std::string &text);

} // namespace cleave::config

#endif // CLEAVE_LIB_CONFIG_PARSEPATH_H
