#include "engine/io/model_files.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "base/sha256.h"
#include "engine/io/gguf_writer.h"
#include "engine/io/model_digest.h"
#include "engine/io/model_layout.h"

namespace llorch::engine::io {
namespace {

using base::ErrorCode;
using plan::DType;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ModelDirectory : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "llorch-model-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    directory_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  void put(const std::string& name, std::string_view content) const {
    std::ofstream(directory_ / name, std::ios::binary) << content;
  }
  std::string content(const std::string& name) const {
    std::ifstream in(directory_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  // One tensor of four bytes for each name.
  void put_safetensors(const std::string& name, const std::vector<std::string>& tensors) const {
    std::vector<std::string> entries;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      entries.push_back(
          fmt::format(R"("{}":{{"dtype":"F32","shape":[1],"data_offsets":[{},{}]}})", tensors[i], 4 * i, 4 * i + 4));
    }
    const std::string header = fmt::format("{{{}}}", fmt::join(entries, ","));
    std::string out(8, '\0');
    const std::uint64_t length = header.size();
    std::memcpy(out.data(), &length, sizeof length);
    put(name, out + header + std::string(4 * tensors.size(), 'x'));
  }

  struct Part {
    std::string file;
    std::uint16_t number = 0, count = 3;
    std::uint32_t tensors_count = 3;
    std::string tensor;
  };
  void put_part(const Part& part) const {
    GgufWriter writer;
    if (part.number == 0) writer.put("general.architecture", std::string_view("llama"));
    writer.put("split.no", part.number);
    writer.put("split.count", part.count);
    writer.put("split.tensors.count", part.tensors_count);
    const std::vector<float> data(6, part.number);
    if (!part.tensor.empty()) {
      writer.add_tensor({.name = part.tensor, .dtype = DType::kF32, .dims = {3, 2}}, std::as_bytes(std::span(data)));
    }
    ASSERT_TRUE(writer.write(directory_ / part.file));
  }
  // m-00001-of-00003.gguf and its two siblings, with one tensor each.
  void put_split() const {
    put_part({.file = "m-00001-of-00003.gguf", .number = 0, .tensor = "a"});
    put_part({.file = "m-00002-of-00003.gguf", .number = 1, .tensor = "b"});
    put_part({.file = "m-00003-of-00003.gguf", .number = 2, .tensor = "c"});
  }
  // A directory of two shards.
  void put_sharded() const {
    put("config.json", R"({"model_type": "llama"})");
    put_safetensors("model-00001-of-00002.safetensors", {"a", "b"});
    put_safetensors("model-00002-of-00002.safetensors", {"c"});
    put("model.safetensors.index.json", R"({"weight_map": {"a": "model-00001-of-00002.safetensors",
        "b": "model-00001-of-00002.safetensors", "c": "model-00002-of-00002.safetensors"}})");
  }

  void refused(const std::string& name, ErrorCode code, const std::string& message) const {
    const auto files = ModelFiles::open(directory_ / name);
    ASSERT_FALSE(files);
    EXPECT_EQ(files.error().code, code) << files.error().message;
    EXPECT_THAT(files.error().message, HasSubstr(message));
  }

  std::filesystem::path directory_;
};

TEST_F(ModelDirectory, OpensAGgufFileWithRowMajorShapes) {
  GgufWriter writer;
  writer.put("general.architecture", std::string_view("llama"));
  const std::vector<float> data(24, 1);
  writer.add_tensor({.name = "w", .dtype = DType::kF32, .dims = {4, 3, 2}}, std::as_bytes(std::span(data)));
  ASSERT_TRUE(writer.write(directory_ / "m.gguf"));
  auto opened = ModelFiles::open(directory_ / "m.gguf");
  ASSERT_TRUE(opened) << opened.error().message;
  const FileTensor before = opened->tensors()[0];
  const ModelFiles files = std::move(*opened);
  EXPECT_EQ(files.format(), ModelFormat::kGguf);
  EXPECT_EQ(files.source(), (directory_ / "m.gguf").string());
  EXPECT_EQ(files.file_bytes(), std::filesystem::file_size(directory_ / "m.gguf"));
  EXPECT_EQ(files.hf(), nullptr);
  EXPECT_EQ(files.gguf()->string("general.architecture").value(), "llama");
  const FileTensor* tensor = files.find_tensor("w");
  ASSERT_NE(tensor, nullptr);
  EXPECT_THAT(tensor->shape(), ElementsAre(2u, 3u, 4u));
  EXPECT_EQ(tensor->elements_count(), 24u);
  EXPECT_EQ(tensor->type, StoredType::kF32);
  EXPECT_EQ(tensor->data.read_all().value(), before.data.read_all().value());
  EXPECT_EQ(files.find_tensor("v"), nullptr);
}

