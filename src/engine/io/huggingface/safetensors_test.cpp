#include "engine/io/huggingface/safetensors.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cstring>
#include <filesystem>

namespace llorch::engine::io {
namespace {

using base::ErrorCode;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::byte> file_of(std::string_view header, std::size_t data_bytes) {
  std::vector<std::byte> out(8 + header.size() + data_bytes);
  const std::uint64_t length = header.size();
  std::memcpy(out.data(), &length, sizeof length);
  std::memcpy(out.data() + 8, header.data(), header.size());
  for (std::size_t i = 0; i < data_bytes; ++i) out[8 + header.size() + i] = static_cast<std::byte>(i);
  return out;
}

TEST(Safetensors, ReadsTensorsWhereTheyLie) {
  const auto bytes = file_of(
      R"({"__metadata__": {"format": "pt"}, "b": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [4, 16]},
          "a": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]},
          "none": {"dtype": "F16", "shape": [5, 0], "data_offsets": [16, 16]},
          "\u00e9": {"data_offsets": [16, 17], "shape": [1, 1, 1, 1, 1], "dtype": "F8_E4M3"}}   )",
      17);
  const auto file = SafetensorsFile::parse(bytes);
  ASSERT_TRUE(file) << file.error().message;
  ASSERT_EQ(file->tensors().size(), 4u);
  EXPECT_EQ(file->metadata().at("format"), "pt");
  const FileTensor* a = file->find_tensor("a");
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(a->rank, 0u);
  EXPECT_EQ(a->elements_count(), 1u);
  EXPECT_EQ(a->data.offset(), bytes.size() - 17);
  const FileTensor* b = file->find_tensor("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->type, StoredType::kBF16);
  EXPECT_THAT(b->shape(), ElementsAre(2u, 3u));
  EXPECT_EQ(b->data.size(), 12u);
  EXPECT_EQ(describe(*b), "BF16 [2, 3]");
  EXPECT_EQ(file->find_tensor("none")->data.size(), 0u);
  EXPECT_EQ(file->find_tensor("\xc3\xa9")->rank, 5u);
  EXPECT_EQ(file->find_tensor("c"), nullptr);
}

TEST(Safetensors, AnEmptyFileHasNoTensors) {
  const auto file = SafetensorsFile::parse(file_of("{}", 0));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_TRUE(file->tensors().empty());
}

TEST(Safetensors, ViewsSurviveAMove) {
  const auto bytes = file_of(R"({"w": {"dtype": "U8", "shape": [3], "data_offsets": [0, 3]}})", 3);
  auto file = SafetensorsFile::parse(bytes);
  const FileTensor tensor = file->tensors()[0];
  const SafetensorsFile moved = std::move(*file);
  EXPECT_EQ(tensor.name, "w");
  EXPECT_EQ(moved.find_tensor("w")->name.data(), tensor.name.data());
}

struct Refusal {
  const char* name;
  const char* header;
  std::size_t data_bytes;
  ErrorCode code;
  const char* message;
};

