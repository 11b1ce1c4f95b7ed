#pragma once
// Several jobs as the choices of one answer. Each job's stream has a renderer and an exchange of its own; what it says there goes
// into the client's one exchange.
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "net/server.h"
#include "orchestratord/http/openai/envelope.h"
#include "orchestratord/streams/renderer.h"

namespace llorch::orchestratord::http::openai {

// The seed of a choice: of the first the request's own, of the others one that follows from it. 63 bits.
std::uint64_t choice_seed(std::uint64_t seed, std::int64_t index);

// The answer ends when every choice has ended, or with the error of the first one that fails; then, as when the client goes away,
// the streams of the others see their client gone. Thread-safe; no callback runs under its lock.
class Choices : public std::enable_shared_from_this<Choices> {
 public:
  // `options.choices` jobs; of these `identity` is the first one's.
  Choices(AnswerOptions options, AnswerIdentity identity, net::ExchangePtr exchange);
  // REQUIRES: called once, before any of the others.
  void start();
  // What the stream of choice `index` reads into, for Stream::attach(). REQUIRES: each index once.
  // `echo`: text that this choice begins with.
  std::shared_ptr<streams::Renderer> renderer(std::int64_t index, const base::JobId& job_id, std::string echo,
                                              std::int64_t tokens_in);
  net::ExchangePtr exchange(std::int64_t index);

 private:
  class ChoiceRenderer;
  class ChoiceExchange;

  void note_end(std::int64_t index, const wire::EndEvent& event);
  void note_error(std::int64_t index);

  bool respond(std::int64_t index, net::Response response);
  bool start_stream(int status, net::http::Headers headers);
  bool write(std::int64_t index, std::string_view bytes);
  bool end(std::int64_t index);
  void on_drain(std::size_t low_water_bytes, std::function<void()> fn);
  void on_close(std::function<void(net::CloseReason)> fn);
  void close(net::CloseReason reason);

  std::string whole_answer() const;

  const AnswerOptions options_;
  const AnswerIdentity identity_;
  const net::ExchangePtr exchange_;

  std::mutex mutex_;
  wire::EndEvent total_;                    // counts: of each prompt once, of all outputs
  std::optional<std::string> fingerprint_;  // of all that ended
  bool has_one_fingerprint_ = true;
  std::vector<std::string> bodies_;  // by index
  std::int64_t ended_count_ = 0;
  std::optional<std::int64_t> failed_;  // the first one
  bool has_begun_ = false;
  std::vector<std::function<void()>> waiting_;  // for the client to take bytes
  std::vector<std::function<void(net::CloseReason)>> watching_;
  std::optional<net::CloseReason> closed_;
};

}  // namespace llorch::orchestratord::http::openai
