// Digests that tell damage and change, not forgery, and documents that carry
// their own.
#ifndef CLEAVE_IO_DIGEST_H
#define CLEAVE_IO_DIGEST_H

#include <string>
#include <string_view>

namespace cleave {

/// FNV-1a of 64 bits over the bytes, in hexadecimal.
std::string digestOf(std::string_view bytes);

/// The digest of the digests of pieces of 1 MiB: several times as fast, for
/// files of gigabytes.
std::string digestOfPieces(std::string_view bytes);

/// A JSON object as text, "{...}\n", with one more key "digest" at its end: of
/// the text without it.
std::string sealJson(std::string_view object);

/// Whether the text is what sealJson gave, to the byte.
bool isSealed(std::string_view text);

} // namespace cleave

#endif // CLEAVE_IO_DIGEST_H
