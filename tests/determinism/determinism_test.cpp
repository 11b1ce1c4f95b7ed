// The determinism matrix on small models of every kind, and the control that it must catch. The fast set here is a part of
// the corpus; LLORCH_DETERMINISM=full runs all of it (tools/nightly).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/build_id.h"
#include "batch_dependent_backend.h"
#include "cli/determinism/matrix.h"
#include "cli/determinism/report.h"
#include "engine/inference/devices/open_devices.h"
#include "engine/io/model_digest.h"
#include "golden_support.h"

namespace llorch::determinism {
namespace {

using namespace cli::determinism;
using engine::inference::devices::OpenDevices;
using golden::Format;

bool full() {
  const char* wanted = std::getenv("LLORCH_DETERMINISM");
  return wanted != nullptr && std::string_view(wanted) == "full";
}

base::Result<OpenDevices> open_cpus(const std::string& names, const DeviceChoice& device) {
  return engine::inference::devices::open_devices(
      {.names = names, .cpu_threads_count = std::max(1U, device.threads), .cpu_isa = device.isa});
}
base::Result<OpenDevices> cpu(const DeviceChoice& device) { return open_cpus("cpu", device); }

struct Model {
  std::string name;
  std::filesystem::path path;
  std::size_t requests = 16;  // of the fast set
  bool cached = true;         // pages hold all of its state, so beginnings are found again
  bool predicts = false;      // has a layer for further tokens
};
void PrintTo(const Model& model, std::ostream* out) { *out << model.name; }

Model fixture(const std::string& family) {
  const auto file = golden::family_model(family, Format::kGguf);
  return {family, file ? *file : *golden::family_model(family, Format::kHuggingFace)};
}
// State that pages do not hold: nothing is cached.
Model recurrent(const std::string& family) {
  Model model = fixture(family);
  model.cached = false;
  return model;
}
Model predicting(Model model) {
  model.predicts = true;
  return model;
}
// Prompt tokens that a second run of the requests finds in the cache: whole pages, and at least one token is left to run.
std::uint64_t full_pages(std::span<const RequestResult> requests) {
  constexpr std::uint64_t kPage = engine::plan::kPageTokens;
  std::uint64_t tokens = 0;
  for (const RequestResult& request : requests) tokens += (request.prompt_tokens - 1) / kPage * kPage;
  return tokens;
}

// SYS-10.4.1: the run leaves a bundle, whatever its outcome.
void leave_proof(const Model& model, const Report& report) {
  const base::SystemClock clock;
  base::SystemEntropy entropy;
  auto place = proof_place(
      golden::repository() / "tests/determinism", [](const char* name) { return std::getenv(name); }, clock, entropy);
  ASSERT_TRUE(place) << place.error().message;
  place->type += "-" + model.name;
  const auto digest = engine::io::model_digest(model.path);
  ASSERT_TRUE(digest);
  const auto written = write_proof_bundle(
      *place,
      {.model = model.path.filename().string(), .model_digest = "sha256:" + *digest, .engine_build = base::build_id()},
      report);
  ASSERT_TRUE(written) << written.error().message;
}

class Determinism : public testing::TestWithParam<Model> {};

// OC-TEST-7001, SYS-2.3.2, SYS-2.3.4, OC-CORE-1030: one hash per request, alone and under everything else.
TEST_P(Determinism, NothingAroundARequestChangesItsBits) {
  const base::SystemClock clock;
  const auto report = run_matrix(
      {.model = GetParam().path, .requests_max = full() ? 0 : GetParam().requests, .quick = !full()}, cpu, clock);
  ASSERT_TRUE(report) << report.error().message;
  leave_proof(GetParam(), *report);
  for (const Mismatch& mismatch : report->mismatches) ADD_FAILURE() << describe(mismatch);
  EXPECT_GE(report->requests.size(), full() ? 64U : GetParam().requests);
  for (const CellResult& cell : report->cells) {
    if ((cell.name == "avx512" || cell.name == "avxvnni" || cell.name == "amx") && !cell.skipped.empty()) continue;
    if (cell.name == "predicted" && !GetParam().predicts) {
      EXPECT_NE(cell.skipped.find("further tokens"), std::string::npos) << cell.skipped;
      continue;
    }
    EXPECT_EQ(cell.skipped, "") << cell.name;
    EXPECT_GE(cell.requests, report->requests.size()) << cell.name;
    // A cell in which nothing of its kind happened would show nothing.
    if (cell.name == "preempted") {
      EXPECT_GE(cell.counts.preemptions, 5U);
    }
    if (cell.name.starts_with("speculated")) {
      EXPECT_GT(cell.counts.accepted, cell.requests * 4);
      EXPECT_GT(cell.counts.proposed, cell.counts.accepted);
    }
    if (cell.name == "predicted") {
      EXPECT_GT(cell.counts.accepted, cell.requests);
      EXPECT_GT(cell.counts.proposed, cell.counts.accepted);
    }
    if (cell.name == "cache warm") {
      EXPECT_GE(cell.counts.cached_tokens, GetParam().cached ? full_pages(report->requests) : 0);
    }
  }
}

// One of every kind; all of a kind in the full set.
std::vector<Model> models() {
  std::vector<Model> models{fixture("llama3"),
                            fixture("qwen3_moe"),
                            recurrent("granite_hybrid"),
                            fixture("gemma3"),
                            fixture("gpt_oss"),
                            fixture("deepseek_v3"),
                            recurrent("mamba2"),
                            recurrent("lfm2"),
                            predicting(recurrent("qwen3_5_predicts")),
                            predicting(fixture("glm4_moe_predicts")),
                            {.name = "demo_q8_0", .path = golden::demo_model("q8_0"), .requests = 12}};
  for (const std::string& family : golden::families_of_2026())  // the gated delta rule
    if (family == "qwen3_next") models.push_back(recurrent(family));
  if (!full()) return models;
  for (const char* family : {"mistral", "gemma2"}) models.push_back(fixture(family));
  for (const char* family : {"llama_tied", "qwen2", "qwen3", "phi3", "qwen3_moe_sparse", "deepseek_v2", "qwen3_vl"}) {
    models.push_back(fixture(family));
  }
  return models;
}

INSTANTIATE_TEST_SUITE_P(Models, Determinism, testing::ValuesIn(models()),
                         [](const testing::TestParamInfo<Model>& test) { return test.param.name; });

// SYS-6.3.3, SYS-2.3.2: devices that share a model have one set of bits too, which their numerics name.
TEST(SharedModel, NothingAroundARequestChangesItsBits) {
  const base::SystemClock clock;
  const MakeDevices two = [](const DeviceChoice& device) { return open_cpus("cpu,cpu", device); };
  for (const char* family : {"llama3", "qwen3_moe", "granite_hybrid"}) {
    const auto report =
        run_matrix({.model = fixture(family).path, .requests_max = full() ? 0U : 8U, .quick = true}, two, clock);
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_EQ(report->facts.numerics, "cpu-2/tp2");
    for (const Mismatch& mismatch : report->mismatches) ADD_FAILURE() << family << ": " << describe(mismatch);
  }
}

// The matrix sees what it is there to see: a reduction whose order depends on the batch.
TEST(Control, ABatchDependentReductionIsFound) {
  const base::SystemClock clock;
  const MakeDevices faulty = [](const DeviceChoice& device) -> base::Result<OpenDevices> {
    OpenDevices open = TRY(cpu(device));
    open.backends[0] = std::make_unique<BatchDependentBackend>(std::move(open.backends[0]));
    return open;
  };
  const auto report = run_matrix({.model = fixture("llama3").path, .requests_max = 16, .quick = true}, faulty, clock);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_FALSE(report->passed());
  for (const CellResult& cell : report->cells) {
    if (!cell.skipped.empty()) continue;
    if (cell.name == "alone") {
      EXPECT_EQ(cell.mismatches, 0U);
    } else {
      EXPECT_GT(cell.mismatches, cell.requests / 2) << cell.name;
    }
  }
}

// OC-TEST-7002: one setting is part of a request's identity and named with every result; it is the only one there is.
TEST(Settings, WhatChangesBitsIsNamed) {
  const base::SystemClock clock;
  const auto with = [&](engine::plan::DType kv_dtype) {
    return run_matrix({.model = fixture("llama3").path, .kv_dtype = kv_dtype, .requests_max = 4, .quick = true}, cpu,
                      clock)
        .value();
  };
  const Report f16 = with(engine::plan::DType::kF16), f32 = with(engine::plan::DType::kF32);
  EXPECT_TRUE(f16.passed() && f32.passed());
  EXPECT_EQ(f16.facts.kv_dtype, "f16");
  EXPECT_EQ(f32.facts.kv_dtype, "f32");
  EXPECT_EQ(f16.facts.numerics, f32.facts.numerics);
}

}  // namespace
}  // namespace llorch::determinism
