// Functions that open and read files of the user.
#ifndef CLEAVE_IO_INPUT_H
#define CLEAVE_IO_INPUT_H

#include <string>

namespace cleave {

/// Opens a regular file for reading. Returns -1 for FIFOs and devices (which
/// might never answer or never end), folders, and files that cannot be read;
/// `reason` then says why, without the path.
int openInput(const std::string &path, std::string &reason);

/// Reads all bytes of a regular file into `bytes`. Returns false if it cannot
/// be read, with the reason in `reason`.
bool readInput(const std::string &path, std::string &bytes,
               std::string &reason);

/// Returns a sentence, with the path, that says why `path` cannot be read as a
/// file; empty if it can. `wanted` says what the file should be, such as "a
/// model".
std::string faultOfFile(const std::string &path, const std::string &wanted);

} // namespace cleave

#endif // CLEAVE_IO_INPUT_H
