// Passes over a row that a draw makes. Included inside the namespace of one instruction set.

inline RowScan scan_row(const float* row, std::size_t width) {
  F32x16 largest = set1(-__builtin_inff());
  I32x16 magnitude = set1_i(0);
  const I32x16 without_sign = set1_i(0x7FFFFFFF);
  const auto take = [&](F32x16 l) __attribute__((always_inline)) {
    largest = max(l, largest);
    magnitude = max(bit_and(bits_of(l), without_sign), magnitude);
  };
  std::size_t i = 0;
  for (; i + 16 <= width; i += 16) take(load(row + i));
  float last[16];
  for (std::size_t lane = 0; lane < 16; ++lane) last[lane] = row[i + lane < width ? i + lane : 0];
  take(load(last));
  return {.largest = tree_max(largest), .finite = max_lane(magnitude) < 0x7F800000};
}

inline std::size_t collect_candidates(const CandidateArgs& args) {
  const F32x16 largest = set1(args.largest), divisor = set1(args.divisor);
  float x[16];
  std::size_t count = 0;
  for (std::size_t i = 0; i < args.width; i += 16) {
    const std::size_t lanes = args.width - i < 16 ? args.width - i : 16;
    const F32x16 block = div(sub(lanes == 16 ? load(args.row + i) : load_n(args.row + i, lanes), largest), divisor);
    if (lanes == 16 && !(tree_max(block) >= args.x_min)) continue;
    store(x, block);
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      args.keys[count] = plan::candidate_key(x[lane], static_cast<std::uint32_t>(i + lane));
      count += x[lane] >= args.x_min ? 1 : 0;
    }
  }
  return count;
}

inline void candidate_weights(const std::uint64_t* keys, std::size_t count, float* weights) {
  for (std::size_t i = 0; i < count; ++i) weights[i] = plan::exp_s1(plan::candidate_x(keys[i]));
}
