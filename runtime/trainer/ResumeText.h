// Helpers for resuming and its messages: keys of a configuration, and quoting
// for the shell.

#ifndef CLEAVE_TRAINER_RESUMETEXT_H
#define CLEAVE_TRAINER_RESUMETEXT_H

#include <nlohmann/json.hpp>

#include <map>
#include <string>

namespace cleave {

/// The keys of a configuration (JSON), each by its full path: "train.lr".
std::map<std::string, nlohmann::ordered_json> keysOf(const std::string &json);

/// Whether a shell takes it as it is.
bool isPlainWord(const std::string &text);
/// In single quotes, for a shell.
std::string shellQuoted(const std::string &text);
/// " --accept KEY".
std::string acceptFlag(const std::string &key);

} // namespace cleave

#endif // CLEAVE_TRAINER_RESUMETEXT_H
