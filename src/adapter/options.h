#pragma once
// worker-adapterd's command line.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace llorch::adapter {

struct Options {
  std::string worker_id = "adapter-standalone";
  std::string engine;                              // kind, see engines/engine.h
  std::string endpoint;                            // http(s)://host[:port][/path], or grpc(s)://host:port
  std::string model;                               // the engine's name for it; empty: its only one
  std::map<std::string, std::string> field_names;  // see engines/engine.h
  std::string api_key_file;                        // mode 0600; empty: none
  std::string ca_file, proxy;
  std::string installation;             // directory of a program that is in use while this process runs; empty: none
  std::string model_ref, model_digest;  // what is reported
  std::string device_class = "external";
  std::string bind = "127.0.0.1";
  std::string advertise;
  bool auth_optional_on_loopback = false;
  std::uint16_t port = 0;
  int listen_fd = -1;  // as of worker-orcd
  std::string callback_url;
  std::int64_t context_tokens = 0;  // 0: the engine's own
  std::int64_t slots = 1;
  std::int64_t memory_bytes = 0;              // that the engine may hold, as it is accounted
  std::int64_t inference_timeout_s = 86'400;  // as of worker-orcd
  std::int64_t silence_ms = 120'000;
  std::int64_t start_timeout_ms = 55'000;
  std::int64_t probe_interval_ms = 5'000;
  std::int64_t shutdown_grace_ms = 5'000;
  std::string log_level = "info";
  std::vector<std::string> command;  // behind --: the engine's program and its arguments; empty: it runs already
};

// `exit_code` set: print `message` and exit with it (help, version, usage errors).
struct ParsedOptions {
  Options options;
  std::optional<int> exit_code;
  std::string message;
};
ParsedOptions parse_options(int argc, const char* const* argv);

}  // namespace llorch::adapter
