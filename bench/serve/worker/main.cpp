// relay_worker: a mock pool manager with a mock worker for orchestratord at --orchestrator. Prints one line when it is
// registered; ends when its standard input does.
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <thread>

#include "bench/serve/worker/mock_pool.h"
#include "bench/serve/worker/mock_worker.h"

int main(int argc, char** argv) {
  using namespace llorch::bench;
  CLI::App app{"relay_worker: a worker that decodes nothing, for the relay bench"};
  std::string orchestrator;
  std::int64_t slots = 1'024;
  MockWorkerOptions options;
  app.add_option("--orchestrator", orchestrator, "http://127.0.0.1:PORT")->required();
  app.add_option("--slots", slots, "Jobs at a time");
  app.add_option("--tokens-per-s", options.tokens_per_s, "Of each job; 0: as fast as they are taken");
  app.add_option("--burst", options.burst_tokens, "Tokens in one write when as fast as they are taken");
  app.add_flag("--stamps", options.stamps, "A token's text is its time of sending");
  app.add_option("--hold-after", options.hold_after, "Jobs fall silent after so many tokens");
  CLI11_PARSE(app, argc, argv);
  MockWorker worker(options);
  MockPool pool({.orchestrator_url = orchestrator,
                 .worker_uri = fmt::format("http://127.0.0.1:{}", worker.port()),
                 .slots = slots});
  std::atomic<bool> stop{false};
  std::thread until_end_of_input([&stop] {
    char byte = 0;
    while (::read(STDIN_FILENO, &byte, 1) > 0) {
    }
    stop = true;
  });
  std::thread registration([&pool, &worker] {
    pool.register_now();
    fmt::print("{{\"event\":\"ready\",\"worker_port\":{}}}\n", worker.port());
    std::fflush(stdout);
  });
  worker.run(stop);
  registration.join();
  until_end_of_input.join();
  return 0;
}
