// Reads the parameters of kernels from the binary image of a module.

#include "image.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <elf.h>
#include <regex>

using namespace recorder;

namespace {
using Kernels = std::map<std::string, KernelImage>;

// Reads the section ".nv.info.NAME" of a kernel. It is a list of attributes: a
// format byte, a key byte, and 16 bits that are the value or, for format 4, the
// length of the value. Key 0x17 is a parameter: an index, 16 bits of its
// ordinal, 16 bits of its offset, and a word that has its size in bits 18 and
// higher. Key 5 is the largest thread block that the kernel declares, in three
// words.
void readInfo(const unsigned char *at, size_t bytes, KernelImage &out) {
  std::map<int, int> sizes;
  for (size_t i = 0; i + 4 <= bytes;) {
    uint16_t length;
    std::memcpy(&length, at + i + 2, 2);
    bool isLong = at[i] == 4;
    if (isLong && at[i + 1] == 0x17 && length >= 12 && i + 16 <= bytes) {
      uint16_t ordinal;
      uint32_t word;
      std::memcpy(&ordinal, at + i + 8, 2);
      std::memcpy(&word, at + i + 12, 4);
      sizes[ordinal] = int(word >> 18);
    }
    if (isLong && at[i + 1] == 5 && length >= 12 && i + 16 <= bytes) {
      uint32_t block[3];
      std::memcpy(block, at + i + 4, sizeof(block));
      out.threads = int64_t(block[0]) * block[1] * block[2];
    }
    i += 4 + (isLong ? length : 0);
  }
  for (auto [ordinal, size] : sizes)
    out.parameters.push_back(size);
}

Kernels readCubin(const char *image) {
  Kernels out;
  Elf64_Ehdr header;
  std::memcpy(&header, image, sizeof(header));
  std::vector<Elf64_Shdr> sections(header.e_shnum);
  if (sections.empty() || header.e_shstrndx >= header.e_shnum)
    return out;
  std::memcpy(sections.data(), image + header.e_shoff,
              sections.size() * sizeof(Elf64_Shdr));
  const char *names = image + sections[header.e_shstrndx].sh_offset;
  for (const Elf64_Shdr &section : sections) {
    std::string name = names + section.sh_name;
    auto isOf = [&](const char *prefix) {
      return name.compare(0, std::strlen(prefix), prefix) == 0;
    };
    if (isOf(".nv.info."))
      readInfo(reinterpret_cast<const unsigned char *>(image) +
                   section.sh_offset,
               section.sh_size, out[name.substr(9)]);
    if (isOf(".nv.shared."))
      out[name.substr(11)].shared = int64_t(section.sh_size);
  }
  out.erase("reserved.0"); // the system's shared memory, no kernel
  return out;
}

int sizeOfType(const std::string &type) {
  std::string digits;
  for (char c : type)
    if (c >= '0' && c <= '9')
      digits += c;
  return digits.empty() ? 0 : std::stoi(digits) / 8;
}

// Reads the parameters of ".entry NAME(.param .u64 NAME_0, .param .align 8 .b8
// NAME_1[48])".
Kernels readPtx(const std::string &text) {
  Kernels out;
  for (size_t at = text.find(".entry"); at != std::string::npos;
       at = text.find(".entry", at + 1)) {
    size_t open = text.find('(', at), end = text.find_first_of("{", at);
    size_t stop = std::min(open, end);
    if (stop == std::string::npos)
      break;
    std::string name = text.substr(at + 6, stop - at - 6);
    name.erase(0, name.find_first_not_of(" \t\n"));
    name.erase(name.find_last_not_of(" \t\n") + 1);
    std::vector<int> &sizes = out[name].parameters;
    size_t promised = text.find(".maxntid", at);
    if (promised < end)
      out[name].threads = std::atoll(text.c_str() + promised + 8);
    if (open > end)
      continue;
    std::string list = text.substr(open, text.find(')', open) - open);
    static const std::regex one(
        R"(\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)(?:\s+\.ptr[^,\[]*?)?\s+[\w$%]+(?:\[(\d+)\])?\s*(?=,|$))");
    for (std::sregex_iterator it(list.begin(), list.end(), one), last;
         it != last; ++it) {
      int count = (*it)[2].matched ? std::stoi((*it)[2]) : 1;
      sizes.push_back(sizeOfType((*it)[1]) * count);
    }
  }
  return out;
}
} // namespace

Kernels recorder::kernelsOf(const void *image) {
  auto *bytes = static_cast<const char *>(image);
  if (std::strncmp(bytes, ELFMAG, SELFMAG) == 0)
    return readCubin(bytes);
  // A fat binary has a header of 16 bytes before its contents.
  if (std::strncmp(bytes, "\x50\xed\x55\xba", 4) == 0) {
    uint64_t size;
    std::memcpy(&size, bytes + 8, 8);
    for (uint64_t at = 16; at + sizeof(Elf64_Ehdr) <= size + 16; at += 8)
      if (std::memcmp(bytes + at, ELFMAG, SELFMAG) == 0)
        return readCubin(bytes + at);
    return {};
  }
  return readPtx(bytes);
}
