// Decides which attention weights dropout keeps. Included by isa_*.cpp, before
// attention_kernels.h.

// The random words for consecutive keys: the counters of the Philox blocks that
// contain them, and the index of each key's word among the words of all blocks.
struct DropoutWords {
  int64_t blocks = 0;
  uint32_t counters[attentionKeys];
  int32_t at[attentionKeys]; // word * attentionKeys + number of the block
};

template <class S, class T = Compute<S>>
DropoutWords dropoutWords(const AttentionProblem<S> &p, int64_t b, int64_t k0,
                          int64_t keys) {
  DropoutWords out;
  for (int64_t j = 0; j < keys; ++j) {
    int64_t index = p.keyIndices.at(b, k0 + j);
    uint32_t counter = philox::blockIndex(index);
    if (!out.blocks || out.counters[out.blocks - 1] != counter)
      out.counters[out.blocks++] = counter;
    out.at[j] =
        int32_t(philox::wordIndex(index) * attentionKeys + out.blocks - 1);
  }
  return out;
}

// Sets kept[j] to keptScale if dropout keeps the attention weight of key j,
// else to 0. Entries after the last key are 0.
template <class S, class T = Compute<S>>
void findKept(const AttentionProblem<S> &p, int64_t b, int64_t n, int64_t g,
              int64_t query, int64_t keys, const DropoutWords &of, T *kept) {
  constexpr int64_t lanes = 16;
  static_assert(attentionKeys % lanes == 0);
  auto key =
      uint64_t(p.dropoutKeys[b * p.dropoutStrides[0] + n * p.dropoutStrides[2] +
                             g * p.dropoutStrides[3]]);
  auto queryWord = uint32_t(uint64_t(p.queryIndices.at(b, query)));
  uint32_t words[4][attentionKeys];
  for (int64_t first = 0; first < of.blocks; first += lanes) {
    uint32_t c[4][lanes];
    for (int64_t i = 0; i < lanes; ++i) {
      c[0][i] = first + i < of.blocks ? of.counters[first + i] : 0;
      c[1][i] = queryWord;
      c[2][i] = c[3][i] = 0;
    }
    auto key0 = uint32_t(key), key1 = uint32_t(key >> 32);
    for (int round = 0; round < philox::rounds; ++round) {
      for (int64_t i = 0; i < lanes; ++i) // vectorized
        philox::doRound(c[0][i], c[1][i], c[2][i], c[3][i], key0, key1);
      key0 += philox::weyl0, key1 += philox::weyl1;
    }
    for (int word = 0; word < 4; ++word)
      for (int64_t i = 0; i < lanes; ++i)
        words[word][first + i] = c[word][i];
  }
  const uint32_t *all = words[0];
  for (int64_t j = 0; j < keys; ++j)
    kept[j] = all[of.at[j]] >= p.leastKept ? p.keptScale : T(0);
  for (int64_t j = keys; j < attentionKeys; ++j)
    kept[j] = T(0);
}