constexpr Refusal kRefusals[] = {
    {"NoJson", "{\"a\"", 0, ErrorCode::kCorruptFile, "not valid JSON"},
    {"NoObject", "[]", 0, ErrorCode::kCorruptFile, "its header is no JSON object"},
    {"LeadingSpace", " {}", 0, ErrorCode::kCorruptFile, "its header is no JSON object"},
    {"Empty", "", 0, ErrorCode::kCorruptFile, "its header is no JSON object"},
    {"TrailingText", "{} x", 0, ErrorCode::kCorruptFile, "at byte 3: not valid JSON"},
    {"Hole",
     R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})", 3,
     ErrorCode::kCorruptFile, "tensor 'b' has bytes 2 to 3 of the data, where a tensor that starts at 1 is due"},
    {"HoleAtTheStart", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", 2, ErrorCode::kCorruptFile,
     "starts at 0 is due"},
    {"Overlap",
     R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", 3,
     ErrorCode::kCorruptFile, "must neither overlap"},
    {"Backwards", R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[3,0]}})", 3, ErrorCode::kCorruptFile,
     "bytes 3 to 0"},
    {"PastTheEnd", R"({"a":{"dtype":"U8","shape":[9],"data_offsets":[0,9]}})", 8, ErrorCode::kCorruptFile,
     "there are 8"},
    {"Rest", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 2, ErrorCode::kCorruptFile,
     "1 bytes follow the last tensor"},
    {"WrongSize", R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4, ErrorCode::kCorruptFile,
     "is F32 [2] but has 4 bytes of data"},
    {"Overflow", R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0,
     ErrorCode::kCorruptFile, "has 0 bytes of data"},
    {"TwiceATensor",
     R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", 2,
     ErrorCode::kCorruptFile, "the tensor name 'a' occurs twice"},
    {"TwoDtypes", R"({"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1, ErrorCode::kCorruptFile,
     "has two dtypes"},
    {"TwoShapes", R"({"a":{"dtype":"U8","shape":[1],"shape":[1],"data_offsets":[0,1]}})", 1, ErrorCode::kCorruptFile,
     "a second or an unknown list 'shape'"},
    {"TwiceMetadata", R"({"__metadata__":{"x":"1","x":"2"}})", 0, ErrorCode::kCorruptFile, "'x' occurs twice"},
    {"NoDtype", R"({"a":{"shape":[1],"data_offsets":[0,1]}})", 1, ErrorCode::kCorruptFile, "has no dtype"},
    {"NoShape", R"({"a":{"dtype":"U8","data_offsets":[0,1]}})", 1, ErrorCode::kCorruptFile, "has no shape"},
    {"NoOffsets", R"({"a":{"dtype":"U8","shape":[1]}})", 1, ErrorCode::kCorruptFile, "has no data_offsets"},
    {"OneOffset", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}})", 1, ErrorCode::kCorruptFile,
     "has 1 data_offsets"},
    {"ThreeOffsets", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,2]}})", 1, ErrorCode::kCorruptFile,
     "has 3 data_offsets"},
    {"NegativeDim", R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", 1, ErrorCode::kCorruptFile,
     "where the format has none"},
    {"FloatDim", R"({"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}})", 1, ErrorCode::kCorruptFile,
     "where the format has none"},
    {"UnknownKey", R"({"a":{"dtype":"U8","strides":[1],"shape":[1],"data_offsets":[0,1]}})", 1, ErrorCode::kCorruptFile,
     "unknown list 'strides'"},
    {"NumberForATensor", R"({"a":1})", 0, ErrorCode::kCorruptFile, "where the format has none"},
    {"ListForATensor", R"({"a":[]})", 0, ErrorCode::kCorruptFile, "where the format has none"},
    {"NestedObject", R"({"a":{"dtype":{}}})", 0, ErrorCode::kCorruptFile, "where the format has none"},
    {"NestedList", R"({"a":{"shape":[[1]]}})", 0, ErrorCode::kCorruptFile, "where the format has none"},
    {"MetadataNumber", R"({"__metadata__":{"x":1}})", 0, ErrorCode::kCorruptFile, "where the format has none"},
    {"ControlInName", R"({"a\n":{}})", 0, ErrorCode::kCorruptFile, "the tensor name 'a\\x0a' is not 1 to 256 bytes"},
    {"EmptyName", R"({"":{}})", 0, ErrorCode::kCorruptFile, "the tensor name '' is not"},
    {"TooDeep", R"({"a":{"shape":[[[[[[[[1]]]]]]]]}})", 0, ErrorCode::kCorruptFile, ""},
    {"UnknownType", R"({"a":{"dtype":"F4","shape":[2],"data_offsets":[0,1]}})", 1, ErrorCode::kUnsupportedQuantType,
     "tensor 'a' has the type 'F4'"},
    {"QuantName", R"({"a":{"dtype":"Q4_0","shape":[32],"data_offsets":[0,18]}})", 18, ErrorCode::kUnsupportedQuantType,
     "'Q4_0'"},
    {"TooManyDims", R"({"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}})", 1,
     ErrorCode::kUnsupportedTensorRank, "more than 8 dimensions"},
};

class SafetensorsRefusal : public ::testing::TestWithParam<Refusal> {};

TEST_P(SafetensorsRefusal, IsTypedAndNamesTheCause) {
  const auto file = SafetensorsFile::parse(file_of(GetParam().header, GetParam().data_bytes), "m.safetensors");
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code, GetParam().code) << file.error().message;
  EXPECT_THAT(file.error().message, HasSubstr(GetParam().message));
  EXPECT_THAT(file.error().message, HasSubstr("m.safetensors: "));
}
INSTANTIATE_TEST_SUITE_P(All, SafetensorsRefusal, ::testing::ValuesIn(kRefusals),
                         [](const auto& test) { return test.param.name; });

TEST(Safetensors, LengthsAreHeldAgainstTheFile) {
  const auto code_of = [](std::vector<std::byte> bytes) { return SafetensorsFile::parse(bytes).error().message; };
  EXPECT_THAT(code_of({}), HasSubstr("0 bytes are no safetensors file"));
  auto bytes = file_of("{}", 0);
  for (std::size_t cut = 0; cut < bytes.size(); ++cut) {
    EXPECT_FALSE(SafetensorsFile::parse(std::span(bytes).first(cut))) << cut;
  }
  bytes[0] = std::byte{3};
  EXPECT_THAT(code_of(bytes), HasSubstr("3 bytes wanted, 2 left"));
  for (int i = 0; i < 8; ++i) bytes[i] = std::byte{0xff};
  EXPECT_THAT(code_of(bytes), HasSubstr("the limit is 100000000"));
}

