#include "worker/self_test.h"

#include <fmt/core.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>

#include "base/file.h"
#include "base/sha256.h"
#include "net/sse/sse.h"
#include "wire/json.h"
#include "wire/worker.h"

namespace llorch::worker {
namespace {

using base::ErrorCode;
using base::TokenId;

// Few and many rows have kernels of their own: on any device and instruction set more than 24 are many, one is few. Each further row
// and step is time that every start takes.
constexpr std::uint32_t kPromptTokens = 25;
constexpr int kGreedySteps = 1;
constexpr std::int64_t kStepTimeoutMs = 30'000;

// The ids 0, 1, 2, ... of the vocabulary: any model has them, and nothing about them needs to mean anything.
std::vector<std::int32_t> fixed_prompt(std::size_t vocab_size, std::int64_t context_tokens) {
  std::vector<std::int32_t> ids;
  const auto count = std::max<std::int64_t>(1, std::min<std::int64_t>(kPromptTokens, context_tokens / 2));
  for (std::int64_t i = 0; i < count; ++i)
    ids.push_back(static_cast<std::int32_t>(i % static_cast<std::int64_t>(vocab_size)));
  return ids;
}

// Collects a stream's events until it ends or `enough` says so.
class StreamReader {
 public:
  // Reads until the stream ends; `enough` is asked after every event.
  StreamReader(net::Client& client, net::ClientRequest request, std::function<bool(const net::sse::Event&)> enough)
      : enough_(std::move(enough)), handle_(client.stream(std::move(request), callbacks())) {}
  // The callbacks refer to this object, so it waits for the last one.
  ~StreamReader() {
    handle_.cancel();
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended_; });
  }
  StreamReader(const StreamReader&) = delete;
  StreamReader& operator=(const StreamReader&) = delete;

  bool wait(bool for_end) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::milliseconds(kStepTimeoutMs), [&] { return for_end ? ended_ : done_; });
  }
  int status() {
    const std::lock_guard lock(mutex_);
    return status_;
  }
  net::sse::Event last() {
    const std::lock_guard lock(mutex_);
    return last_;
  }

 private:
  net::StreamCallbacks callbacks() {
    return {.on_response =
                [this](int status, const net::http::Headers&) {
                  const std::lock_guard lock(mutex_);
                  status_ = status;
                },
            .on_data =
                [this](std::string_view bytes) {
                  const std::lock_guard lock(mutex_);
                  std::vector<net::sse::Event> events;
                  if (!decoder_.feed(bytes, events)) done_ = true;
                  for (auto& event : events) {
                    done_ = done_ || enough_(event);
                    last_ = std::move(event);
                  }
                  changed_.notify_all();
                },
            .on_end =
                [this](base::Result<>) {
                  const std::lock_guard lock(mutex_);
                  done_ = ended_ = true;
                  changed_.notify_all();
                }};
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<bool(const net::sse::Event&)> enough_;
  net::sse::Decoder decoder_;
  net::sse::Event last_;
  int status_ = 0;
  bool done_ = false;
  bool ended_ = false;
  net::StreamHandle handle_;  // last: the stream starts when everything it writes to exists
};

tl::unexpected<base::Error> failed(std::string what) {
  return base::fail(ErrorCode::kSelfTestFailed, "self-test: " + std::move(what));
}

net::ClientRequest execute_request(const SelfTestServer& server, std::int64_t max_tokens) {
  // One token of prompt keeps the whole context free for a job that must still run when it is cancelled.
  wire::ExecuteRequest request{.job_id = "self-test",
                               .prompt_tokens = std::vector<std::int32_t>{0},
                               .max_tokens = max_tokens,
                               .temperature = 1.0,
                               .seed = 0};
  if (server.embeds) {
    const auto inputs = static_cast<std::size_t>(std::min(max_tokens, wire::kEmbeddingInputsMax));
    request.prompt_tokens->assign(inputs, 0);
    request.embedding = {.input_tokens = std::vector<std::int64_t>(inputs, 1)};
    if (server.scores) request.embedding->scores = true;
  }
  return {.method = "POST",
          .url = server.url + "/execute",
          .headers = {{"Content-Type", "application/json"}},
          .bearer = server.bearer,
          .body = wire::encode(request),
          .timeout_ms = kStepTimeoutMs};
}

}  // namespace

