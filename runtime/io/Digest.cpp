//===- Digest.cpp - digests, and JSON that has one ------------------------===//
#include "cleave/io/Digest.h"

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <cstdio>

namespace cleave {

namespace {
constexpr uint64_t hashBegin = 0xcbf29ce484222325ull;

uint64_t hashStep(uint64_t hash, unsigned char byte) {
  return (hash ^ byte) * 0x100000001b3ull;
}

std::string textOf(uint64_t hash) {
  char text[17];
  std::snprintf(text, sizeof text, "%016" PRIx64, hash);
  return text;
}
} // namespace

std::string digestOf(std::string_view bytes) {
  uint64_t hash = hashBegin;
  for (unsigned char c : bytes)
    hash = hashStep(hash, c);
  return textOf(hash);
}

std::string digestOfPieces(std::string_view bytes) {
  constexpr size_t piece = size_t(1) << 20, lanes = 4;
  std::string all;
  // The steps of a hash depend on one another, so `lanes` pieces are hashed at
  // the same time.
  for (; bytes.size() >= lanes * piece; bytes.remove_prefix(lanes * piece)) {
    auto *at = reinterpret_cast<const unsigned char *>(bytes.data());
    uint64_t hash[lanes] = {hashBegin, hashBegin, hashBegin, hashBegin};
    for (size_t i = 0; i < piece; ++i)
      for (size_t lane = 0; lane < lanes; ++lane)
        hash[lane] = hashStep(hash[lane], at[lane * piece + i]);
    for (uint64_t one : hash)
      all += textOf(one);
  }
  for (; !bytes.empty(); bytes.remove_prefix(std::min(piece, bytes.size())))
    all += digestOf(bytes.substr(0, piece));
  return digestOf(all);
}

constexpr std::string_view end = "\n}\n", keyText = ",\n \"digest\": \"";
constexpr size_t digits = 16;

std::string sealJson(std::string_view object) {
  std::string_view inner = object.substr(0, object.size() - end.size());
  return std::string(inner) + std::string(keyText) + digestOf(object) + "\"" +
         std::string(end);
}

bool isSealed(std::string_view text) {
  const size_t tail = keyText.size() + digits + 1 + end.size();
  if (text.size() < tail)
    return false;
  // The text is stripped of its digest and sealed again, which must give the
  // same bytes. So changes that only affect whitespace are detected, too.
  return sealJson(std::string(text.substr(0, text.size() - tail)) +
                  std::string(end)) == text;
}

} // namespace cleave