TEST_F(ModelDirectory, SaysWhenTheFileHasBecomeShorter) {
  GgufWriter writer;
  writer.put("general.architecture", std::string_view("llama"));
  std::vector<float> data(3000);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(i);
  writer.add_tensor({.name = "w", .dtype = DType::kF32, .dims = {3000}}, std::as_bytes(std::span(data)));
  ASSERT_TRUE(writer.write(directory_ / "m.gguf"));
  const ModelFiles files = ModelFiles::open(directory_ / "m.gguf").value();
  const FileTensor& tensor = *files.find_tensor("w");
  std::vector<float> read(1000);
  ASSERT_TRUE(tensor.data.read(8000, std::as_writable_bytes(std::span(read))));
  EXPECT_EQ(read, std::vector<float>(data.begin() + 2000, data.end()));
  std::filesystem::resize_file(directory_ / "m.gguf", std::filesystem::file_size(directory_ / "m.gguf") - 1);
  const auto cut = tensor.data.read(8000, std::as_writable_bytes(std::span(read)));
  ASSERT_FALSE(cut);
  EXPECT_EQ(cut.error().code, ErrorCode::kIoError);
  EXPECT_THAT(cut.error().message, HasSubstr("m.gguf ends at byte"));
  EXPECT_TRUE(tensor.data.read(0, std::as_writable_bytes(std::span(read))));
}

TEST_F(ModelDirectory, OpensASplitModelByAnyOfItsParts) {
  put_split();
  for (const auto* name : {"m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"}) {
    const auto files = ModelFiles::open(directory_ / name);
    ASSERT_TRUE(files) << files.error().message;
    EXPECT_EQ(files->source(), (directory_ / name).string());
    EXPECT_EQ(files->gguf()->string("general.architecture").value(), "llama");
    EXPECT_EQ(files->tensors().size(), 3u);
    EXPECT_EQ(files->file_bytes(), std::filesystem::file_size(directory_ / "m-00001-of-00003.gguf") +
                                       2 * std::filesystem::file_size(directory_ / "m-00002-of-00003.gguf"));
    float value = 0;
    ASSERT_TRUE(files->find_tensor("c")->data.read(0, std::as_writable_bytes(std::span(&value, 1))));
    EXPECT_EQ(value, 2.f);
  }
}

TEST_F(ModelDirectory, TheFirstPartMayHoldOnlyMetadata) {
  put_part({.file = "m-00001-of-00002.gguf", .number = 0, .count = 2, .tensors_count = 1});
  put_part({.file = "m-00002-of-00002.gguf", .number = 1, .count = 2, .tensors_count = 1, .tensor = "a"});
  const auto files = ModelFiles::open(directory_ / "m-00001-of-00002.gguf");
  ASSERT_TRUE(files) << files.error().message;
  EXPECT_EQ(files->tensors().size(), 1u);
}

TEST_F(ModelDirectory, PartsMustBelongTogether) {
  const std::string first = "m-00001-of-00003.gguf";
  put_split();
  std::filesystem::remove(directory_ / "m-00003-of-00003.gguf");
  refused(first, ErrorCode::kIoError, "m-00003-of-00003.gguf");
  put_part({.file = "m-00003-of-00003.gguf", .number = 1, .tensor = "c"});
  refused(first, ErrorCode::kCorruptFile, "says it is part 2 of 3 of a split model, but stands as part 3 of 3");
  put_part({.file = "m-00003-of-00003.gguf", .number = 2, .tensor = "b"});
  refused(first, ErrorCode::kCorruptFile, "the tensor 'b' lies in two of the model's files");
  put_part({.file = "m-00003-of-00003.gguf", .number = 2});
  refused(first, ErrorCode::kCorruptFile, "the model has 3 tensors, its parts hold 2");
  std::filesystem::rename(directory_ / first, directory_ / "m.gguf");
  refused("m.gguf", ErrorCode::kCorruptFile, "a part of a model split into 3 files");
  std::filesystem::rename(directory_ / "m.gguf", directory_ / "m-00001-of-00002.gguf");
  refused("m-00001-of-00002.gguf", ErrorCode::kCorruptFile, "a part of a model split into 3 files");
  const auto alone = ModelFiles::from_gguf(GgufFile::open(directory_ / "m-00002-of-00003.gguf").value());
  EXPECT_EQ(alone.error().code, ErrorCode::kCorruptFile);
}