base::Result<std::string> self_test_hash(engine::inference::Engine& engine) {
  base::Sha256 hash;
  std::vector<TokenId> tokens;
  for (const std::int32_t id : fixed_prompt(engine.facts().vocab, engine.facts().context_tokens)) {
    tokens.push_back(static_cast<TokenId>(id));
  }
  TRY(engine.reset(0));
  for (int step = 0; step <= kGreedySteps && engine.length(0) + tokens.size() <= engine.facts().context_tokens;
       ++step) {
    const std::span<const float> logits = TRY(engine.prefill(0, tokens));
    hash.update(std::as_bytes(logits));
    if (engine.facts().pooling != engine::plan::Pooling::kNone) break;  // a vector says no next token
    tokens = {static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin())};
  }
  TRY(engine.reset(0));
  return base::to_hex(hash.digest());
}

base::Result<> check_self_test_record(const std::filesystem::path& directory, const std::string& key,
                                      const std::string& hash) {
  TRY(base::ensure_private_directory(directory));
  // The name says what was hashed: a build that hashes other steps has a record of its own.
  const std::filesystem::path path = directory / fmt::format("{}-{}+{}.sha256", key, kPromptTokens, kGreedySteps);
  std::error_code ec;
  if (!std::filesystem::exists(path, ec)) return base::write_file_atomic(path, hash + "\n");
  std::string recorded = TRY(base::read_file(path, 256));
  while (!recorded.empty() && recorded.back() == '\n') recorded.pop_back();
  if (recorded == hash) return {};
  return failed(fmt::format(
      "the model's logits have other bits than when {} was recorded ({} now, {} then); check the model file and the "
      "device, and delete the record only if the build's numerics changed on purpose",
      path.string(), hash, recorded));
}

base::Result<> self_test_http(net::Client& client, const SelfTestServer& server) {
  StreamReader short_job(client, execute_request(server, 1), [](const net::sse::Event&) { return false; });
  if (!short_job.wait(true) || short_job.status() != 200 || short_job.last().event != "end") {
    return failed(fmt::format("a job of one token ended with status {} and event {}", short_job.status(),
                              short_job.last().event));
  }
  // Cancelled as soon as it is there: a start waits for one step of it at most.
  StreamReader long_job(client, execute_request(server, 1'000'000),
                        [](const net::sse::Event& event) { return event.event == "started"; });
  if (!long_job.wait(false) || long_job.status() != 200) return failed("a second job did not start");
  const auto cancelled = client.call({.method = "POST",
                                      .url = server.url + "/cancel",
                                      .headers = {{"Content-Type", "application/json"}},
                                      .bearer = server.bearer,
                                      .body = R"({"job_id":"self-test"})"});
  if (!cancelled || cancelled->status != 202) return failed("/cancel did not answer 202");
  // A tiny model may draw its end of text before the cancel arrives; both endings free the slot.
  if (!long_job.wait(true)) return failed("a cancelled job did not end");
  const net::sse::Event last = long_job.last();
  if (last.event != "end" && last.data.find(R"("CANCELLED")") == std::string::npos)
    return failed(fmt::format("a cancelled job ended with {} {}", last.event, last.data));
  for (const char* path : {"/metrics", "/health"}) {
    const auto response = client.call({.url = server.url + path, .bearer = server.bearer});
    if (!response || response->status != 200) return failed(fmt::format("{} did not answer 200", path));
  }
  return {};
}

}  // namespace llorch::worker
