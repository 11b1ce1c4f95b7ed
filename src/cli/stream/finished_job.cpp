#include "cli/stream/finished_job.h"

#include <fmt/format.h>

#include <boost/json.hpp>

#include "wire/json.h"

namespace llorch::cli::stream {

std::string stats(const FinishedJob& job) {
  const Outcome& o = job.outcome;
  const std::int64_t decode_ms = o.end->decode_time_ms;
  const double rate =
      decode_ms > 0 ? 1000.0 * static_cast<double>(o.end->tokens_out - 1) / static_cast<double>(decode_ms) : 0;
  return fmt::format("queue wait {} ms · time to first token {} ms · {} tokens in {} ms · {:.1f} tokens/s",
                     o.queue_wait_ms, job.times.first_token_ms, o.end->tokens_out, decode_ms, rate);
}

std::string as_json(const FinishedJob& job) {
  namespace bj = boost::json;
  const Outcome& o = job.outcome;
  return bj::serialize(bj::object{{"job_id", job.job_id},
                                  {"text", o.text},
                                  {"seed", o.seed},
                                  {"queue_wait_ms", o.queue_wait_ms},
                                  {"first_token_ms", job.times.first_token_ms},
                                  {"total_ms", job.times.total_ms},
                                  {"end", bj::parse(wire::encode(*o.end))}});
}

}  // namespace llorch::cli::stream
