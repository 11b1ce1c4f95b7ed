#pragma once
// An exchange without a client: it gathers the answer of a job.
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "net/executor.h"
#include "net/server.h"

namespace llorch::orchestratord::http::tasks {

// Thread-safe. What it calls, it posts: streams write to it under their own lock.
class Collector final : public net::Exchange {
 public:
  // Gets the whole answer; an error where the stream has none to give (STREAM_OFFSET_GONE); or nothing where the answer was cut off: this
  // process stops, or the job was refused after all.
  using Done = std::function<void(std::optional<base::Result<net::Response>>)>;
  // `done` is called once, on `executor`, which outlives the collector.
  Collector(net::Executor& executor, Done done) : executor_(executor), done_(std::move(done)) {}

  bool respond(net::Response response) override;
  bool respond_error(const base::Error& error) override;
  bool start_stream(int status, net::http::Headers headers) override;
  bool write(std::string_view bytes) override;
  bool end() override;
  void abort() override;

  std::size_t queued_bytes() const override { return 0; }
  std::uint64_t sent_bytes() const override;
  bool closed() const override;
  void on_drain(std::size_t low_water_bytes, std::function<void()> fn) override;
  void on_close(std::function<void(net::CloseReason)> fn) override;

 private:
  bool close(std::optional<base::Result<net::Response>> answer);

  net::Executor& executor_;
  mutable std::mutex mutex_;
  Done done_;
  net::Response answer_;
  bool closed_ = false;
  net::CloseReason reason_ = net::CloseReason::kFinished;
  std::function<void(net::CloseReason)> on_close_;
};

}  // namespace llorch::orchestratord::http::tasks
