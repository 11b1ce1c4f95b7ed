#pragma once
// Submissions at a set rate that does not depend on the answers (open loop): arrivals are a Poisson process, and a job's
// time counts from the moment it was due, also when no connection was free then.
#include <cstdint>
#include <string>

namespace llorch::bench {

struct AdmissionOptions {
  std::uint16_t port = 0;
  double jobs_per_s = 2000;
  double warm_up_s = 2;
  double seconds = 10;
  int connections = 256;
  std::int64_t tokens = 1;
  bool answers = false;  // each request waits for its job's end, of /v2 and /v1 in turn
};
// Prints {"event":"begin"} and {"event":"end"} around the measured window; returns one line of JSON.
std::string measure_admissions(const AdmissionOptions& options);

}  // namespace llorch::bench
