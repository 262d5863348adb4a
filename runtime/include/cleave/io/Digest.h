// Digests that detect damage and changes, not forgery, and JSON documents that
// contain their own digest.
#ifndef CLEAVE_IO_DIGEST_H
#define CLEAVE_IO_DIGEST_H

#include <string>
#include <string_view>

namespace cleave {

/// Returns the 64-bit FNV-1a hash of the bytes, in hexadecimal.
std::string digestOf(std::string_view bytes);

/// Returns a digest for large files: the hash of the hashes of pieces of 1 MiB.
/// It is several times as fast as digestOf.
std::string digestOfPieces(std::string_view bytes);

/// Takes a JSON object as text, "{...}\n", and adds a last key "digest" with
/// the digest of the text without this key.
std::string sealJson(std::string_view object);

/// Returns whether the text is unchanged output of sealJson.
bool isSealed(std::string_view text);

} // namespace cleave

#endif // CLEAVE_IO_DIGEST_H
