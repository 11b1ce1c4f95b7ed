// llorch run: submit, stream, reconnect with the last event id, cancel on Ctrl-C.
#include <fmt/core.h>
#include <unistd.h>

#include <boost/json.hpp>

#include "base/process.h"
#include "cli/commands.h"
#include "cli/stream/run_job.h"
#include "wire/json.h"

namespace llorch::cli {
namespace {

namespace bj = boost::json;

void print_stats(const stream::FinishedJob& job) {
  const stream::Outcome& o = job.outcome;
  const std::int64_t decode_ms = o.end->decode_time_ms;
  const double rate =
      decode_ms > 0 ? 1000.0 * static_cast<double>(o.end->tokens_out - 1) / static_cast<double>(decode_ms) : 0;
  fmt::print(stderr, "\nqueue wait {} ms · time to first token {} ms · {} tokens in {} ms · {:.1f} tokens/s\n",
             o.queue_wait_ms, job.times.first_token_ms, o.end->tokens_out, decode_ms, rate);
}

void print_json(const stream::FinishedJob& job) {
  const stream::Outcome& o = job.outcome;
  const bj::object result{{"job_id", job.job_id},
                          {"text", o.text},
                          {"seed", o.seed},
                          {"queue_wait_ms", o.queue_wait_ms},
                          {"first_token_ms", job.times.first_token_ms},
                          {"total_ms", job.times.total_ms},
                          {"end", bj::parse(wire::encode(*o.end))}};
  fmt::print("{}\n", bj::serialize(result));
}

// Beside the answer, never in it.
stream::WaitDisplay::Form display_form(const GlobalOptions& global) {
  using Form = stream::WaitDisplay::Form;
  if (global.json) return Form::kJson;
  return isatty(STDERR_FILENO) != 0 ? Form::kBar : Form::kLines;
}

}  // namespace

int run_prompt(const GlobalOptions& global, const RunOptions& options) {
  const auto request = stream::make_request(options);
  if (!request) return report(request.error(), global.json);
  // From here on there may be a job to cancel. Until now Ctrl-C ended the process, and no thread has started yet.
  base::block_stop_signals();
  stream::InterruptWatch interrupt;
  auto api = Api::connect(global);
  if (!api) return report(api.error(), global.json);
  stream::WaitDisplay display(display_form(global), [](std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), stderr);
    std::fflush(stderr);
  });
  const auto print = [&](std::string_view text) {
    return global.json || (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0);
  };
  const auto job = stream::run_job(**api, *request, interrupt, print, &display);
  if (!job) {
    // The answer's last line has no end yet.
    if (job.error().code == base::ErrorCode::kCancelled && !global.json) std::fputs("\n", stderr);
    return report(job.error(), global.json);
  }
  if (global.json) {
    print_json(*job);
  } else {
    std::fputs("\n", stdout);
    if (options.stats) print_stats(*job);
  }
  return kOk;
}

}  // namespace llorch::cli
