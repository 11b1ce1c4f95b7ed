// Elementary functions on sixteen lanes, the same operations in the same order on every instruction set.
// Included inside the namespace of one instruction set. Coefficients: tools/fit_polynomials.py.
// docs/internals/numerics.md states steps and error bounds; reference/exact.cpp repeats them one lane at a time.

// ln(2^-126) and ln(FLT_MAX): between them e^x is a normal number.
inline constexpr float kExpLow = -0x1.5d58ap+6f, kExpHigh = 0x1.62e43p+6f;

// e^x = part * 2^power.
struct ExpLanes {
  F32x16 part, power;
};
LLORCH_INLINE ExpLanes exp_parts(F32x16 x) {
  const F32x16 n = round_even(mul(x, set1(0x1.715476p+0f)));
  const F32x16 r = fnma(n, set1(-0x1.05c61p-29f), fnma(n, set1(0x1.62e43p-1f), x));
  F32x16 q = set1(0x1.6d1106p-10f);
  q = fma(q, r, set1(0x1.120b6cp-7f));
  q = fma(q, r, set1(0x1.55551ap-5f));
  q = fma(q, r, set1(0x1.5554dcp-3f));
  q = fma(q, r, set1(0.5f));
  return {add(fma(mul(r, r), q, r), set1(1.0f)), n};
}

// e^x. 0 below kExpLow, +inf above kExpHigh, NaN for NaN. Within 2 ulp elsewhere.
LLORCH_INLINE F32x16 exp_lanes(F32x16 x) {
  const F32x16 low = set1(kExpLow), high = set1(kExpHigh);
  const ExpLanes e = exp_parts(min(high, max(low, x)));  // operand order keeps NaN
  const F32x16 y = times_power(e.part, e.power, less(x, low));
  return select(less(high, x), set1(__builtin_inff()), y);
}
// The same bits for x <= 0 and NaN.
LLORCH_INLINE F32x16 exp_of_negative(F32x16 x) {
  const ExpLanes e = exp_parts(x);
  return times_power(e.part, e.power, less(x, set1(kExpLow)));
}

// ln(1 + x) of x >= 0. With u = 1 + x = m 2^k, m in [sqrt 1/2, sqrt 2): ln m + k ln 2, plus what rounding u lost over u.
// Within 2 ulp.
LLORCH_INLINE F32x16 log1p_lanes(F32x16 x) {
  const F32x16 u = add(set1(1.0f), x);
  const I32x16 k = shift_right<23>(sub(bits_of(u), bits_of(set1(0x1.6a09e6p-1f))));
  const F32x16 f = sub(float_of(sub(bits_of(u), shift_left<23>(k))), set1(1.0f)), t = mul(f, f), kf = to_float(k);
  F32x16 q = set1(0x1.1d8ea6p-4f);
  q = fma(q, f, set1(-0x1.d635bcp-4f));
  q = fma(q, f, set1(0x1.dea282p-4f));
  q = fma(q, f, set1(-0x1.fcf4c6p-4f));
  q = fma(q, f, set1(0x1.23d21ap-3f));
  q = fma(q, f, set1(-0x1.555b4ap-3f));
  q = fma(q, f, set1(0x1.999d5ap-3f));
  q = fma(q, f, set1(-0x1.fffffcp-3f));
  q = fma(q, f, set1(0x1.555554p-2f));
  const F32x16 lost = div(sub(x, sub(u, set1(1.0f))), u);
  const F32x16 r = add(fma(mul(f, t), q, mul(set1(-0.5f), t)), lost);
  return fma(kf, set1(0x1.62e43p-1f), add(f, fma(kf, set1(-0x1.05c61p-29f), r)));
}

// ln(1 + e^x), x above 20. Within 4 ulp while e^x is normal, 0 below.
LLORCH_INLINE F32x16 softplus_lanes(F32x16 x) { return select(less(set1(20.0f), x), x, log1p_lanes(exp_lanes(x))); }

