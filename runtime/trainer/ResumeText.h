// Helpers for resuming and its messages: keys of a configuration, and quoting
// for the shell.

#ifndef CLEAVE_TRAINER_RESUMETEXT_H
#define CLEAVE_TRAINER_RESUMETEXT_H

#include <nlohmann/json.hpp>

#include <map>
#include <string>

namespace cleave {

/// Returns the keys of a configuration (JSON) with their values. Each key is a
/// full path: "train.lr".
std::map<std::string, nlohmann::ordered_json> keysOf(const std::string &json);

/// Returns whether a shell takes the text as one word without quotes.
bool isPlainWord(const std::string &text);
/// Returns the text in single quotes, as a shell needs it.
std::string shellQuoted(const std::string &text);
/// " --accept KEY".
std::string acceptFlag(const std::string &key);

} // namespace cleave

#endif // CLEAVE_TRAINER_RESUMETEXT_H
