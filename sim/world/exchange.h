#pragma once
// The server's side of one event stream over a Wire, for the real Stream. A client that stalls leaves bytes in the queue.
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "net/server.h"
#include "sim/kernel/network.h"

namespace llorch::sim {

// What a client's socket sees of the answer; implemented by the client, called in its process.
struct StreamSink {
  virtual ~StreamSink() = default;
  virtual void on_head(int status) = 0;
  virtual void on_bytes(const std::string& bytes) = 0;
  // Set while the client does not read. The server's kernel notices: its buffer is full.
  bool stalled = false;
};
using SinkPtr = std::shared_ptr<StreamSink>;

class SimExchange final : public net::Exchange, public std::enable_shared_from_this<SimExchange> {
 public:
  SimExchange(Loop& loop, const Process& server, WirePtr wire, SinkPtr sink)
      : loop_(loop), server_(server), wire_(std::move(wire)), sink_(std::move(sink)) {}
  ~SimExchange() override;
  void listen();  // REQUIRES: owned by a shared_ptr

  bool respond(net::Response response) override;
  bool respond_error(const base::Error& error) override;
  bool start_stream(int status, net::http::Headers headers) override;
  bool write(std::string_view bytes) override;
  bool end() override;
  void abort() override;
  std::size_t queued_bytes() const override { return queued_bytes_; }
  std::uint64_t sent_bytes() const override { return sent_bytes_; }
  bool closed() const override { return closed_; }
  void on_drain(std::size_t low_water_bytes, std::function<void()> fn) override;
  void on_close(std::function<void(net::CloseReason)> fn) override;

  // The client reads again.
  void flush();
  // Called when the connection ends before the answer does.
  void on_lost(std::function<void(net::CloseReason)> fn) { on_lost_ = std::move(fn); }
  // Called with the status of the answer.
  void on_status(std::function<void(int)> fn) { on_status_ = std::move(fn); }
  // A injected bug: the first event is never sent.
  void lose_first_event() { lose_first_event_ = true; }
  // The server's process is gone: nothing is called any more.
  void drop();

 private:
  void close(net::CloseReason reason);

  Loop& loop_;
  const Process& server_;
  WirePtr wire_;
  SinkPtr sink_;
  std::deque<std::string> queue_;
  std::size_t queued_bytes_ = 0;
  std::uint64_t sent_bytes_ = 0;
  bool started_ = false, ended_ = false, closed_ = false, lose_first_event_ = false;
  net::CloseReason reason_ = net::CloseReason::kFinished;
  std::function<void()> on_drain_;
  std::function<void(int)> on_status_;
  std::function<void(net::CloseReason)> on_close_, on_lost_;
};

}  // namespace llorch::sim
