// relay_load: clients of orchestratord for the relay bench; see bench/serve/relay, which runs it.
#include <fmt/core.h>

#include <CLI/CLI.hpp>

#include "bench/serve/io/sockets.h"
#include "bench/serve/load/admissions.h"
#include "bench/serve/load/streams.h"

int main(int argc, char** argv) {
  using namespace llorch::bench;
  CLI::App app{"relay_load: a checking load generator for event streams and admissions"};
  app.require_subcommand(1);
  std::string url;
  AdmissionOptions admission;
  StreamOptions stream;

  CLI::App* const admit = app.add_subcommand("admissions", "Submit jobs at a set rate");
  admit->add_option("--url", url)->required();
  admit->add_option("--jobs-per-s", admission.jobs_per_s);
  admit->add_option("--warm-up", admission.warm_up_s, "Seconds");
  admit->add_option("--seconds", admission.seconds);
  admit->add_option("--connections", admission.connections);
  admit->add_option("--tokens", admission.tokens, "max_tokens of every job");
  admit->add_flag("--answers", admission.answers, "Wait for each job's end, by POST to /v2 and /v1 in turn");

  CLI::App* const streams = app.add_subcommand("streams", "Read streams to their ends, over and over");
  CLI::App* const hold = app.add_subcommand("hold", "Open streams and keep them until standard input ends");
  for (CLI::App* const command : {streams, hold}) {
    command->add_option("--url", url)->required();
    command->add_option("--streams", stream.streams);
    command->add_option("--tokens", stream.tokens, "max_tokens of every job");
  }
  streams->add_option("--warm-up", stream.warm_up_s, "Seconds");
  streams->add_option("--seconds", stream.seconds);
  streams->add_option("--jobs", stream.jobs_max, "End after so many jobs instead");
  streams->add_option("--hash-every", stream.hash_every, "Check the ids of one stream in so many");
  streams->add_flag("--stamps", stream.stamps, "Token texts are times of sending");
  streams->add_flag("--direct", stream.direct, "The URL is a worker's");
  CLI11_PARSE(app, argc, argv);

  admission.port = stream.port = port_of(url);
  if (*admit) {
    fmt::print("{}\n", measure_admissions(admission));
  } else if (*streams) {
    fmt::print("{}\n", measure_streams(stream));
  } else {
    hold_streams(stream);
  }
  return 0;
}
