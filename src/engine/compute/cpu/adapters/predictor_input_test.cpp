#include <cmath>

#include "engine/compute/cpu/adapters/adapter_harness.h"
#include "engine/compute/reference/exact.h"
#include "engine/compute/reference/oracle.h"

namespace llorch::engine::compute::cpu::adapters {
namespace {

using plan::DType;
using plan::Opcode;
using plan::PredictorInputParams;
using plan::PredictorInputSlot;
using testing::Harness;
using testing::HarnessOptions;
using testing::HarnessWeight;
using testing::matmul_rows;
using testing::Random;

class PredictorWorld {
 public:
  static constexpr std::uint32_t kRows = 5;
  static constexpr float kEps = 1e-5f;

  PredictorWorld(Random& random, DType type, std::uint32_t width) : width_(width), weights_(3) {
    at(PredictorInputSlot::kEmbeddingNorm) = HarnessWeight::random(random, DType::kF32, {width});
    at(PredictorInputSlot::kHiddenNorm) = HarnessWeight::random(random, DType::kF32, {width});
    at(PredictorInputSlot::kWeight) = HarnessWeight::random(random, type, {width, 2 * width});
    embeddings_ = random.normals(kRows * width), hidden_ = random.normals(kRows * width);
  }

  PredictorInputParams params() const {
    return {.kind_version = plan::kind_version(Opcode::kPredictorInput),
            .width = width_,
            .norm_eps = kEps,
            .weight_offset = 1};
  }
  std::vector<HarnessWeight>& weights() { return weights_; }

  std::vector<float> run(const HarnessOptions& device, std::uint32_t first, std::uint32_t rows) {
    Harness harness(params(), weights_, device);
    EXPECT_FALSE(harness.error()) << harness.error()->message;
    std::vector<float> y(rows * width_);
    plan::ExecutionContext ctx;
    ctx.total_rows = rows, ctx.hidden_rows = hidden_.data() + first * width_;
    harness.run(ctx, {embeddings_.data() + first * width_}, y.data());
    return y;
  }

  // By the scalar reference of each kernel.
  std::vector<float> expected() {
    std::vector<float> joined;
    for (std::uint32_t r = 0; r < kRows; ++r) {
      for (const auto& [x, slot] : {std::pair(&embeddings_, PredictorInputSlot::kEmbeddingNorm),
                                    std::pair(&hidden_, PredictorInputSlot::kHiddenNorm)}) {
        const auto normed = reference::rms_norm_exact(std::span(*x).subspan(r * width_, width_), at(slot).floats(),
                                                      {.eps = kEps, .weight_offset = 1});
        joined.insert(joined.end(), normed.begin(), normed.end());
      }
    }
    return matmul_rows(at(PredictorInputSlot::kWeight), joined);
  }

  // The formula in double. REQUIRES: F32 weights.
  std::vector<double> direct() {
    const auto w = at(PredictorInputSlot::kWeight).floats();
    std::vector<double> y;
    for (std::uint32_t r = 0; r < kRows; ++r) {
      std::vector<double> joined;
      for (const auto& [x, slot] : {std::pair(&embeddings_, PredictorInputSlot::kEmbeddingNorm),
                                    std::pair(&hidden_, PredictorInputSlot::kHiddenNorm)}) {
        const auto row = std::span(*x).subspan(r * width_, width_);
        const auto weight = at(slot).floats();
        double squares = 0;
        for (const double v : row) squares += v * v;
        const double length = 1 / std::sqrt(squares / width_ + double{kEps});
        for (std::uint32_t i = 0; i < width_; ++i) joined.push_back(row[i] * length * (1.0 + weight[i]));
      }
      for (std::uint32_t n = 0; n < width_; ++n) {
        double sum = 0;
        for (std::uint32_t i = 0; i < 2 * width_; ++i) sum += w[n * 2 * width_ + i] * joined[i];
        y.push_back(sum);
      }
    }
    return y;
  }

 private:
  HarnessWeight& at(PredictorInputSlot slot) { return weights_[static_cast<std::size_t>(slot)]; }
  std::uint32_t width_;
  std::vector<HarnessWeight> weights_;
  std::vector<float> embeddings_, hidden_;
};

TEST(PredictorInput, EqualsItsTwinRowByRow) {
  Random random(90);
  for (const auto& [type, width] :
       {std::pair(DType::kF32, 20u), std::pair(DType::kQ8_0, 64u), std::pair(DType::kQ4_K, 256u)}) {
    SCOPED_TRACE(::testing::Message() << "width " << width << " " << random.note());
    PredictorWorld world(random, type, width);
    ASSERT_NO_FATAL_FAILURE(testing::expect_same_row_by_row(world));
  }
}

TEST(PredictorInput, IsCloseToTheFormula) {
  Random random(91);
  SCOPED_TRACE(random.note());
  PredictorWorld world(random, DType::kF32, 20);
  const auto exact = world.direct();
  const auto y = world.run(testing::devices().back(), 0, PredictorWorld::kRows);
  for (std::size_t i = 0; i < exact.size(); ++i) ASSERT_NEAR(y[i], exact[i], 2e-5) << i;
}

TEST(PredictorInput, AMatrixOfAnotherShapeIsRefusedAtLoad) {
  Random random(92);
  PredictorWorld world(random, DType::kF32, 20);
  PredictorInputParams params = world.params();
  params.width = 10;
  const Harness harness(params, world.weights(), {});
  ASSERT_TRUE(harness.error());
  EXPECT_EQ(harness.error()->code, base::ErrorCode::kWeightShapeMismatch);
}

}  // namespace
}  // namespace llorch::engine::compute::cpu::adapters
