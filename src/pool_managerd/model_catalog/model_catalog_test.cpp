#include "pool_managerd/model_catalog/model_catalog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <iterator>

#include "base/sha256.h"
#include "pool_managerd/model_catalog/model_ref.h"

namespace llorch::pool_managerd::model_catalog {
namespace {

namespace fs = std::filesystem;
using base::ErrorCode;

std::string reason_of(const base::Error& error) {
  for (const auto& [key, value] : error.details) {
    if (key == "reason") return std::get<std::string>(value);
  }
  return "";
}

struct Directory : testing::Test {
  fs::path directory;
  void SetUp() override {
    directory = fs::canonical(fs::temp_directory_path()) / ("llorch-catalog-" + std::to_string(getpid()));
    fs::remove_all(directory);
    fs::create_directories(directory / "models");
    fs::create_directories(directory / "elsewhere");
  }
  void TearDown() override { fs::remove_all(directory); }
  fs::path write(const std::string& name, const std::string& content) {
    std::ofstream(directory / name) << content;
    return directory / name;
  }
  std::string ref(const std::string& name) const { return "file:" + (directory / name).string(); }
};

// SYS-6.2.3, SYS-2.1.2#file: a reference is judged by where its resolved path lies.
TEST_F(Directory, ReferencesStayInside) {
  write("models/a.gguf", "a");
  write("elsewhere/b.gguf", "b");
  fs::create_symlink(directory / "elsewhere/b.gguf", directory / "models/out.gguf");
  fs::create_symlink(directory / "models/a.gguf", directory / "elsewhere/in.gguf");
  fs::create_directory_symlink(directory / "models", directory / "root");
  const std::vector<fs::path> roots{directory / "root", directory / "missing"};
  const auto resolve = [&](const std::string& r) { return resolve_model_file(r, roots); };
  EXPECT_EQ(*resolve(ref("models/a.gguf")), directory / "models/a.gguf");
  EXPECT_EQ(*resolve(ref("elsewhere/in.gguf")), directory / "models/a.gguf");
  write("models/UP.GGUF", "a");
  EXPECT_EQ(*resolve(ref("models/UP.GGUF")), directory / "models/UP.GGUF");
  fs::create_directories(directory / "models/hf");
  write("models/hf/config.json", "{}");
  EXPECT_EQ(*resolve(ref("models/hf")), directory / "models/hf");
  EXPECT_EQ(*resolve(ref("root/hf/")), directory / "models/hf");
  EXPECT_EQ(*resolve(ref("models/../models/a.gguf")), directory / "models/a.gguf");
  const auto refused = [&](const std::string& r) {
    const auto result = resolve(r);
    EXPECT_FALSE(result);
    EXPECT_EQ(result.error().code, ErrorCode::kModelNotFound);
    return reason_of(result.error());
  };
  EXPECT_EQ(refused(ref("elsewhere/b.gguf")), "outside_allowed_roots");
  EXPECT_EQ(refused(ref("models/out.gguf")), "outside_allowed_roots");
  EXPECT_EQ(refused(ref("models/../elsewhere/b.gguf")), "outside_allowed_roots");
  EXPECT_EQ(refused(ref("models/none.gguf")), "missing");
  EXPECT_EQ(refused(ref("models")), "missing") << "a directory without a config.json is no model";
  EXPECT_EQ(refused("file:relative.gguf"), "syntax");
  EXPECT_EQ(refused("hf:org/repo"), "scheme");
  EXPECT_EQ(refused("tale"), "scheme");
  EXPECT_EQ(refused(""), "scheme");
  // A directory whose name begins like a root is not inside it.
  fs::create_directories(directory / "models2");
  write("models2/c.gguf", "c");
  EXPECT_EQ(refused(ref("models2/c.gguf")), "outside_allowed_roots");
}

TEST_F(Directory, DigestsAreKeptUntilTheFileChanges) {
  const fs::path file = write("models/a.gguf", "first");
  const fs::path cache_file = directory / "digests.json";
  const std::string first = base::to_hex(base::sha256("first"));
  {
    DigestCache cache(cache_file);
    EXPECT_EQ(cache.digest_of(file)->digest, first);
  }
  DigestCache cache(cache_file);
  EXPECT_EQ(cache.find_files(first), std::vector{file});
  cache.stop();  // so what follows is from the cache
  EXPECT_EQ(cache.digest_of(file)->digest, first);
  EXPECT_EQ(cache.known(file), (engine::io::StampedDigest{first, engine::io::model_stamp(file).value()}));
  // Same length, other content, other time.
  write("models/a.gguf", "other");
  fs::last_write_time(file, fs::file_time_type::clock::now() + std::chrono::seconds(5));
  EXPECT_THAT(cache.find_files(first), testing::IsEmpty());
  EXPECT_FALSE(cache.known(file));
  EXPECT_EQ(cache.digest_of(file).error().code, ErrorCode::kCancelled);
  DigestCache anew(cache_file);
  EXPECT_EQ(anew.digest_of(file)->digest, base::to_hex(base::sha256("other")));
  EXPECT_EQ(anew.digest_of(directory / "none").error().code, ErrorCode::kIoError);
}

TEST_F(Directory, AModelInSeveralFilesHasOneDigestUntilAnyOfThemChanges) {
  const fs::path first = write("models/a-00001-of-00002.gguf", "first");
  const fs::path second = write("models/a-00002-of-00002.gguf", "second");
  DigestCache cache(directory / "digests.json");
  const std::string digest = cache.digest_of(first)->digest;
  EXPECT_EQ(cache.digest_of(second)->digest, digest);
  EXPECT_NE(digest, base::to_hex(base::sha256("first")));
  EXPECT_THAT(DigestCache(directory / "digests.json").find_files(digest), testing::ElementsAre(first, second));
  fs::last_write_time(second, fs::file_time_type::clock::now() + std::chrono::seconds(5));
  EXPECT_THAT(cache.find_files(digest), testing::IsEmpty());
  EXPECT_EQ(cache.digest_of(first)->digest, digest) << "the same bytes at another time";
  fs::remove(second);
  EXPECT_EQ(cache.digest_of(first).error().code, ErrorCode::kIoError);
}

// Nobody's word is kept: what a worker says of files is read, and what was read is known from then on.
TEST_F(Directory, ADigestIsConfirmedByReading) {
  const fs::path file = write("models/a.gguf", "aa");
  const std::string stamp = engine::io::model_stamp(file).value(), digest = base::to_hex(base::sha256("aa"));
  const fs::path cache_file = directory / "digests.json";
  DigestCache cache(cache_file);
  EXPECT_EQ(cache.confirms(file, {.digest = std::string(64, 'd'), .stamp = stamp}), false);
  EXPECT_EQ(cache.known(file)->digest, digest) << "a lie leaves nothing behind";
  EXPECT_EQ(cache.confirms(file, {.digest = digest, .stamp = stamp}), true);
  EXPECT_EQ(DigestCache(cache_file).confirms(file, {.digest = digest, .stamp = stamp}), true);
  EXPECT_EQ(cache.confirms(file, {.digest = std::string(64, 'd'), .stamp = std::string(64, '0')}), true)
      << "of other files, of which nobody can tell";
  EXPECT_EQ(cache.confirms(directory / "none", {.digest = digest, .stamp = stamp}).error().code, ErrorCode::kIoError);
}

// A file that is changed in place right after it was looked at, to the same size, with its time set back.
TEST_F(Directory, AFileThatWasJustChangedIsAnother) {
  const fs::path file = write("models/a.gguf", "0");
  const auto written = fs::last_write_time(file);
  DigestCache cache(directory / "digests.json");
  for (char content = '1'; content <= '9'; ++content) {
    const std::string before = engine::io::model_stamp(file).value();
    std::fstream(file) << content;
    fs::last_write_time(file, written);
    EXPECT_NE(engine::io::model_stamp(file).value(), before);
    EXPECT_EQ(cache.digest_of(file)->digest, base::to_hex(base::sha256(std::string(1, content))));
  }
}

TEST_F(Directory, DamagedCacheIsEmpty) {
  for (const char* text : {"", "{", "[]", "[1,{}]", R"([{"path":"/x","sha256":"short"}])"}) {
    write("digests.json", text);
    const DigestCache cache(directory / "digests.json");
    EXPECT_THAT(cache.find_files("short"), testing::IsEmpty());
  }
}

struct FakeInspector final : ModelInspector {
  std::function<void()> while_reading = [] {};