// Any way of cutting the data into tensors is accepted, in any order of the header, and gives back those tensors.
TEST(Safetensors, ReadsAnyTiling) {
  rc::check([] {
    const auto sizes = *rc::gen::container<std::vector<std::uint8_t>>(rc::gen::inRange<std::uint8_t>(0, 40));
    std::vector<std::string> entries;
    std::size_t end = 0;
    for (const auto size : sizes) {
      entries.push_back(fmt::format(R"("t{}":{{"dtype":"I8","shape":[{}],"data_offsets":[{},{}]}})", entries.size(),
                                    size, end, end + size));
      end += size;
    }
    auto shuffled = entries;
    const auto seed = *rc::gen::arbitrary<std::uint32_t>();
    for (std::size_t i = shuffled.size(); i > 1; --i) std::swap(shuffled[i - 1], shuffled[(seed >> (i % 7)) % i]);
    const auto bytes = file_of(fmt::format("{{{}}}", fmt::join(shuffled, ",")), end);
    const auto file = SafetensorsFile::parse(bytes);
    RC_ASSERT(file.has_value());
    std::uint64_t expected = bytes.size() - end;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const FileTensor* tensor = file->find_tensor(fmt::format("t{}", i));
      RC_ASSERT(tensor != nullptr);
      RC_ASSERT(tensor->data.offset() == expected && tensor->data.size() == sizes[i]);
      expected += sizes[i];
    }
  });
}

TEST(SafetensorsIndex, ReadsTheWeightMap) {
  const auto index = SafetensorsIndex::parse(
      R"({"metadata": {"total_size": 10, "more": [1, {"weight_map": {}}]},
          "weight_map": {"b": "model-2.safetensors", "a": "model-1.safetensors", "c": "model-2.safetensors"}})",
      "index.json");
  ASSERT_TRUE(index) << index.error().message;
  EXPECT_THAT(index->files, ElementsAre("model-1.safetensors", "model-2.safetensors"));
  EXPECT_EQ(index->holds.at("a"), 0u);
  EXPECT_EQ(index->holds.at("b"), 1u);
  EXPECT_EQ(index->holds.at("c"), 1u);
}

TEST(SafetensorsIndex, RefusesNamesThatLeaveTheDirectoryAndOtherNonsense) {
  for (const auto& [json, message] : std::vector<std::pair<std::string, std::string>>{
           {R"({"weight_map": {"a": "../m.safetensors"}})", "no name of a .safetensors file"},
           {R"({"weight_map": {"a": "x/m.safetensors"}})", "no name of a .safetensors file"},
           {R"({"weight_map": {"a": "/etc/passwd"}})", "no name of a .safetensors file"},
           {R"({"weight_map": {"a": "m..safetensors"}})", "no name of a .safetensors file"},
           {R"({"weight_map": {"a": ".safetensors"}})", "no name of a .safetensors file"},
           {R"({"weight_map": {"a": "m.bin"}})", "no name of a .safetensors file"},
           {R"({"weight_map": {"a": "m\u0000.safetensors"}})", "no name of a .safetensors file"},
           {R"({"weight_map": {"a": "m.safetensors", "a": "n.safetensors"}})", "names tensor 'a' twice"},
           {R"({"weight_map": {"a": 1}})", "no file name for tensor 'a'"},
           {R"({"weight_map": {"a": ["m.safetensors"]}})", "no file name for tensor 'a'"},
           {R"({"weight_map": {"a": {}}})", "no file name for tensor 'a'"},
           {R"({"weight_map": {"": "m.safetensors"}})", "names the tensor ''"},
           {R"({"weight_map": {"a": "m.safetensors"}, "weight_map": {}})", "two weight_maps"},
           {R"({"weight_map": {}})", "no weight_map with tensors"},
           {R"({"weight_map": []})", "no weight_map with tensors"},
           {R"({"metadata": {"weight_map": {"a": "m.safetensors"}}})", "no weight_map with tensors"},
           {R"({)", "not valid JSON"}}) {
    const auto index = SafetensorsIndex::parse(json, "index.json");
    ASSERT_FALSE(index) << json;
    EXPECT_EQ(index.error().code, ErrorCode::kCorruptFile);
    EXPECT_THAT(index.error().message, HasSubstr(message)) << json;
  }
}

TEST(Safetensors, ReadsWhatTheLibraryWrites) {
  const std::filesystem::path directory = LLORCH_SOURCE_DIR "/../shared/data/golden";
  if (!std::filesystem::exists(directory)) GTEST_SKIP() << "no directory " << directory;
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const auto file = SafetensorsFile::open(entry.path() / "model.safetensors");
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ(file->metadata().at("format"), "pt");
    EXPECT_GT(file->tensors().size(), 10u);
    ++count;
  }
  EXPECT_GE(count, 10);
}

}  // namespace
}  // namespace llorch::engine::io
