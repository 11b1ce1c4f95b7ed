#include "engine/io/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <functional>
#include <limits>

#include "base/sha256.h"
#include "engine/io/gguf_types.h"
#include "engine/io/gguf_writer.h"
#include "engine/io/model_digest.h"

namespace llorch::engine::io {
namespace {

using base::ErrorCode;
using plan::DType;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Raw little-endian bytes, for files no writer would produce.
struct Bytes {
  std::vector<std::byte> data;

  template <class T>
  Bytes& put(T value) {
    const auto* first = reinterpret_cast<const std::byte*>(&value);
    data.insert(data.end(), first, first + sizeof value);
    return *this;
  }
  Bytes& raw(std::string_view text) {
    const auto* first = reinterpret_cast<const std::byte*>(text.data());
    data.insert(data.end(), first, first + text.size());
    return *this;
  }
  Bytes& text(std::string_view value) { return put(std::uint64_t{value.size()}).raw(value); }
  Bytes& preamble(std::uint64_t tensors, std::uint64_t entries, std::uint32_t version = 3) {
    return raw("GGUF").put(version).put(tensors).put(entries);
  }
  Bytes& entry(std::string_view key, GgufType type) { return text(key).put(static_cast<std::uint32_t>(type)); }
  struct Tensor {
    std::string_view name = "t";
    std::vector<std::uint64_t> dims{8};
    std::uint32_t type = 0;
    std::uint64_t offset = 0;
  };
  Bytes& tensor(const Tensor& t) {
    text(t.name).put(static_cast<std::uint32_t>(t.dims.size()));
    for (const auto dim : t.dims) put(dim);
    return put(t.type).put(t.offset);
  }
  Bytes& zeros(std::size_t count) {
    data.resize(data.size() + count);
    return *this;
  }
};

TEST(Gguf, ReadsWhatAFileOfEveryKindHolds) {
  GgufWriter writer;
  writer.put("general.architecture", std::string_view("llama"));
  writer.put("u8", std::uint8_t{200});
  writer.put("i8", std::int8_t{-5});
  writer.put("u16", std::uint16_t{60000});
  writer.put("i16", std::int16_t{-300});
  writer.put("u32", std::uint32_t{4'000'000'000});
  writer.put("i32", std::int32_t{-70000});
  writer.put("f32", 1.5f);
  writer.put("bool", true);
  writer.put("u64", std::uint64_t{1} << 40);
  writer.put("i64", std::int64_t{-1} << 40);
  writer.put("f64", 0.25);
  writer.put_strings("strings", std::vector<std::string>{"a", "", "bc"});
  writer.put_f32s("floats", std::vector<float>{1, -2});
  writer.put_i32s("ints", std::vector<std::int32_t>{3, -4, 5});
  const std::vector<float> weights{1, 2, 3, 4, 5, 6};
  writer.add_tensor({.name = "w", .dtype = DType::kF32, .dims = {3, 2}}, std::as_bytes(std::span(weights)));
  const std::vector<std::byte> quantized(68, std::byte{7});
  writer.add_tensor({.name = "q", .dtype = DType::kQ8_0, .dims = {64}}, quantized);
  const auto bytes = writer.to_bytes().value();

  const auto file = GgufFile::parse(bytes, "x.gguf").value();
  EXPECT_EQ(file.version(), 3u);
  EXPECT_EQ(file.metadata().size(), 15u);
  EXPECT_EQ(file.metadata()[0].key, "general.architecture");
  EXPECT_EQ(file.string("general.architecture").value(), "llama");
  EXPECT_EQ(file.u64("u8").value(), 200u);
  EXPECT_EQ(file.u32("u16").value(), 60000u);
  EXPECT_EQ(file.u32("u32").value(), 4'000'000'000u);
  EXPECT_EQ(file.u64("u64").value(), std::uint64_t{1} << 40);
  EXPECT_EQ(file.f32("f32").value(), 1.5f);
  EXPECT_EQ(file.f32("f64").value(), 0.25f);
  EXPECT_TRUE(file.boolean("bool").value());
  EXPECT_EQ(std::get<std::int64_t>(*file.find("i64")), std::int64_t{-1} << 40);
  EXPECT_THAT(file.string_array("strings").value(), ElementsAre("a", "", "bc"));
  EXPECT_THAT(file.f32_array("floats").value(), ElementsAre(1.f, -2.f));
  EXPECT_THAT(file.i32_array("ints").value(), ElementsAre(3, -4, 5));

  const auto* w = file.find_tensor("w");
  ASSERT_NE(w, nullptr);
  EXPECT_EQ(w->rank, 2u);
  EXPECT_THAT(w->dims, ElementsAre(3, 2, 1, 1));
  EXPECT_EQ(w->elements_count(), 6u);
  ASSERT_EQ(w->data.size(), 24u);
  std::vector<float> read(6);
  ASSERT_TRUE(w->data.read(0, std::as_writable_bytes(std::span(read))));
  EXPECT_EQ(read, weights);
  EXPECT_EQ(file.find_tensor("q")->data.size(), 68u);
  EXPECT_EQ(file.find_tensor("q")->data.offset() % 32, 0u);
  EXPECT_EQ(file.find_tensor("missing"), nullptr);
}

TEST(Gguf, EveryTypeIsWrittenAndReadBack) {
  GgufWriter writer;
  std::vector<std::vector<std::byte>> data(static_cast<std::size_t>(DType::kF8_E4M3));  // which is none of the format's
  for (std::size_t i = 0; i < data.size(); ++i) {
    const auto dtype = static_cast<DType>(i);
    const auto info = plan::dtype_info(dtype);
    data[i].assign(3 * 512 / info.block_elements * info.block_bytes, static_cast<std::byte>(i));
    writer.add_tensor({.name = std::string(info.name), .dtype = dtype, .dims = {512, 3}}, data[i]);
  }
  const auto bytes = writer.to_bytes().value();
  const auto file = GgufFile::parse(bytes);
  ASSERT_TRUE(file) << file.error().message;
  for (std::size_t i = 0; i < data.size(); ++i) {
    const auto* tensor = file->find_tensor(plan::dtype_info(static_cast<DType>(i)).name);
    ASSERT_NE(tensor, nullptr) << i;
    EXPECT_EQ(tensor->dtype, static_cast<DType>(i));
    EXPECT_EQ(tensor->data.read_all().value(), data[i]) << i;
  }
}

// The numbers of the format, as ggml gives them.
static_assert(gguf_tensor_type_id(DType::kQ4_1) == 3 && gguf_tensor_type_id(DType::kQ5_0) == 6 &&
              gguf_tensor_type_id(DType::kQ5_1) == 7 && gguf_tensor_type_id(DType::kQ2_K) == 10 &&
              gguf_tensor_type_id(DType::kQ3_K) == 11 && gguf_tensor_type_id(DType::kQ4_K) == 12 &&
              gguf_tensor_type_id(DType::kQ5_K) == 13 && gguf_tensor_type_id(DType::kQ6_K) == 14 &&
              gguf_tensor_type_id(DType::kIQ4_NL) == 20 && gguf_tensor_type_id(DType::kIQ4_XS) == 23 &&
              gguf_tensor_type_id(DType::kMXFP4) == 39);

TEST(Gguf, AcceptsVersion2AndAFileWithoutTensors) {
  const auto bytes = Bytes().preamble(0, 1, 2).entry("k", GgufType::kU8).put(std::uint8_t{1});
  const auto file = GgufFile::parse(bytes.data);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->version(), 2u);
  EXPECT_TRUE(file->tensors().empty());
}

struct Malformed {
  const char* name;
  std::function<Bytes()> bytes;
  ErrorCode code;
  const char* message;  // a part of it
};

std::ostream& operator<<(std::ostream& out, const Malformed& m) { return out << m.name; }

Bytes one_tensor(const Bytes::Tensor& tensor) { return Bytes().preamble(1, 0).tensor(tensor).zeros(512); }
Bytes two_tensors(const Bytes::Tensor& a, const Bytes::Tensor& b) {
  return Bytes().preamble(2, 0).tensor(a).tensor(b).zeros(512);
}
Bytes one_entry(GgufType type) { return Bytes().preamble(0, 1).entry("k", type); }

const std::vector<Malformed> kMalformed{
    {"Empty", [] { return Bytes(); }, ErrorCode::kCorruptFile, "the file is empty"},
    {"WrongMagic", [] { return Bytes().raw("PK\x03\x04").zeros(64); }, ErrorCode::kCorruptFile,
     "it starts with 'PK\\x03\\x04', a GGUF file starts with 'GGUF'"},
    {"MagicOnly", [] { return Bytes().raw("GGUF"); }, ErrorCode::kCorruptFile, "ends inside the version"},
    {"Version1", [] { return Bytes().preamble(0, 0, 1); }, ErrorCode::kUnsupportedFormatVersion, "GGUF version 1;"},
    {"Version4", [] { return Bytes().preamble(0, 0, 4); }, ErrorCode::kUnsupportedFormatVersion, "GGUF version 4;"},
    {"BigEndian", [] { return Bytes().preamble(0, 0, 0x03000000); }, ErrorCode::kUnsupportedFormatVersion,
     "version 3 in big-endian"},
    {"NoCounts", [] { return Bytes().raw("GGUF").put(std::uint32_t{3}).put(std::uint32_t{0}); },
     ErrorCode::kCorruptFile, "the tensor count"},
    {"TensorCountOverLimit", [] { return Bytes().preamble(10'001, 0); }, ErrorCode::kCorruptFile, "the limit is 10000"},
    {"TensorCountOverBytes", [] { return Bytes().preamble(100, 0); }, ErrorCode::kCorruptFile, "claims 100 tensors"},
    {"EntryCountOverLimit", [] { return Bytes().preamble(0, ~0ull); }, ErrorCode::kCorruptFile, "the limit is 1000"},
    {"EntryCountOverBytes", [] { return Bytes().preamble(0, 1000); }, ErrorCode::kCorruptFile, "claims 1000 metadata"},
    {"KeyLengthOverLimit", [] { return Bytes().preamble(0, 1).put(~0ull).zeros(64); }, ErrorCode::kCorruptFile,
     "at byte 24: a metadata key claims"},
    {"KeyPastTheEnd", [] { return Bytes().preamble(0, 1).put(std::uint64_t{100}).zeros(64); }, ErrorCode::kCorruptFile,
     "ends inside a metadata key (100 bytes wanted, 64 left)"},
    {"KeyEmpty", [] { return Bytes().preamble(0, 1).entry("", GgufType::kU8).zeros(64); }, ErrorCode::kCorruptFile,
     "a metadata key is empty"},
    {"KeyNotUtf8", [] { return Bytes().preamble(0, 1).entry("a\xff", GgufType::kU8).zeros(64); },
     ErrorCode::kCorruptFile, "'a\\xff' is not printable UTF-8"},
    {"KeyWithControl", [] { return Bytes().preamble(0, 1).entry("a\nb", GgufType::kU8).zeros(64); },
     ErrorCode::kCorruptFile, "'a\\x0ab' is not printable UTF-8"},
    {"KeyTwice",
     [] {
       return Bytes().preamble(0, 2).entry("k", GgufType::kU8).put(std::uint8_t{0}).entry("k", GgufType::kU8).zeros(1);
     },
     ErrorCode::kCorruptFile, "at byte 46: the metadata key 'k' occurs twice"},
    {"ValueTypeUnknown", [] { return one_entry(static_cast<GgufType>(13)).zeros(64); }, ErrorCode::kCorruptFile,
     "unknown type 13"},
    {"ValueTruncated", [] { return one_entry(GgufType::kU64).zeros(3); }, ErrorCode::kCorruptFile,
     "8 bytes wanted, 3 left"},
    {"BoolOf2", [] { return one_entry(GgufType::kBool).put(std::uint8_t{2}); }, ErrorCode::kCorruptFile,
     "bool of value 2"},
    {"BoolOf2InArray",
     [] {
       return one_entry(GgufType::kArray)
           .put(GgufType::kBool)
           .put(std::uint64_t{2})
           .put(std::uint8_t{1})
           .put(std::uint8_t{2});
     },
     ErrorCode::kCorruptFile, "bool of value 2"},
    {"StringPastTheEnd", [] { return one_entry(GgufType::kString).put(std::uint64_t{9}).raw("abc"); },
     ErrorCode::kCorruptFile, "9 bytes wanted, 3 left"},
    {"StringOverLimit", [] { return one_entry(GgufType::kString).put(~0ull).raw("abc"); }, ErrorCode::kCorruptFile,
     "the limit is 67108864"},
    {"ArrayElementUnknown", [] { return one_entry(GgufType::kArray).put(std::uint32_t{99}).zeros(16); },
     ErrorCode::kCorruptFile, "unknown type 99"},
    {"ArrayNested", [] { return one_entry(GgufType::kArray).put(GgufType::kArray).zeros(32); },
     ErrorCode::kConfigKeyInvalid, "array of arrays"},
    {"ArrayCountOverflow", [] { return one_entry(GgufType::kArray).put(GgufType::kU64).put(~0ull).zeros(16); },
     ErrorCode::kCorruptFile, "only 16 bytes follow"},
    {"ArrayStringsTruncated",
     [] {
       return one_entry(GgufType::kArray).put(GgufType::kString).put(std::uint64_t{2}).text("ok").put(std::uint64_t{7});
     },
     ErrorCode::kCorruptFile, "7 bytes wanted, 0 left"},
    {"ArrayStringOverLimit",
     [] { return one_entry(GgufType::kArray).put(GgufType::kString).put(std::uint64_t{1}).put(std::uint64_t{65537}); },
     ErrorCode::kCorruptFile, "the limit is 65536"},
    {"AlignmentNotPowerOfTwo",
     [] { return Bytes().preamble(0, 1).entry("general.alignment", GgufType::kU32).put(std::uint32_t{48}); },
     ErrorCode::kConfigKeyInvalid, "general.alignment is 48"},
    {"AlignmentTooSmall",
     [] { return Bytes().preamble(0, 1).entry("general.alignment", GgufType::kU32).put(std::uint32_t{4}); },
     ErrorCode::kConfigKeyInvalid, "general.alignment is 4"},
    {"AlignmentNotANumber",
     [] { return Bytes().preamble(0, 1).entry("general.alignment", GgufType::kString).text("32"); },
     ErrorCode::kConfigKeyInvalid, "wanted a count"},
    {"AlignmentHuge",
     [] {
       return Bytes()
           .preamble(1, 1)
           .entry("general.alignment", GgufType::kU64)
           .put(std::uint64_t{1} << 63)
           .tensor({})
           .zeros(512);
     },
     ErrorCode::kCorruptFile, "occupies bytes 9223372036854775808"},
    {"TensorNameTooLong",
     [] { return one_tensor({.name = "0123456789012345678901234567890123456789012345678901234567890123456789"}); },
     ErrorCode::kCorruptFile, "claims 70 bytes, the limit is 64"},
    {"TensorTwice", [] { return two_tensors({.name = "a"}, {.name = "a", .offset = 32}); }, ErrorCode::kCorruptFile,
     "tensor name 'a' occurs twice"},
    {"TensorRank0", [] { return one_tensor({.dims = {}}); }, ErrorCode::kCorruptFile, "has 0 dimensions"},
    {"TensorRank5",
     [] {
       return one_tensor({.dims = {1, 1, 1, 1, 1}});
     },
     ErrorCode::kCorruptFile, "has 5 dimensions"},
    {"TensorDim0",
     [] {
       return one_tensor({.dims = {8, 0}});
     },
     ErrorCode::kCorruptFile, "dimension of 0"},
    {"TensorProductOverflows",
     [] {
       return one_tensor({.dims = {1ull << 32, 1ull << 32}});
     },
     ErrorCode::kCorruptFile, "overflows 64 bits"},
    {"TensorBytesOverflow", [] { return one_tensor({.dims = {1ull << 62}}); }, ErrorCode::kCorruptFile,
     "overflows 64 bits"},
    {"TensorEndOverflows", [] { return one_tensor({.offset = ~std::uint64_t{31}}); }, ErrorCode::kCorruptFile,
     "overflows 64 bits"},
    {"TensorPastTheEnd", [] { return one_tensor({.dims = {1000}}); }, ErrorCode::kCorruptFile,
     "occupies bytes 64 to 4064"},
    {"TensorMisaligned", [] { return one_tensor({.offset = 8}); }, ErrorCode::kCorruptFile,
     "no multiple of the alignment 32"},
    {"TensorPartialBlock", [] { return one_tensor({.dims = {33}, .type = 8}); }, ErrorCode::kCorruptFile,
     "Q8_0's block of 32"},
    {"TensorsOverlap", [] { return two_tensors({.name = "a", .dims = {16}}, {.name = "b", .offset = 32}); },
     ErrorCode::kCorruptFile, "data of tensors 'a' and 'b' overlaps"},
    {"TensorTypeKnown", [] { return one_tensor({.name = "blk.0.attn_q.weight", .type = 17}); },
     ErrorCode::kUnsupportedQuantType, "tensor 'blk.0.attn_q.weight' has type IQ2_XS"},
    {"TensorTypeUnknown", [] { return one_tensor({.type = 1000}); }, ErrorCode::kUnsupportedQuantType,
     "unknown type 1000"},
};

class GgufMalformed : public ::testing::TestWithParam<Malformed> {};

TEST_P(GgufMalformed, IsRefusedWithItsOwnCodeAndMessage) {
  const auto bytes = GetParam().bytes();
  const auto file = GgufFile::parse(bytes.data, "bad.gguf");
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code, GetParam().code) << file.error().message;
  EXPECT_THAT(file.error().message, HasSubstr(GetParam().message));
  EXPECT_THAT(file.error().message, HasSubstr("bad.gguf: "));
}

INSTANTIATE_TEST_SUITE_P(Table, GgufMalformed, ::testing::ValuesIn(kMalformed),
                         [](const auto& row) { return std::string(row.param.name); });

TEST(Gguf, EveryPrefixOfAFileIsRefused) {
  GgufWriter writer;
  writer.put("a", std::string_view("text"));
  writer.put_strings("b", std::vector<std::string>{"x", "y"});
  const std::vector<float> weights(9, 1.f);
  writer.add_tensor({.name = "w", .dtype = DType::kF32, .dims = {9}}, std::as_bytes(std::span(weights)));
  const auto bytes = writer.to_bytes().value();
  ASSERT_TRUE(GgufFile::parse(bytes));
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    const std::vector<std::byte> prefix(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n));
    const auto file = GgufFile::parse(prefix);
    ASSERT_FALSE(file) << n;
    EXPECT_EQ(file.error().code, ErrorCode::kCorruptFile) << n;
  }
}

TEST(Gguf, TypedReadsSayWhatTheyWanted) {
  GgufWriter writer;
  writer.put("negative", std::int32_t{-1});
  writer.put("big", std::uint64_t{1} << 33);
  writer.put("word", std::string_view("no"));
  writer.put("latin", std::string_view("\xe9"));
  writer.put("nan", std::numeric_limits<float>::quiet_NaN());
  writer.put("wide", 1e300);
  writer.put_f32s("floats", std::vector<float>{1, std::numeric_limits<float>::infinity()});
  const std::vector<std::uint32_t> unsigned_values{1, 3'000'000'000};
  writer.put("u32s", GgufArray{GgufType::kU32, 2, std::as_bytes(std::span(unsigned_values))});
  const auto bytes = writer.to_bytes().value();
  const auto file = GgufFile::parse(bytes, "m.gguf").value();

  const auto code = [](const auto& result) { return result ? ErrorCode::kInternal : result.error().code; };
  EXPECT_EQ(code(file.u64("absent")), ErrorCode::kConfigKeyMissing);
  EXPECT_EQ(file.u64("absent").error().message, "m.gguf: the metadata key absent is missing");
  EXPECT_EQ(code(file.u64("negative")), ErrorCode::kConfigKeyInvalid);
  EXPECT_EQ(file.u32("big").error().message,
            "m.gguf: the metadata key big is u64 8589934592, wanted an integer from 0 to 4294967295");
  EXPECT_EQ(code(file.u64("word")), ErrorCode::kConfigKeyInvalid);
  EXPECT_EQ(code(file.f32("word")), ErrorCode::kConfigKeyInvalid);
  EXPECT_EQ(code(file.f32("big")), ErrorCode::kConfigKeyInvalid);
  EXPECT_EQ(code(file.f32("nan")), ErrorCode::kConfigKeyInvalid);
  EXPECT_EQ(code(file.f32("wide")), ErrorCode::kConfigKeyInvalid);
  EXPECT_EQ(code(file.boolean("negative")), ErrorCode::kConfigKeyInvalid);
  EXPECT_EQ(code(file.string("negative")), ErrorCode::kConfigKeyInvalid);
  EXPECT_EQ(code(file.string("latin")), ErrorCode::kConfigKeyInvalid);
  EXPECT_EQ(code(file.string_array("floats")), ErrorCode::kConfigKeyInvalid);
  EXPECT_EQ(code(file.i32_array("floats")), ErrorCode::kConfigKeyInvalid);
  EXPECT_THAT(file.f32_array("floats").error().message, HasSubstr("element 1"));
  EXPECT_THAT(file.i32_array("u32s").error().message, HasSubstr("element 1"));
  EXPECT_EQ(code(file.f32_array("u32s")), ErrorCode::kConfigKeyInvalid);

  EXPECT_EQ(file.u64_or("absent", 7).value(), 7u);
  EXPECT_EQ(file.u32_or("absent", 7).value(), 7u);
  EXPECT_EQ(file.f32_or("absent", 2.f).value(), 2.f);
  EXPECT_TRUE(file.boolean_or("absent", true).value());
  EXPECT_EQ(file.string_or("absent", "d").value(), "d");
  EXPECT_EQ(code(file.u32_or("word", 7)), ErrorCode::kConfigKeyInvalid);
}

TEST(Gguf, ValuesAsTextAreShortAndEscaped) {
  const std::vector<std::int32_t> ints{1, 2, 3};
  EXPECT_EQ(to_text(GgufArray{GgufType::kI32, 3, std::as_bytes(std::span(ints))}), "[3 i32] 1, 2, 3");
  EXPECT_EQ(to_text(GgufArray{GgufType::kI32, 3, std::as_bytes(std::span(ints))}, 10), "[3 i32] 1, 2, ...");
  EXPECT_EQ(to_text(std::string_view("a\nb\x01\xff\xc3\xa9")), "\"a\\nb\\x01\\xff\xc3\xa9\"");
  EXPECT_EQ(to_text(std::string_view("abcdef"), 3), "\"abc...\"");
  EXPECT_EQ(to_text(true), "true");
  EXPECT_EQ(to_text(1e-5f), "1e-05");
}

// A random value of any type: what it says is compared by its bytes.
rc::Gen<std::pair<GgufType, std::vector<std::uint8_t>>> random_scalar() {
  using Scalar = std::pair<GgufType, std::vector<std::uint8_t>>;
  return rc::gen::apply(
      [](int type, std::vector<std::uint8_t> bytes) -> Scalar {
        if (static_cast<GgufType>(type) == GgufType::kBool) bytes[0] &= 1;
        return {static_cast<GgufType>(type), bytes};
      },
      rc::gen::elementOf(std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12}),
      rc::gen::container<std::vector<std::uint8_t>>(8, rc::gen::arbitrary<std::uint8_t>()));
}

GgufValue value_of(GgufType type, const std::vector<std::uint8_t>& bytes) {
  const auto as = [&](auto zero) {
    std::memcpy(&zero, bytes.data(), sizeof zero);
    return GgufValue(zero);
  };
  switch (type) {
    case GgufType::kU8: return as(std::uint8_t{});
    case GgufType::kI8: return as(std::int8_t{});
    case GgufType::kU16: return as(std::uint16_t{});
    case GgufType::kI16: return as(std::int16_t{});
    case GgufType::kU32: return as(std::uint32_t{});
    case GgufType::kI32: return as(std::int32_t{});
    case GgufType::kF32: return as(float{});
    case GgufType::kBool: return GgufValue(bytes[0] == 1);
    case GgufType::kU64: return as(std::uint64_t{});
    case GgufType::kI64: return as(std::int64_t{});
    default: return as(double{});
  }
}

std::string bits_of(const GgufValue& value) {
  return std::visit(
      [&](const auto& v) -> std::string {
        using T = std::decay_t<decltype(v)>;
        std::string out = std::to_string(value.index()) + ":";
        if constexpr (std::is_same_v<T, std::string_view>)
          return out + std::string(v);
        else if constexpr (std::is_same_v<T, GgufArray>) {
          out += std::to_string(static_cast<unsigned>(v.element_type)) + "," + std::to_string(v.count) + ":";
          return out.append(reinterpret_cast<const char*>(v.bytes.data()), v.bytes.size());
        } else {
          return out.append(reinterpret_cast<const char*>(&v), sizeof v);
        }
      },
      value);
}

TEST(GgufProperty, ReaderGivesBackWhatTheWriterWrote) {
  const bool held = rc::check([] {
    GgufWriter writer(*rc::gen::element(8u, 16u, 32u, 64u, 4096u));
    const auto scalars =
        *rc::gen::container<std::vector<std::pair<GgufType, std::vector<std::uint8_t>>>>(random_scalar());
    for (std::size_t i = 0; i < scalars.size(); ++i) {
      writer.put("s" + std::to_string(i), value_of(scalars[i].first, scalars[i].second));
    }
    const auto strings = *rc::gen::arbitrary<std::vector<std::string>>();
    writer.put_strings("strings", strings);
    const auto ints = *rc::gen::arbitrary<std::vector<std::int32_t>>();
    writer.put_i32s("ints", ints);

    struct Tensor {
      DType dtype;
      std::vector<std::uint64_t> dims;
      std::vector<std::byte> data;
    };
    std::vector<Tensor> tensors;
    const auto count = *rc::gen::inRange(0, 5);
    for (int i = 0; i < count; ++i) {
      const auto dtype =
          *rc::gen::element(DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0, DType::kI32);
      const auto info = plan::dtype_info(dtype);
      std::vector<std::uint64_t> dims{*rc::gen::inRange<std::uint64_t>(1, 5) * info.block_elements};
      const auto rank = *rc::gen::inRange(1, 5);
      while (dims.size() < static_cast<std::size_t>(rank)) dims.push_back(*rc::gen::inRange<std::uint64_t>(1, 4));
      std::uint64_t bytes = dims[0] / info.block_elements * info.block_bytes;
      for (std::size_t d = 1; d < dims.size(); ++d) bytes *= dims[d];
      tensors.push_back({dtype, dims, std::vector<std::byte>(bytes, static_cast<std::byte>(i + 1))});
    }
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      writer.add_tensor({.name = "t" + std::to_string(i), .dtype = tensors[i].dtype, .dims = tensors[i].dims},
                        tensors[i].data);
    }

    const auto bytes = writer.to_bytes().value();
    const auto file = GgufFile::parse(bytes).value();
    RC_ASSERT(file.tensors().size() == tensors.size());
    for (std::size_t i = 0; i < scalars.size(); ++i) {
      const auto* value = file.find("s" + std::to_string(i));
      RC_ASSERT(value != nullptr);
      RC_ASSERT(bits_of(*value) == bits_of(value_of(scalars[i].first, scalars[i].second)));
    }
    const auto read_strings = file.string_array("strings").value();
    RC_ASSERT(std::vector<std::string>(read_strings.begin(), read_strings.end()) == strings);
    RC_ASSERT(file.i32_array("ints").value() == ints);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const auto* t = file.find_tensor("t" + std::to_string(i));
      RC_ASSERT(t != nullptr);
      RC_ASSERT(t->dtype == tensors[i].dtype);
      RC_ASSERT(t->rank == tensors[i].dims.size());
      RC_ASSERT(std::equal(tensors[i].dims.begin(), tensors[i].dims.end(), t->dims.begin()));
      RC_ASSERT(t->data.read_all().value() == tensors[i].data);
      RC_ASSERT(t->data.offset() % file.alignment() == 0);
    }

    // Copying everything through a second writer gives the same bytes.
    GgufWriter copy(static_cast<std::uint32_t>(file.alignment()));
    for (const auto& entry : file.metadata()) {
      if (entry.key != "general.alignment") copy.put(entry.key, entry.value);
    }
    for (const auto& t : file.tensors()) {
      copy.add_tensor(
          {.name = std::string(t.name), .dtype = t.dtype, .dims = {t.dims.begin(), t.dims.begin() + t.rank}}, t.data);
    }
    RC_ASSERT(copy.to_bytes().value() == bytes);
  });
  EXPECT_TRUE(held);
}

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string pattern = ::testing::TempDir() + "gguf_XXXXXX";
    path_ = ::mkdtemp(pattern.data());
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

TEST(GgufFiles, WriteOpenMoveAndDigest) {
  const TemporaryDirectory directory;
  const auto path = directory / "m.gguf";
  GgufWriter writer;
  writer.put("general.name", std::string_view("x"));
  const std::vector<float> weights(100, 0.5f);
  writer.add_tensor({.name = "w", .dtype = DType::kF32, .dims = {100}}, std::as_bytes(std::span(weights)));
  ASSERT_TRUE(writer.write(path));

  auto opened = GgufFile::open(path);
  ASSERT_TRUE(opened) << opened.error().message;
  const auto name = opened->string("general.name").value();
  const GgufFile file = std::move(*opened);
  EXPECT_EQ(name, "x");  // views survive the move
  EXPECT_EQ(file.find_tensor("w")->data.size(), 400u);
  EXPECT_EQ(file.file_bytes(), std::filesystem::file_size(path));

  std::uint64_t last_done = 0, last_total = 0;
  const auto digest = model_digest(path, [&](std::uint64_t done, std::uint64_t total) -> base::Result<> {
    last_done = done;
    last_total = total;
    return {};
  });
  std::ifstream in(path, std::ios::binary);
  const std::string content{std::istreambuf_iterator<char>(in), {}};
  EXPECT_EQ(digest.value(), base::to_hex(base::sha256(content)));
  EXPECT_EQ(last_done, content.size());
  EXPECT_EQ(last_total, content.size());
}

TEST(GgufFiles, FailuresLeaveNothingBehind) {
  const TemporaryDirectory directory;
  GgufWriter writer;
  writer.add_tensor({.name = "w", .dtype = DType::kF32, .dims = {100}}, std::span<const std::byte>());
  const auto short_data = writer.write(directory / "m.gguf");
  ASSERT_FALSE(short_data);
  EXPECT_EQ(short_data.error().code, ErrorCode::kWeightShapeMismatch);
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));