  base::Result<ModelPlan> inspect(const fs::path& file, const WorkerShape& shape, DeviceKind device) const override {
    while_reading();
    if (file.filename() == "bad.gguf") return base::fail(ErrorCode::kModelIncompatible, "bad");
    ModelPlan plan;
    plan.path = file;
    plan.architecture = "llama";
    plan.hidden_size = 64;
    plan.shape = shape;
    plan.memory.resize(static_cast<std::size_t>(shape.devices));
    for (MemoryNeed& need : plan.memory) {
      need = {.weights_bytes = (device == DeviceKind::kCuda ? 16 : 10) / shape.devices,
              .kv_bytes = shape.slots * shape.context_tokens / shape.devices};
    }
    plan.memory.front().working_bytes = shape.devices - 1;
    return plan;
  }
  base::Result<std::string> tokenizer_blob(const fs::path& file) const override {
    while_reading();
    return "blob of " + file.filename().string();
  }
};

TEST_F(Directory, DescribesAndServesTokenizers) {
  write("models/a.gguf", "aa");
  write("models/bad.gguf", "b");
  ModelCatalog catalog({{directory / "models"}, directory / "digests.json", {DeviceKind::kCpu}},
                       std::make_unique<FakeInspector>());
  const std::string digest = "sha256:" + base::to_hex(base::sha256("aa"));
  EXPECT_EQ(catalog.tokenizer(digest).error().code, ErrorCode::kModelNotFound) << "not described yet";
  EXPECT_FALSE(catalog.plan(ref("models/a.gguf"), {}, DeviceKind::kCpu)->digest) << "nor read";
  const auto facts = catalog.describe(ref("models/a.gguf"), {.context_tokens = 100, .slots = 3});
  ASSERT_TRUE(facts) << facts.error().message;
  EXPECT_EQ(facts->digest, digest);
  EXPECT_EQ("sha256:" + catalog.plan(ref("models/a.gguf"), {}, DeviceKind::kCpu)->digest.value().digest, digest);
  EXPECT_EQ(facts->memory_bytes, 310);
  EXPECT_EQ(facts->hidden_size, 64);
  EXPECT_EQ(facts->model_ref, ref("models/a.gguf"));
  EXPECT_EQ(**catalog.tokenizer(digest), "blob of a.gguf");
  EXPECT_EQ(catalog.tokenizer(digest)->get(), catalog.tokenizer(digest.substr(7))->get());
  EXPECT_EQ(catalog.describe(ref("models/bad.gguf"), {}).error().code, ErrorCode::kModelIncompatible);
  EXPECT_EQ(catalog.describe("hf:x/y", {}).error().code, ErrorCode::kModelNotFound);
  // A configuration that no longer allows the directory.
  ModelCatalog narrower({{directory / "elsewhere"}, directory / "digests.json", {DeviceKind::kCpu}},
                        std::make_unique<FakeInspector>());
  EXPECT_EQ(narrower.tokenizer(digest).error().code, ErrorCode::kModelNotFound);
}

TEST_F(Directory, TheTokenizerIsThatOfACopyInsideTheAllowedDirectories) {
  write("models/a.gguf", "aa");
  write("elsewhere/b.gguf", "aa");
  const auto catalog_of = [&](std::vector<fs::path> roots) {
    return std::make_unique<ModelCatalog>(
        ModelCatalogOptions{std::move(roots), directory / "digests.json", {DeviceKind::kCpu}},
        std::make_unique<FakeInspector>());
  };
  ASSERT_TRUE(catalog_of({directory / "models"})->describe(ref("models/a.gguf"), {}));
  const auto facts = catalog_of({directory / "elsewhere"})->describe(ref("elsewhere/b.gguf"), {});
  ASSERT_TRUE(facts) << facts.error().message;
  EXPECT_EQ(**catalog_of({directory / "elsewhere"})->tokenizer(facts->digest), "blob of b.gguf");
  EXPECT_EQ(**catalog_of({directory / "models"})->tokenizer(facts->digest), "blob of a.gguf");
}

// A writer beside the reader: what was read is of no state of the file, and neither is a refusal of it.
TEST_F(Directory, FactsDigestAndTokenizerAreOfOneStateOrAConflict) {
  const fs::path file = write("models/a.gguf", "aa");
  write("models/bad.gguf", "b");
  auto inspector = std::make_unique<FakeInspector>();
  FakeInspector& hook = *inspector;
  ModelCatalog catalog({{directory / "models"}, directory / "digests.json", {DeviceKind::kCpu}}, std::move(inspector));
  const std::string digest = catalog.describe(ref("models/a.gguf"), {})->digest;
  const std::function<void()> changes[] = {
      [&] { write("models/a.gguf", "aaa"); },                        // grown
      [&] { fs::resize_file(file, 1); },                             // cut
      [&] { write("models/a.gguf", "bb"); },                         // rewritten
      [&] { fs::rename(write("elsewhere/new.gguf", "aa"), file); },  // replaced by the same
      [&] { fs::remove(file); },                                     // removed
      [&] { write("models/bad.gguf", "c"); }};
  for (std::size_t i = 0; i < std::size(changes); ++i) {
    const bool bad = i + 1 == std::size(changes);
    const std::string model = ref(bad ? "models/bad.gguf" : "models/a.gguf");
    const auto anew = [&] {
      hook.while_reading = [] {};
      write("models/a.gguf", "aa");
      if (!bad) {
        EXPECT_EQ(catalog.describe(model, {})->digest, digest);
      }
      hook.while_reading = changes[i];
    };
    anew();
    EXPECT_EQ(catalog.describe(model, {}).error().code, ErrorCode::kConflict) << i;
    anew();
    EXPECT_EQ(catalog.plan(model, {}, DeviceKind::kCpu).error().code, ErrorCode::kConflict) << i;
    if (bad) continue;
    anew();
    ModelCatalog fresh({{directory / "models"}, directory / "digests.json", {DeviceKind::kCpu}}, [&] {
      auto own = std::make_unique<FakeInspector>();
      own->while_reading = changes[i];
      return own;
    }());
    EXPECT_EQ(fresh.tokenizer(digest).error().code, ErrorCode::kConflict) << i;
  }
}

// What orchestratord plans with must be enough on whichever device it then chooses.
TEST_F(Directory, TheMemoryIsThatOfTheDeviceThatTakesMost) {
  write("models/a.gguf", "aa");
  for (const auto& kinds : {std::vector{DeviceKind::kCpu, DeviceKind::kCuda}, {DeviceKind::kCuda, DeviceKind::kCpu}}) {
    ModelCatalog catalog({{directory / "models"}, directory / "digests.json", kinds},
                         std::make_unique<FakeInspector>());
    EXPECT_EQ(catalog.describe(ref("models/a.gguf"), {.context_tokens = 100, .slots = 3})->memory_bytes, 316);
    EXPECT_EQ(catalog.plan(ref("models/a.gguf"), {}, DeviceKind::kCpu)->memory.at(0).weights_bytes, 10);
  }
}

// SYS-3.3.1: what a worker over several devices takes of each of them.
TEST_F(Directory, OfSeveralDevicesTheMemoryIsThatOfTheOneThatGivesMost) {
  write("models/a.gguf", "aa");
  ModelCatalog catalog({{directory / "models"}, directory / "digests.json", {DeviceKind::kCpu}},
                       std::make_unique<FakeInspector>());
  const auto facts = catalog.describe(ref("models/a.gguf"), {.context_tokens = 100, .slots = 3, .devices = 2}).value();
  EXPECT_EQ(facts.devices, 2);
  EXPECT_EQ(facts.memory_bytes, 5 + 150 + 1);
  EXPECT_EQ(catalog.describe(ref("models/a.gguf"), {.context_tokens = 100, .slots = 3})->devices, 1);
}

}  // namespace
}  // namespace llorch::pool_managerd::model_catalog
