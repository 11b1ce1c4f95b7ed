// The worker's loop over an emulated device: what a job says does not depend on where its tokens are drawn.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <future>
#include <mutex>
#include <optional>

#include "cuda_support.h"
#include "engine/compute/cuda/step_watch.h"
#include "engine/io/gguf.h"
#include "engine/io/tokenizer_source.h"
#include "wire/json.h"
#include "worker/engine_loop.h"
#include "worker/sampling/constraint.h"

namespace llorch::cuda_test {
namespace {

using worker::EngineLoop;

// Everything a job said, one line per event.
class Transcript final : public worker::JobSink {
 public:
  void token(const worker::TokenOut& token) override {
    lines_ += fmt::format("{} {} [{}]{}\n", token.index, index(token.token), token.text,
                          token.logprobs ? fmt::format(" {}", token.logprobs->logprob) : "");
  }
  void vector(const worker::embedding::VectorOut& vector) override { ADD_FAILURE() << "vector " << vector.index; }
  void end(wire::EndEvent end) override {
    finish(fmt::format("{} {} {}", end.tokens_out, wire::enum_name(end.stop_reason), end.receipt->output_sha256));
  }
  void error(const base::Error& error) override { finish(error.message); }
  bool congested() override { return false; }
  std::string wait() {
    EXPECT_EQ(done_.get_future().wait_for(std::chrono::seconds(120)), std::future_status::ready);
    return lines_;
  }

 private:
  void finish(const std::string& how) {
    lines_ += how;
    done_.set_value();
  }
  std::string lines_;  // read once it is done
  std::promise<void> done_;
};

std::vector<wire::ExecuteRequest> requests() {
  const auto request = [](std::string prompt, double temperature) {
    return wire::ExecuteRequest{.prompt = std::move(prompt), .max_tokens = 20, .temperature = temperature, .seed = 5};
  };
  std::vector<wire::ExecuteRequest> all{request("Once upon a time", 0),  request("There was once a king", 0.9),
                                        request("The little girl", 0.8), request("In a deep forest", 0.7),
                                        request("A fisherman", 1.0),     request("The wolf", 1.2)};
  all[1].sampling.top_p = 0.9;
  all[1].sampling.repetition_penalty = 1.3;
  all[2].stop = {"e", "an"};
  all[3].sampling.logprobs = true;
  all[4].sampling.regex = "(yes|no|[a-c]{3,9})";
  all[5].sampling.dry_multiplier = 0.8;
  all[5].sampling.xtc_probability = 0.5;  // none of a device's
  for (std::size_t i = 0; i < all.size(); ++i) all[i].job_id = fmt::format("j{}", i);
  return all;
}

// With `measures` the device is watched, and says there what it was given to do.
std::vector<std::string> run(bool on_device, engine::plan::StepMeasures* measures = nullptr) {
  const std::filesystem::path path = golden::demo_model("q8_0");
  const auto backend = engine::compute::cuda::emulation::make_backend({});
  const auto engine = engine::inference::Engine::load(path,
                                                      {.context_tokens = 64,
                                                       .slots = static_cast<std::uint32_t>(requests().size()),
                                                       .prefill_chunk = 16,
                                                       .draws = on_device},
                                                      *backend)
                          .value();
  engine::compute::cuda::LaunchCounters counters;
  std::optional<engine::compute::cuda::StepWatch> watch;
  worker::EngineLoopOptions options;
  if (measures != nullptr) {
    options.meters = {&watch.emplace(*backend)};
  } else {
    backend->count_launches(&counters);
  }
  const auto file = engine::io::GgufFile::open(path).value();
  const auto tokenizer = text::Tokenizer::create(engine::io::read_tokenizer_data(file).value()).value();
  worker::sampling::Constraints constraints(tokenizer);
  const base::SystemClock clock;
  EngineLoop loop(*engine, options, tokenizer, {.model_digest = "sha256:x", .numerics = "cuda-4"}, clock);
  std::vector<std::shared_ptr<Transcript>> transcripts;
  for (const wire::ExecuteRequest& request : requests()) {
    auto spec = worker::make_sequence_spec(request, tokenizer, engine->facts().context_tokens, 0).value();
    spec.constraint = constraints.matcher(request.sampling).value();
    transcripts.push_back(std::make_shared<Transcript>());
    EXPECT_TRUE(loop.start(std::move(spec), transcripts.back(), 120'000, [] {}));
  }
  std::vector<std::string> said;
  for (const auto& transcript : transcripts) said.push_back(transcript->wait());
  loop.stop(0);
  if (measures != nullptr) {
    *measures = loop.measures().at(0);
    return said;
  }
  using engine::compute::cuda::kernels::DrawWalk;
  EXPECT_EQ(counters.per_kernel[static_cast<std::size_t>(engine::compute::cuda::kernels::kernel_id<DrawWalk>())] != 0,
            on_device);
  return said;
}

// SYS-2.3.2, OC-CORE-1033: stop strings, constraints, log-probabilities and all; token by token.
TEST(WorkerDraws, SayTheSameWhereverTokensAreDrawn) {
  const auto by_host = run(false), by_device = run(true);
  for (std::size_t i = 0; i < by_host.size(); ++i) EXPECT_EQ(by_device[i], by_host[i]) << "request " << i;
  EXPECT_NE(by_host[2].find(" stop "), std::string::npos) << by_host[2];
}

// What is measured changes no byte, and is what ran.
TEST(WorkerDraws, AWatchedDeviceSaysTheSame) {
  engine::plan::StepMeasures m;
  EXPECT_EQ(run(true, &m), run(true));
  EXPECT_GT(m.steps, 10u);
  EXPECT_GT(m.rows, m.steps);
  EXPECT_GT(m.launches, m.steps * 10);
  EXPECT_GT(m.graphs_made, 0u);
  EXPECT_GT(m.graphs_replayed, 0u);
  EXPECT_GT(m.graphs_missed, 0u);
  EXPECT_LE(m.graphs_replayed + m.graphs_missed, m.steps);
  EXPECT_GT(m.steps_timed, 0u);
  EXPECT_LE(m.steps_timed, m.steps);
  EXPECT_GT(m.seconds, 0);
}

}  // namespace
}  // namespace llorch::cuda_test