  EXPECT_EQ(GgufWriter().write(directory / "no/such/directory/m.gguf").error().code, ErrorCode::kIoError);
  EXPECT_EQ(GgufFile::open(directory / "absent.gguf").error().code, ErrorCode::kIoError);
  EXPECT_EQ(GgufFile::open(directory.path()).error().code, ErrorCode::kIoError);
  EXPECT_EQ(model_digest(directory / "absent.gguf").error().code, ErrorCode::kIoError);
}

TEST(GgufFiles, WhatAppearedMeanwhileIsReplacedOnlyWhereThatIsSaid) {
  const TemporaryDirectory directory;
  const auto path = directory / "m.gguf";
  const std::vector<float> weights(100, 0.5f);
  GgufWriter writer;
  writer.add_tensor({.name = "w", .dtype = DType::kF32, .dims = {100}},
                    GgufWriter::Producer([&]() -> base::Result<std::span<const std::byte>> {
                      std::ofstream(path) << "mine";
                      return std::as_bytes(std::span(weights));
                    }));
  const auto refused = writer.write(path, {.replaces = false});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kConflict);
  EXPECT_EQ(std::filesystem::file_size(path), 4U);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path()), {}), 1);
  EXPECT_TRUE(writer.write(path));
  EXPECT_EQ(std::filesystem::file_size(path), writer.file_bytes());
}

