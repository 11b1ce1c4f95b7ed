// What it costs to render token events for one client, in each API's format: one thread, its processor time. Usage:
// renderers_bench [seconds per renderer]. One line of JSON per renderer; the bar is 250,000 events a second.
//
// A stream is 1,000 tokens of the lengths and characters that chat output has: words with a leading blank, punctuation, line
// breaks and quotes that JSON escapes, some of two and three bytes. The bytes go to a buffer that is cleared every 64 events,
// as a connection's is when its socket takes them.
#include <fmt/core.h>

#include <time.h>

#include <array>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "orchestratord/http/anthropic/renderer.h"
#include "orchestratord/http/ollama/renderer.h"
#include "orchestratord/http/openai/renderers.h"
#include "orchestratord/http/openai/response_renderer.h"
#include "orchestratord/http/tasks/result_renderer.h"
#include "orchestratord/streams/replay/sse_renderer.h"

namespace {

using namespace llorch::orchestratord;
using RendererPtr = std::unique_ptr<streams::Renderer>;

constexpr std::int64_t kTokens = 1000;
constexpr std::int64_t kEventsPerWrite = 64;
constexpr std::array<std::string_view, 12> kTexts{" the",   " small", ",",   " bird", " said",         " \"",
                                                  "Hello!", "\n",     " na", "ïve",   " \xE2\x80\x94", " 42"};

double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

const http::chat::AnswerIdentity kIdentity{
    .job_id = llorch::base::JobId("0b5dbe0e-9c7d-4f3a-8f2b-6c1d2e3f4a5b"),
    .correlation_id = llorch::base::CorrelationId("8f2b6c1d-9c7d-4f3a-8f2b-6c1d2e3f4a5b"),
    .created_unix_s = 1764000000};

// Bytes that one whole stream takes.
std::size_t render_stream(streams::Renderer& renderer, std::string& out) {
  std::size_t bytes = 0;
  streams::EventId id;
  renderer.queued({.job_id = kIdentity.job_id.value}, id, out);
  renderer.started({.job_id = kIdentity.job_id.value, .seed = 7}, id, out);
  for (std::int64_t i = 0; i < kTokens; ++i) {
    id.seq = streams::kFirstTokenSeq + i;
    renderer.token({.t = kTexts[static_cast<std::size_t>(i) % kTexts.size()], .i = i}, id, out);
    if (i % kEventsPerWrite != 0) continue;
    bytes += out.size();
    out.clear();
  }
  renderer.end({.job_id = kIdentity.job_id.value, .tokens_in = 11, .tokens_out = kTokens}, id, out);
  bytes += out.size();
  out.clear();
  return bytes;
}

void measure(std::string_view name, double seconds, const std::function<RendererPtr()>& make) {
  std::string out;
  std::int64_t events = 0;
  std::size_t bytes = 0;
  const double begin = cpu_seconds();
  double took = 0;
  while (took < seconds) {
    for (int i = 0; i < 20; ++i) {
      bytes += render_stream(*make(), out);
      events += kTokens;
    }
    took = cpu_seconds() - begin;
  }
  fmt::print(R"({{"renderer":"{}","events_per_s":{:.0f},"ns_per_event":{:.0f},"bytes_per_event":{:.0f}}})"
             "\n",
             name, static_cast<double>(events) / took, took * 1e9 / static_cast<double>(events),
             static_cast<double>(bytes) / static_cast<double>(events));
}

http::openai::AnswerOptions openai(http::openai::Endpoint endpoint, bool stream) {
  return {.endpoint = endpoint, .model = "tale-5m", .stream = stream};
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 1;
  using http::openai::Endpoint;
  measure("v2 events", seconds, [] { return std::make_unique<streams::SseRenderer>(); });
  measure("v2 result", seconds, [] {
    return std::make_unique<http::tasks::ResultRenderer>("job", "task", llorch::wire::Workload::kCompletion);
  });
  for (const bool stream : {true, false}) {
    const std::string how = stream ? "stream" : "body";
    for (const auto& [name, endpoint] :
         {std::pair("openai chat ", Endpoint::kChat), {"openai completions ", Endpoint::kCompletions}}) {
      measure(name + how, seconds, [&, endpoint = endpoint]() -> RendererPtr {
        if (stream) return std::make_unique<http::openai::ChunkRenderer>(openai(endpoint, true), kIdentity);
        return std::make_unique<http::openai::BodyRenderer>(openai(endpoint, false), kIdentity);
      });
    }
    measure("openai responses " + how, seconds, [&] {
      return std::make_unique<http::openai::ResponseRenderer>(openai(Endpoint::kResponses, stream), kIdentity);
    });
    measure("anthropic " + how, seconds, [&] {
      return std::make_unique<http::anthropic::MessageRenderer>(
          http::anthropic::AnswerOptions{.model = "tale-5m", .stream = stream, .stop = {}}, kIdentity);
    });
    measure("ollama " + how, seconds, [&] {
      return std::make_unique<http::ollama::AnswerRenderer>(
          http::ollama::AnswerOptions{.model = "tale-5m", .stream = stream}, kIdentity);
    });
  }
  return 0;
}