// sin and cos of x, |x| <= 2^20; absolute error below 2^-23.
LLORCH_INLINE void sincos_lanes(F32x16 x, F32x16& sine, F32x16& cosine) {
  const F32x16 n = round_even(mul(x, set1(0x1.45f306p-1f)));
  F32x16 r = fnma(n, set1(0x1.921fb6p+0f), x);
  r = fnma(n, set1(-0x1.777a5cp-25f), r);
  r = fnma(n, set1(-0x1.ee59dap-50f), r);
  const F32x16 t = mul(r, r);
  F32x16 ps = fma(set1(-0x1.9a5006p-13f), t, set1(0x1.110b3ep-7f));
  ps = fma(ps, t, set1(-0x1.555552p-3f));
  const F32x16 s = fma(mul(r, t), ps, r);
  F32x16 pc = fma(set1(0x1.9b771p-16f), t, set1(-0x1.6c1216p-10f));
  pc = fma(pc, t, set1(0x1.555554p-5f));
  const F32x16 c = fma(mul(t, t), pc, fma(set1(-0.5f), t, set1(1.0f)));
  const I32x16 quadrant = to_int(n), one = set1_i(1), two = set1_i(2);
  const Mask16 even = equal(bit_and(quadrant, one), set1_i(0));
  const I32x16 sine_sign = shift_left<30>(bit_and(quadrant, two));
  const I32x16 cosine_sign = shift_left<30>(bit_and(add(quadrant, one), two));
  sine = float_of(bit_xor(bits_of(select(even, s, c)), sine_sign));
  cosine = float_of(bit_xor(bits_of(select(even, c, s)), cosine_sign));
}

// tanh x: odd polynomial below 0.625, 1 - 2 / (e^2|x| + 1) above. Within 4 ulp.
LLORCH_INLINE F32x16 tanh_lanes(F32x16 x) {
  const I32x16 sign = bit_and(bits_of(x), set1_i(INT32_MIN));
  const F32x16 a = float_of(bit_xor(bits_of(x), sign));
  const F32x16 t = mul(x, x);
  F32x16 p = set1(-0x1.8f8de4p-8f);
  p = fma(p, t, set1(0x1.58048ep-6f));
  p = fma(p, t, set1(-0x1.b9258ap-5f));
  p = fma(p, t, set1(0x1.110e1cp-3f));
  p = fma(p, t, set1(-0x1.555552p-2f));
  const F32x16 small = fma(mul(x, t), p, x);
  const F32x16 e = exp_lanes(add(a, a));
  const F32x16 large = sub(set1(1.0f), div(set1(2.0f), add(e, set1(1.0f))));
  return select(less(a, set1(0.625f)), small, float_of(bit_xor(bits_of(large), sign)));
}

// erf x: odd polynomial below 1, 1 - e^q(|x|) with q ~ ln erfc above, 1 from 4 on. Within 2 ulp.
LLORCH_INLINE F32x16 erf_lanes(F32x16 x) {
  const I32x16 sign = bit_and(bits_of(x), set1_i(INT32_MIN));
  const F32x16 a = float_of(bit_xor(bits_of(x), sign));
  const F32x16 t = mul(x, x);
  F32x16 p = set1(0x1.4a5690p-14f);
  p = fma(p, t, set1(-0x1.a45088p-11f));
  p = fma(p, t, set1(0x1.541270p-8f));
  p = fma(p, t, set1(-0x1.b7fabap-6f));
  p = fma(p, t, set1(0x1.ce2d10p-4f));
  p = fma(p, t, set1(-0x1.81273ep-2f));
  p = fma(p, t, set1(0x1.06eba8p-3f));
  const F32x16 small = fma(x, p, x);
  const F32x16 c = min(set1(4.0f), a);  // operand order keeps NaN
  F32x16 q = set1(0x1.b77830p-20f);
  q = fma(q, c, set1(-0x1.825ce4p-15f));
  q = fma(q, c, set1(0x1.38e5e6p-11f));
  q = fma(q, c, set1(-0x1.37ecc6p-8f));
  q = fma(q, c, set1(0x1.b0e246p-6f));
  q = fma(q, c, set1(-0x1.c2e356p-4f));
  q = fma(q, c, set1(-0x1.437eb4p-1f));
  q = fma(q, c, set1(-0x1.2156fap+0f));
  q = fma(q, c, set1(0x1.4fb068p-12f));
  const F32x16 large = sub(set1(1.0f), exp_lanes(q));
  return select(less(a, set1(1.0f)), small, float_of(bit_xor(bits_of(large), sign)));
}