TEST(GgufFiles, AnErrorAtTheEndLeavesNothing) {
  const TemporaryDirectory directory;
  bool is_written = false;
  const auto check = [&]() -> base::Result<> {
    for (const auto& entry : std::filesystem::directory_iterator(directory.path()))
      is_written = entry.file_size() == GgufWriter().file_bytes();
    return base::fail(ErrorCode::kCancelled, "no");
  };
  const auto refused = GgufWriter().write(directory / "m.gguf", {.check = check});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kCancelled);
  EXPECT_TRUE(is_written);
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

// Whoever may write into the directory puts a link where the next file will be.
TEST(GgufFiles, NothingIsWrittenThroughALink) {
  const TemporaryDirectory directory;
  std::ofstream(directory / "theirs") << "mine";
  const auto link = directory / ("m.gguf." + std::to_string(::getpid()) + ".0.tmp");
  std::filesystem::create_symlink(directory / "theirs", link);
  EXPECT_TRUE(GgufWriter().write(directory / "m.gguf"));
  EXPECT_TRUE(std::filesystem::is_regular_file(directory / "m.gguf"));
  EXPECT_EQ(std::filesystem::file_size(directory / "theirs"), 4U);
  EXPECT_TRUE(std::filesystem::is_symlink(link));
}

TEST(GgufFiles, ReadsTheDemoModelInEachOfItsTypes) {
  const std::filesystem::path directory = LLORCH_SOURCE_DIR "/../shared/models/demo";
  if (!std::filesystem::exists(directory)) GTEST_SKIP() << "no directory " << directory;
  for (const auto& [name, dtype] : {std::pair{"f16", DType::kF16}, {"q8_0", DType::kQ8_0}, {"q4_0", DType::kQ4_0}}) {
    const auto file = GgufFile::open(directory / ("fairytale-5m-" + std::string(name) + ".gguf"));
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ(file->string("general.architecture").value(), "llama");
    EXPECT_EQ(file->string_array("tokenizer.ggml.tokens").value().size(), 2048u);
    const auto* query = file->find_tensor("blk.0.attn_q.weight");
    ASSERT_NE(query, nullptr);
    EXPECT_THAT(query->dims, ElementsAre(256, 256, 1, 1));
    EXPECT_EQ(query->dtype, dtype);
  }
}

TEST(GgufFiles, ReadsWhatTheFieldsOwnConverterWrites) {
  const std::filesystem::path directory = LLORCH_SOURCE_DIR "/../shared/data/golden";
  if (!std::filesystem::exists(directory)) GTEST_SKIP() << "no directory " << directory;
  int count = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    if (entry.path().extension() != ".gguf") continue;
    const auto file = GgufFile::open(entry.path());
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_FALSE(file->tensors().empty()) << entry.path();
    ++count;
  }
  EXPECT_GE(count, 10);
}

}  // namespace
}  // namespace llorch::engine::io
