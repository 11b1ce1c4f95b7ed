#pragma once
// The requests of the load generator as bytes, and its lines to the script that runs it.
#include <cstdint>
#include <string>
#include <string_view>

namespace llorch::bench {

struct Submission {
  std::int64_t tokens = 1;
  std::uint64_t seed = 0;
};
// POST of the same job by one client that gets the whole answer: to /v2/tasks?wait=true, or to /v1/completions.
enum class Api { kV2, kV1 };
void append_waiting_submission(std::string& out, const Submission& submission, Api api);
void append_submission(std::string& out, const Submission& submission);  // POST /v2/tasks
void append_execute(std::string& out, const Submission& submission);     // POST /execute, of a worker used alone
void append_get(std::string& out, std::string_view target);

// The value of "events_url" of a 202.
std::string events_url_of(std::string_view json);

// {"event":"..."} on standard output, at once.
void announce(std::string_view event);

}  // namespace llorch::bench
