// One set of f32 bits whatever the chunks, the threads, the instruction set, the neighbours, the slot or the restart.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>

#include "golden_support.h"

namespace llorch::golden {
namespace {

using base::TokenId;
using engine::inference::RowsWanted;
using engine::inference::SlotRows;
using engine::plan::DType;

struct BitsCase {
  const char* name;
  std::filesystem::path path;
  std::vector<TokenId> tokens;
  DType kv_dtype;
};
void PrintTo(const BitsCase& model, std::ostream* out) { *out << model.name; }

std::vector<TokenId> tale(const char* type) {
  return read_golden(repository() / "tests/golden/demo" / (std::string("tale-") + type + ".bin")).tokens;
}

class Bits : public testing::TestWithParam<BitsCase> {
 protected:
  std::vector<float> run(RunOptions options) const {
    options.kv_dtype = GetParam().kv_dtype;
    return logits_of(GetParam().path, GetParam().tokens, options);
  }
  std::vector<float> reference_ = run({});
};

// SYS-2.3.2, SYS-2.3.4
TEST_P(Bits, AnyChunking) {
  for (std::uint32_t chunk : {1U, 7U, 64U})
    EXPECT_TRUE(same_bits(run({.chunk = chunk}), reference_)) << "chunk " << chunk;
}

// SYS-2.3.4
TEST_P(Bits, AnyThreadCount) {
  for (std::uint32_t threads : {2U, 3U}) {
    EXPECT_TRUE(same_bits(run({.threads = threads}), reference_)) << threads << " threads";
    EXPECT_TRUE(same_bits(run({.chunk = 1, .threads = threads}), reference_)) << threads << " threads, one row";
  }
}

TEST_P(Bits, AnyInstructionSet) {
  int sets_seen = 0;
  for (const std::string& isa : processor_isas()) {
    ++sets_seen;
    EXPECT_TRUE(same_bits(run({.isa = isa}), reference_)) << isa;
    EXPECT_TRUE(same_bits(run({.chunk = 5, .isa = isa}), reference_)) << isa << " in chunks";
  }
  if (sets_seen < 2) GTEST_SKIP() << "this processor has only " << sets_seen << " of the instruction sets";
}

TEST_P(Bits, PrefillAndDecodeAreOneFunction) {
  Device device(GetParam().path, {.kv_dtype = GetParam().kv_dtype, .chunk = 32});
  const std::span<const TokenId> tokens = GetParam().tokens;
  const std::size_t vocab = device.engine().facts().vocab;
  const auto row = [&](std::size_t i) { return std::span(reference_).subspan(i * vocab, vocab); };
  const std::size_t prompt = 41;
  EXPECT_TRUE(same_bits(device.engine().prefill(0, tokens.first(prompt)).value(), row(prompt - 1)));
  for (std::size_t i = prompt; i < tokens.size(); ++i) {
    ASSERT_TRUE(same_bits(device.engine().decode(0, tokens[i]).value(), row(i))) << "step " << i;
  }
}

// SYS-2.3.4
// The sequence in the middle slot of three, its rows ragged and its neighbours busy, idle and restarted.
TEST_P(Bits, AnyCompany) {
  Device device(GetParam().path, {.kv_dtype = GetParam().kv_dtype, .chunk = 48, .slots = 3});
  const std::span<const TokenId> tokens = GetParam().tokens;
  std::vector<TokenId> reversed(tokens.rbegin(), tokens.rend());
  const std::span<const TokenId> other(reversed);
  std::vector<float> got;
  std::size_t done = 0;
  for (std::size_t step = 0; done < tokens.size(); ++step) {
    const std::size_t count = std::min<std::size_t>(std::array{5, 1, 11, 2}[step % 4], tokens.size() - done);
    std::vector<SlotRows> requests;
    if (step % 3 != 0) requests.push_back({0, other.subspan(step % 7, 1 + step % 4), RowsWanted::kLast});
    requests.push_back({1, tokens.subspan(done, count), RowsWanted::kAll});
    if (step % 2 != 0) requests.push_back({2, other.first(1 + step * 3 % 17), RowsWanted::kNone});
    const auto output = device.engine().step(requests).value();
    const std::size_t first = step % 3 != 0 ? 1 : 0;
    for (std::size_t r = 0; r < count; ++r)
      got.insert(got.end(), output.row(first + r).begin(), output.row(first + r).end());
    done += count;
    if (step % 5 == 4) {
      EXPECT_TRUE(device.engine().reset(2));
    }
  }
  EXPECT_TRUE(same_bits(got, reference_));
}

TEST_P(Bits, ARecycledSlot) {
  Device device(GetParam().path, {.kv_dtype = GetParam().kv_dtype, .chunk = 16});
  const std::span<const TokenId> tokens = GetParam().tokens;
  std::vector<TokenId> reversed(tokens.rbegin(), tokens.rend());
  ASSERT_TRUE(device.engine().prefill(0, reversed));
  ASSERT_TRUE(device.engine().reset(0));
  const auto logits = device.engine().prefill(0, tokens).value();
  EXPECT_TRUE(same_bits(logits, std::span(reference_).last(logits.size())));
}

BitsCase family(const char* name, const char* directory, Format format, DType kv_dtype) {
  return {name, *family_model(directory, format), read_golden(family_directory(directory) / "golden.bin").tokens,
          kv_dtype};
}

INSTANTIATE_TEST_SUITE_P(Models, Bits,
                         testing::Values(BitsCase{"f16_f32cache", demo_model("f16"), tale("f16"), DType::kF32},
                                         BitsCase{"q8_0_f16cache", demo_model("q8_0"), tale("q8_0"), DType::kF16},
                                         BitsCase{"q4_0_f16cache", demo_model("q4_0"), tale("q4_0"), DType::kF16},
                                         family("llama3_bf16", "llama3", Format::kGguf, DType::kF16),
                                         family("llama_tied_biases", "llama_tied", Format::kGguf, DType::kF32)),
                         [](const testing::TestParamInfo<BitsCase>& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace llorch::golden
