#include "engine/compute/cpu/host/isa.h"

#include <gtest/gtest.h>

namespace llorch::engine::compute::cpu::host {
namespace {

constexpr CpuFeatures kV3{.avx2 = true, .fma = true, .f16c = true, .avx512 = false};
constexpr CpuFeatures kClient{.avx2 = true, .fma = true, .f16c = true, .avx_vnni = true};
constexpr CpuFeatures kV4{.avx2 = true, .fma = true, .f16c = true, .avx512 = true};
constexpr CpuFeatures kTiles{.avx2 = true, .fma = true, .f16c = true, .avx_vnni = true, .avx512 = true, .amx = true};

TEST(Isa, TheBestSetIsChosen) {
  EXPECT_EQ(select_isa(kV3, "").value(), Isa::kAvx2);
  EXPECT_EQ(select_isa(kClient, "").value(), Isa::kAvxVnni);
  EXPECT_EQ(select_isa(kV4, "").value(), Isa::kAvx512);
  EXPECT_EQ(select_isa(kTiles, "").value(), Isa::kAmx);
}

TEST(Isa, AnOverrideIsObeyedOrRefused) {
  EXPECT_EQ(select_isa(kV4, "avx2").value(), Isa::kAvx2);
  EXPECT_EQ(select_isa(kV4, "avx512").value(), Isa::kAvx512);
  EXPECT_EQ(select_isa(kClient, "avxvnni").value(), Isa::kAvxVnni);
  EXPECT_EQ(select_isa(kClient, "avx2").value(), Isa::kAvx2);
  for (const CpuFeatures& lacking : {kV3, kV4}) {
    const auto refused = select_isa(lacking, "avxvnni");
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, base::ErrorCode::kGpuUnavailable);
    EXPECT_NE(refused.error().message.find("lacks AVX-VNNI"), std::string::npos) << refused.error().message;
  }
  EXPECT_EQ(select_isa(kTiles, "avx512").value(), Isa::kAvx512);
  EXPECT_EQ(select_isa(kTiles, "amx").value(), Isa::kAmx);
  EXPECT_NE(select_isa(kV4, "amx").error().message.find("lacks AMX-INT8"), std::string::npos);
  EXPECT_EQ(select_isa(kClient, "avx512").error().code, base::ErrorCode::kGpuUnavailable);
  EXPECT_EQ(select_isa(kV3, "avx512").error().code, base::ErrorCode::kGpuUnavailable);
  EXPECT_EQ(select_isa(kV4, "sse2").error().code, base::ErrorCode::kConfigInvalid);
}

TEST(Isa, AnOldProcessorIsRefusedWithWhatItLacks) {
  for (const char* name : {"", "avx2"}) {
    const auto refused = select_isa({.avx2 = true, .fma = true, .f16c = false, .avx512 = false}, name);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, base::ErrorCode::kGpuUnavailable);
    EXPECT_NE(refused.error().message.find("lacks F16C"), std::string::npos) << refused.error().message;
  }
}

}  // namespace
}  // namespace llorch::engine::compute::cpu::host
