// Recurrent mixers: convolution and state space along the rows of a sequence. Included inside the namespace of one
// instruction set.

LLORCH_INLINE F32x16 load_some(const float* p, std::size_t n) { return n == 16 ? load(p) : load_n(p, n); }
LLORCH_INLINE void store_some(float* p, F32x16 a, std::size_t n) { n == 16 ? store(p, a) : store_n(p, a, n); }

LLORCH_INLINE float* state_of(const SequenceState& state, const SequenceSpans& spans, std::size_t span) {
  return reinterpret_cast<float*>(state.data + spans.sequences[span] * state.stride_bytes);
}

// The rows of one span through sixteen (n) channels from c; the window holds the last `taps` values of v, oldest first.
LLORCH_INLINE void conv_span(const CausalConvArgs& args, std::size_t span, std::size_t c, std::size_t n,
                             const F32x16 (&weights)[kConvTapsMax], F32x16 bias) {
  const std::size_t last = args.taps - 1;
  float* state = state_of(args.state, args.spans, span);
  F32x16 window[kConvTapsMax + 1];
  for (std::size_t k = 0; k < last; ++k) window[k + 1] = load_some(state + k * args.channels + c, n);
  for (std::size_t row = args.spans.row_offsets[span]; row < args.spans.row_offsets[span + 1]; ++row) {
    const std::size_t at = row * args.x_stride + c;
    for (std::size_t k = 0; k < last; ++k) window[k] = window[k + 1];
    F32x16 v = load_some(args.x + at, n);
    if (args.gate_in != nullptr) v = mul(load_some(args.gate_in + at, n), v);
    window[last] = v;
    F32x16 w = bias;
    for (std::size_t k = 0; k <= last; ++k) w = fma(weights[k], window[k], w);
    if (args.silu) w = silu_lanes(w);
    if (args.gate_out != nullptr) w = mul(load_some(args.gate_out + at, n), w);
    store_some(args.y + row * args.y_stride + c, w, n);
  }
  for (std::size_t k = 0; k < last; ++k) store_some(state + k * args.channels + c, window[k + 1], n);
}

inline void causal_conv(const CausalConvArgs& args, Range blocks) {
  for (std::size_t block = blocks.begin; block < blocks.end; ++block) {
    const std::size_t c = 16 * block, n = args.channels - c < 16 ? args.channels - c : 16;
    F32x16 weights[kConvTapsMax];
    for (std::size_t k = 0; k < args.taps; ++k) {
      alignas(64) float lanes[16] = {};
      for (std::size_t j = 0; j < n; ++j) lanes[j] = args.weight[(c + j) * args.taps + k];
      weights[k] = load(lanes);
    }
    const F32x16 bias = args.bias != nullptr ? load_some(args.bias + c, n) : set1(0.0f);
    for (std::size_t span = 0; span < args.spans.count; ++span) conv_span(args, span, c, n, weights, bias);
  }
}

inline void ssm_step(const SsmStepArgs& args, Range rows) {
  const F32x16 low = set1(args.dt_min), high = set1(args.dt_max);
  for (std::size_t row = rows.begin; row < rows.end; ++row) {
    for (std::size_t h = 0; h < args.heads; h += 16) {
      const std::size_t n = args.heads - h < 16 ? args.heads - h : 16, at = row * args.heads + h;
      const F32x16 dt = add(load_some(args.dt + row * args.dt_stride + h, n), load_some(args.bias + h, n));
      const F32x16 delta = min(high, max(low, softplus_lanes(dt)));  // operand order keeps NaN
      store_some(args.delta + at, delta, n);
      store_some(args.decay + at, exp_lanes(mul(delta, load_some(args.a + h, n))), n);
    }
  }
}

// One row of S: s = decay * s + dx * b; returns the sum of s * c, lane = element mod 16, elements increasing, the tree.
LLORCH_INLINE float scan_element(float* s, const float* b, const float* c, float decay, float dx, std::size_t count) {
  const F32x16 decays = set1(decay), dxs = set1(dx);
  F32x16 sums = set1(0.0f);
  for_lanes(
      count,
      [&](std::size_t i) {
        const F32x16 v = fma(decays, load(s + i), mul(dxs, load(b + i)));
        store(s + i, v);
        sums = fma(v, load(c + i), sums);
      },
      [&](std::size_t i, std::size_t n) {
        const F32x16 v = fma(decays, load_n(s + i, n), mul(dxs, load_n(b + i, n)));
        store_n(s + i, v, n);
        const Mask16 counts = less(lane_numbers(), set1_i(static_cast<std::int32_t>(n)));
        sums = select(counts, fma(v, load_n(c + i, n), sums), sums);
      });
  return tree_sum(sums);
}

