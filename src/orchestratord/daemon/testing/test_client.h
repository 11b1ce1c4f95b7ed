#pragma once
// A client of the daemon under test: plain calls, and a reader of event streams that can break off and come back.
#include <optional>
#include <string>
#include <vector>

#include "net/client.h"
#include "net/sse/sse.h"

namespace llorch::orchestratord::daemon::testing {

class TestClient {
 public:
  explicit TestClient(std::string url) : url_(std::move(url)) {}

  net::Response call(const std::string& method, const std::string& path, const std::string& body = {},
                     net::http::Headers headers = {});
  net::Response get(const std::string& path) { return call("GET", path); }
  net::Response post(const std::string& path, const std::string& body = "{}") { return call("POST", path, body); }
  // Submits and returns the job_id; fails the test unless it is accepted.
  std::string submit(const std::string& body);

  // One connection to a stream: reads until it ends, until `count` events came, or for `timeout_ms`. Leaves out `metrics`.
  struct Reading {
    int status = 0;
    std::vector<net::sse::Event> events;
    bool complete = false;  // the server ended it in good order
    std::string error_body;
  };
  struct ReadOptions {
    std::string last_event_id;
    std::size_t count = SIZE_MAX;
    std::int64_t timeout_ms = 180'000;
  };
  Reading read(const std::string& path, const ReadOptions& options);
  Reading read(const std::string& path) { return read(path, {}); }
  // Reads to the end through any number of broken connections and restarts of the server.
  std::vector<net::sse::Event> read_through(const std::string& path, std::int64_t timeout_ms = 180'000);

  const std::string& url() const { return url_; }

 private:
  std::string url_;
  net::IoRuntime runtime_;
  net::Client client_{runtime_};
};

std::string events_path(const std::string& job_id);
// The value of a string or number member of a flat JSON object, as text; empty if there is none.
std::string field(const std::string& json, const std::string& name);
std::vector<std::string> names_of(const std::vector<net::sse::Event>& events);
std::vector<std::string> tokens_of(const std::vector<net::sse::Event>& events);

}  // namespace llorch::orchestratord::daemon::testing
