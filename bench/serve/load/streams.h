#pragma once
// Many clients that each submit a job, read its stream to the end, and begin again.
#include <cstdint>
#include <string>

namespace llorch::bench {

struct StreamOptions {
  std::uint16_t port = 0;
  int streams = 64;
  std::int64_t tokens = 2000;
  double warm_up_s = 1;
  double seconds = 5;
  bool stamps = false;        // the worker's tokens are their times of sending
  bool direct = false;        // `port` is a worker's: the same without a relay, to compare with
  std::int64_t jobs_max = 0;  // ends after so many jobs instead; 0: after the time
  int hash_every = 16;        // streams whose ids are computed again, one in so many
};
// Prints {"event":"begin"} and {"event":"end"} around the measured window; returns one line of JSON. Exits when a stream
// is not as it must be.
std::string measure_streams(const StreamOptions& options);

// Opens the streams, prints {"event":"open"} when every one of them has shown its first event, and keeps them open until
// standard input ends.
void hold_streams(const StreamOptions& options);

}  // namespace llorch::bench