// One that is not of the model is told as soon as it is opened, whatever comes behind it.
TEST_F(ModelDirectory, PartsAreCheckedOneByOne) {
  put_part({.file = "m-00001-of-00003.gguf", .number = 0, .tensor = "a"});
  put_part({.file = "m-00002-of-00003.gguf", .number = 2, .tensor = "b"});
  refused("m-00001-of-00003.gguf", ErrorCode::kCorruptFile, "says it is part 3 of 3 of a split model, but stands as");
}

TEST_F(ModelDirectory, HeadersAreBoundedForTheWholeModel) {
  put_split();
  put_sharded();
  for (const auto& path : {directory_ / "m-00001-of-00003.gguf", directory_}) {
    const auto files = ModelFiles::open(path, {.headers_bytes_max = 10});
    ASSERT_FALSE(files) << path;
    EXPECT_EQ(files.error().code, ErrorCode::kCorruptFile);
    EXPECT_THAT(files.error().message, HasSubstr("the headers of the model's files"));
    EXPECT_TRUE(ModelFiles::open(path));
  }
  // Two of three fit.
  const std::uint64_t part = std::filesystem::file_size(directory_ / "m-00002-of-00003.gguf");
  EXPECT_FALSE(ModelFiles::open(directory_ / "m-00001-of-00003.gguf", {.headers_bytes_max = 2 * part + part / 2}));
}

// A file of holes: nothing of it is read before its shapes are known to be possible.
TEST_F(ModelDirectory, ImpossibleCodesAreRefusedUnread) {
  const std::uint64_t words = 1U << 25, columns = 4 * words;
  const std::string header = fmt::format(R"({{"m.qweight":{{"dtype":"I32","shape":[{},1],"data_offsets":[0,{}]}},)"
                                         R"("m.g_idx":{{"dtype":"I32","shape":[{}],"data_offsets":[{},{}]}},)"
                                         R"("m.scales":{{"dtype":"F16","shape":[1,1],"data_offsets":[{},{}]}},)"
                                         R"("m.qzeros":{{"dtype":"I32","shape":[1,1],"data_offsets":[{},{}]}}}})",
                                         words, 4 * words, columns, 4 * words, 20 * words, 20 * words, 20 * words + 2,
                                         20 * words + 2, 20 * words + 6);
  std::string out(8, '\0');
  const std::uint64_t length = header.size();
  std::memcpy(out.data(), &length, sizeof length);
  put("model.safetensors", out + header);
  std::filesystem::resize_file(directory_ / "model.safetensors", 8 + length + 20 * words + 6);
  put("config.json", R"({"quantization_config": {"quant_method": "gptq", "bits": 8, "group_size": -1, "sym": false}})");
  refused("", ErrorCode::kWeightShapeMismatch, "m.qweight");
}

TEST(GgufName, HasItsEndInAnyCase) {
  for (const char* name : {"a.gguf", "dir.x/b.c.GGUF", "UP.Gguf"}) EXPECT_TRUE(has_gguf_name(name)) << name;
  for (const char* name : {"", ".gguf", "gguf", "a.gguf2", "a.gguf/config.json", "a.ggu"})
    EXPECT_FALSE(has_gguf_name(name)) << name;
}

TEST(GgufPartName, IsReadFromTheFileName) {
  const auto name = gguf_part_name("some/directory-00009-of-00009.gguf/x-1-00002-of-00010.gguf");
  ASSERT_TRUE(name);
  EXPECT_EQ(name->stem, "x-1");
  EXPECT_EQ(name->number, 2u);
  EXPECT_EQ(name->count, 10u);
  for (const auto* other : {"m.gguf", "-00001-of-00002.gguf", "m-0001-of-0002.gguf", "m-00000-of-00002.gguf",
                            "m-00003-of-00002.gguf", "m-00001-of-00002.ggml", "m-0000a-of-00002.gguf",
                            "m-+0001-of-00002.gguf", "m_00001-of-00002.gguf", "m-00001_of-00002.gguf"}) {
    EXPECT_FALSE(gguf_part_name(other)) << other;
  }
}

