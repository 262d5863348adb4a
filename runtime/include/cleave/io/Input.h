// How files that somebody gave are opened: all of them, by one function.
#ifndef CLEAVE_IO_INPUT_H
#define CLEAVE_IO_INPUT_H

#include <string>

namespace cleave {

/// Opens a regular file for reading. A FIFO or a device might never answer, or
/// never end: those, folders and what cannot be read are -1, and `reason` says
/// why, in words without the path.
int openInput(const std::string &path, std::string &reason);

/// The bytes of such a file; false, and the reason, where they cannot be read.
bool readInput(const std::string &path, std::string &bytes,
               std::string &reason);

/// Why `path` is no file that can be read, as a sentence with its path; ""
/// where it is one. `wanted` says what it should be, e.g. "a model".
std::string faultOfFile(const std::string &path, const std::string &wanted);

} // namespace cleave

#endif // CLEAVE_IO_INPUT_H
