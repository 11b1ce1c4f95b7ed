#pragma once
// One block of f32 values -> stored block. Internal to engine/io/quant; quantize.h is the door.
#include "engine/plan/quant_blocks.h"

namespace llorch::engine::io {

// `x`: as many finite values as the block has, none beyond 3e8 in magnitude (MXFP4: any). False when a scale or min does
// not fit its field.
bool encode(const float* x, plan::BlockQ8_0& out);
bool encode(const float* x, plan::BlockQ4_0& out);
bool encode(const float* x, plan::BlockQ4_1& out);
bool encode(const float* x, plan::BlockQ5_0& out);
bool encode(const float* x, plan::BlockQ5_1& out);
bool encode(const float* x, plan::BlockIQ4_NL& out);
bool encode(const float* x, plan::BlockMXFP4& out);

bool encode(const float* x, plan::BlockQ2_K& out);
bool encode(const float* x, plan::BlockQ3_K& out);
bool encode(const float* x, plan::BlockQ4_K& out);
bool encode(const float* x, plan::BlockQ5_K& out);
bool encode(const float* x, plan::BlockQ6_K& out);
bool encode(const float* x, plan::BlockIQ4_XS& out);

}  // namespace llorch::engine::io