TEST_F(ModelDirectory, OpensAHuggingFaceDirectory) {
  put("config.json", R"({"model_type": "llama"})");
  put_safetensors("model.safetensors", {"a", "b"});
  const auto files = ModelFiles::open(directory_);
  ASSERT_TRUE(files) << files.error().message;
  EXPECT_EQ(files->format(), ModelFormat::kHuggingFace);
  EXPECT_EQ(files->source(), directory_.string());
  EXPECT_EQ(files->file_bytes(), std::filesystem::file_size(directory_ / "model.safetensors"));
  EXPECT_EQ(files->gguf(), nullptr);
  EXPECT_EQ(files->hf()->string("model_type").value(), "llama");
  EXPECT_EQ(files->tensors().size(), 2u);
}

TEST_F(ModelDirectory, OpensShardsByTheirIndex) {
  put_sharded();
  const auto files = ModelFiles::open(directory_);
  ASSERT_TRUE(files) << files.error().message;
  EXPECT_EQ(files->tensors().size(), 3u);
  EXPECT_NE(files->find_tensor("c"), nullptr);
  put_safetensors("model.safetensors", {"whole"});  // the single file goes first, as in the library itself
  EXPECT_NE(ModelFiles::open(directory_)->find_tensor("whole"), nullptr);
}

TEST_F(ModelDirectory, ShardsMustHoldWhatTheIndexSays) {
  put_sharded();
  put_safetensors("model-00002-of-00002.safetensors", {"d"});
  refused("", ErrorCode::kCorruptFile, "lacks the tensor c that the index places there");
  put_safetensors("model-00002-of-00002.safetensors", {"c", "d"});
  refused("", ErrorCode::kCorruptFile, "holds the tensor d, which the index does not name");
  put_safetensors("model-00002-of-00002.safetensors", {"c", "a"});
  refused("", ErrorCode::kCorruptFile, "holds the tensor a, which the index places elsewhere");
  std::filesystem::remove(directory_ / "model-00002-of-00002.safetensors");
  refused("", ErrorCode::kIoError, "model-00002-of-00002.safetensors");
}

TEST_F(ModelDirectory, DirectoriesThatAreNoModelSaySo) {
  refused("", ErrorCode::kUnsupportedFormatVersion, "is a directory without config.json");
  put("config.json", "{}");
  refused("", ErrorCode::kUnsupportedFormatVersion, "has neither model.safetensors nor model.safetensors.index.json");
  put("config.json", "[");
  refused("", ErrorCode::kCorruptFile, "config.json: at byte 1");
  refused("absent.gguf", ErrorCode::kIoError, "absent.gguf");
}

std::string digest_of_lines(const std::vector<std::pair<std::string, std::string>>& files) {
  std::string lines;
  for (const auto& [name, content] : files) {
    lines += fmt::format("{}  {}\n", base::to_hex(base::sha256(content)), name);
  }
  return base::to_hex(base::sha256(lines));
}

TEST_F(ModelDirectory, TheDigestOfASplitModelCoversItsPartsAndNotTheirStem) {
  put_split();
  const auto digest = model_digest(directory_ / "m-00002-of-00003.gguf").value();
  EXPECT_EQ(digest, digest_of_lines({{"00001-of-00003.gguf", content("m-00001-of-00003.gguf")},
                                     {"00002-of-00003.gguf", content("m-00002-of-00003.gguf")},
                                     {"00003-of-00003.gguf", content("m-00003-of-00003.gguf")}}));
  for (int i = 1; i <= 3; ++i) {
    std::filesystem::rename(directory_ / fmt::format("m-0000{}-of-00003.gguf", i),
                            directory_ / fmt::format("n-0000{}-of-00003.gguf", i));
  }
  EXPECT_EQ(model_digest(directory_ / "n-00001-of-00003.gguf").value(), digest);
  std::filesystem::remove(directory_ / "n-00003-of-00003.gguf");
  EXPECT_EQ(model_digest(directory_ / "n-00001-of-00003.gguf").error().code, ErrorCode::kIoError);
}