inline void ssm_scan(const SsmScanArgs& args, Range units) {
  for (std::size_t unit = units.begin; unit < units.end; ++unit) {
    const std::size_t span = unit / args.heads, head = unit % args.heads;
    const std::size_t group = head / (args.heads / args.groups);
    float* state = state_of(args.state, args.spans, span) + head * args.head_dim * args.state_dim;
    for (std::size_t row = args.spans.row_offsets[span]; row < args.spans.row_offsets[span + 1]; ++row) {
      const float* x = args.x + row * args.x_stride + head * args.head_dim;
      const float* b = args.b + row * args.x_stride + group * args.state_dim;
      const float* c = args.c + row * args.x_stride + group * args.state_dim;
      float* y = args.y + row * args.y_stride + head * args.head_dim;
      const float delta = args.delta[row * args.heads + head], decay = args.decay[row * args.heads + head];
      for (std::size_t p = 0; p < args.head_dim; ++p) {
        const float xp = x[p];
        const float sum = scan_element(state + p * args.state_dim, b, c, decay, delta * xp, args.state_dim);
        y[p] = __builtin_fmaf(args.skip[head], xp, sum);
      }
    }
  }
}

// The sum of decay * s times k over a row of S, which decays: lane = element mod 16, elements increasing, the tree.
// A decay for all of them, or each its own.
struct OneDecay {
  F32x16 decay;
  LLORCH_INLINE F32x16 lanes(std::size_t) const { return decay; }
  LLORCH_INLINE F32x16 lanes_n(std::size_t, std::size_t) const { return decay; }
};
struct EachDecay {
  const float* decays;
  LLORCH_INLINE F32x16 lanes(std::size_t i) const { return load(decays + i); }
  LLORCH_INLINE F32x16 lanes_n(std::size_t i, std::size_t n) const { return load_n(decays + i, n); }
};
template <class Decays>
LLORCH_INLINE float decayed_sum(float* s, const float* k, const Decays& decays, std::size_t count) {
  F32x16 sums = set1(0.0f);
  for_lanes(
      count,
      [&](std::size_t i) {
        const F32x16 v = mul(decays.lanes(i), load(s + i));
        store(s + i, v);
        sums = fma(v, load(k + i), sums);
      },
      [&](std::size_t i, std::size_t n) {
        const F32x16 v = mul(decays.lanes_n(i, n), load_n(s + i, n));
        store_n(s + i, v, n);
        const Mask16 counts = less(lane_numbers(), set1_i(static_cast<std::int32_t>(n)));
        sums = select(counts, fma(v, load_n(k + i, n), sums), sums);
      });
  return tree_sum(sums);
}

// One row of a head: S decays, is corrected, and is asked. The correction is scan_element's without a decay.
template <class Decays>
LLORCH_INLINE void delta_row(const DeltaScanArgs& args, float* state, std::size_t row, std::size_t head,
                             const Decays& decays) {
  const std::size_t key = args.key_of(head) * args.key_dim, value = head * args.value_dim;
  const float *q = args.q + row * args.stride + key, *k = args.k + row * args.stride + key;
  const float* v = args.v + row * args.stride + value;
  float* y = args.y + row * args.stride + value;
  const float beta = args.beta[row * args.heads + head];
  for (std::size_t p = 0; p < args.value_dim; ++p) {
    float* s = state + p * args.key_dim;
    const float rest = beta * (v[p] - decayed_sum(s, k, decays, args.key_dim));
    y[p] = scan_element(s, k, q, 1.0f, rest, args.key_dim);
  }
}

inline void delta_scan(const DeltaScanArgs& args, Range units) {
  for (std::size_t unit = units.begin; unit < units.end; ++unit) {
    const std::size_t span = unit / args.heads, head = unit % args.heads;
    float* state = state_of(args.state, args.spans, span) + head * args.value_dim * args.key_dim;
    for (std::size_t row = args.spans.row_offsets[span]; row < args.spans.row_offsets[span + 1]; ++row) {
      const std::size_t at = row * args.heads + head;
      if (args.channel_decay) {
        delta_row(args, state, row, head, EachDecay{args.decay + at * args.key_dim});
      } else {
        delta_row(args, state, row, head, OneDecay{set1(args.decay[at])});
      }
    }
  }
}

inline void softplus_array(const float* x, float* y, std::size_t count) {
  for (std::size_t i = 0; i < count; i += 16) {
    const std::size_t n = count - i < 16 ? count - i : 16;
    store_some(y + i, softplus_lanes(load_some(x + i, n)), n);
  }
}