TEST_F(ModelDirectory, TheDigestOfADirectoryCoversEveryFileThatMattersAndNoOther) {
  put_sharded();
  put("tokenizer.json", "{}");
  const auto digest = model_digest(directory_).value();
  const std::vector<std::string> names{"config.json", "model-00001-of-00002.safetensors",
                                       "model-00002-of-00002.safetensors", "model.safetensors.index.json",
                                       "tokenizer.json"};
  std::vector<std::pair<std::string, std::string>> files;
  for (const auto& name : names) files.emplace_back(name, content(name));
  EXPECT_EQ(digest, digest_of_lines(files));

  for (const auto& name : names) EXPECT_TRUE(is_of_hf_model(name)) << name;
  for (const char* other : {"README.md", "onnx/model.safetensors", "2_Dense/README.md", "x/1_Pooling/config.json",
                            "../config.json", "2_Dense/", ""}) {
    EXPECT_FALSE(is_of_hf_model(other)) << other;
  }
  for (const char* below :
       {"1_Pooling/config.json", "1_LogitScore/config.json", "2_Dense/config.json", "3_Dense/model.safetensors"}) {
    EXPECT_TRUE(is_of_hf_model(below)) << below;
  }

  put("README.md", "x");
  put("model-00003-of-00003.safetensors", "not of this model");
  EXPECT_EQ(model_digest(directory_).value(), digest);
  for (const auto& name : names) {
    const std::string before = content(name);
    put(name, before + " ");
    EXPECT_NE(model_digest(directory_).value(), digest) << name;
    put(name, before);
  }
  for (const auto* added :
       {"chat_template.jinja", "chat_template.json", "generation_config.json", "special_tokens_map.json",
        "tokenizer_config.json", "preprocessor_config.json", "additional_chat_templates/tool.jinja"}) {
    std::filesystem::create_directories((directory_ / added).parent_path());
    put(added, "");
    EXPECT_NE(model_digest(directory_).value(), digest) << added;
    EXPECT_TRUE(is_of_hf_model(added));
    std::filesystem::remove(directory_ / added);
  }
  EXPECT_EQ(model_digest(directory_).value(), digest);
  std::filesystem::remove(directory_ / "config.json");
  EXPECT_EQ(model_digest(directory_).error().code, ErrorCode::kIoError);
}

TEST_F(ModelDirectory, DigestProgressCountsAllBytesAndMayEndTheWork) {
  put_split();
  std::uint64_t done = 0, total = 0;
  ASSERT_TRUE(
      model_digest(directory_ / "m-00001-of-00003.gguf", [&](std::uint64_t d, std::uint64_t t) -> base::Result<> {
        done = d;
        total = t;
        return {};
      }));
  EXPECT_EQ(done, total);
  EXPECT_EQ(total, ModelFiles::open(directory_ / "m-00001-of-00003.gguf")->file_bytes());
  const auto stopped = model_digest(directory_ / "m-00001-of-00003.gguf", [](std::uint64_t, std::uint64_t) {
    return base::Result<>(base::fail(ErrorCode::kCancelled, "stopping"));
  });
  EXPECT_EQ(stopped.error().code, ErrorCode::kCancelled);
}

TEST(ModelFiles, BothFormatsOfAModelHoldAsManyElements) {
  const std::filesystem::path directory = LLORCH_SOURCE_DIR "/../shared/data/golden";
  if (!std::filesystem::exists(directory)) GTEST_SKIP() << "no directory " << directory;
  for (const auto* family : {"llama3", "qwen2", "qwen3"}) {
    const auto hf = ModelFiles::open(directory / family);
    const auto gguf = ModelFiles::open(directory / family / "model.gguf");
    ASSERT_TRUE(hf && gguf) << family;
    const auto count = [](const ModelFiles& files) {
      std::uint64_t sum = 0;
      for (const auto& tensor : files.tensors()) {
        if (tensor.name != "rope_freqs.weight") sum += tensor.elements_count();
      }
      return sum;
    };
    EXPECT_EQ(count(*hf), count(*gguf)) << family;
    EXPECT_THAT(hf->find_tensor("model.embed_tokens.weight")->dims, gguf->find_tensor("token_embd.weight")->dims);
  }
}

}  // namespace
}  // namespace llorch::engine::io
