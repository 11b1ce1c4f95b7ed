#pragma once
// The API of one kind of engine, as bytes and values: what a job becomes, and what an answer says. No sockets, no state: every
// member is thread-safe.
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "wire/sampling.h"
#include "wire/task.h"
#include "wire/worker.h"

namespace llorch::adapter::engines {

// Where the engine is, as the operator configured it.
struct Target {
  std::string base_url;  // http://host:port[/path], or grpc://host:port; without a slash at its end
  std::string model;     // the engine's name for it; empty: the only one it serves
  std::map<std::string, std::string> field_names{};  // of openai's chat completions: its name of max_tokens or seed
};

// Every receipt has it.
inline constexpr std::size_t kVersionBytesMax = 64;

// What an engine tells about itself. Empty and 0: it does not say.
struct EngineFacts {
  std::string version;  // at most kVersionBytesMax bytes of printable ASCII
  std::string model;
  std::int64_t context_tokens = 0;  // this and the next: 0 to 2^31 - 1
  std::int64_t slots = 0;
  std::map<std::string, int> inputs;  // tensors that the model takes, by name, and how many dimensions each has
};

// How an engine is spoken to.
enum class Protocol {
  kHttp,  // bodies are JSON, and an answer is server-sent events
  kGrpc   // bodies are messages of protobuf, and an answer is such messages, one a frame
};

// What is asked of an engine about itself.
struct Probe {
  std::string url;   // http(s)
  std::string body;  // of a gRPC call
};

struct Submission {
  std::string url;  // http(s)
  std::string body;
  std::vector<std::string> headers;  // "name: value"
};

// What one event of an answer says.
struct Piece {
  std::optional<std::string> text;            // absent: none in this event
  std::int64_t tokens = 1;                    // in `text`
  std::vector<wire::TokenLogprobs> logprobs;  // of these tokens, in their order; empty: it tells none
  std::optional<wire::StopReason> stop;
  std::optional<std::int64_t> tokens_in, tokens_out;  // as the engine counts the whole prompt and answer
  std::optional<base::Error> error;                   // the answer ends with it
  bool last = false;                                  // nothing comes behind it that a job needs
};

class Engine {
 public:
  virtual ~Engine() = default;

  virtual std::string_view kind() const = 0;
  virtual Protocol protocol() const { return Protocol::kHttp; }
  // The variable that gives its program a key to ask of callers; empty: it has none.
  virtual std::string_view key_variable() const { return {}; }
  // Answered with a status below 300 when the engine can serve, and with an answer that says no other.
  virtual Probe health(const Target& target) const = 0;
  virtual bool is_well(std::string_view) const { return true; }
  // Asked once, in this order, before the first job. A path that the engine lacks (404) says nothing.
  virtual std::vector<Probe> facts(const Target& target) const = 0;
  // Adds what the answer to facts()[index] says, within the bounds of EngineFacts. Errors: MODEL_NOT_FOUND, the engine serves no
  // model of the target's name.
  base::Result<> learn(std::size_t index, std::string_view answer, const Target& target, EngineFacts& facts) const;
  // REQUIRES: `request` has a prompt or messages. Errors: INVALID_PARAMS, the engine cannot do this.
  virtual base::Result<Submission> submit(const wire::ExecuteRequest& request, const Target& target,
                                          const EngineFacts& facts) const = 0;
  // Whether an answer has no last event: that it is complete shows in the connection alone.
  virtual bool ends_with_answer() const { return false; }
  // The data of one event, or one message. Errors: IO_ERROR, this is not an event of this engine.
  virtual base::Result<Piece> read(std::string_view data) const = 0;

 protected:
  // What learn() does, with whatever number and text the answer has.
  virtual base::Result<> read_facts(std::size_t index, std::string_view answer, const Target& target,
                                    EngineFacts& facts) const = 0;
};

// "openai", "llamacpp", "vllm", "tgi", "triton", at a URL whose scheme says how to speak to it; null: none of these.
const Engine* engine_of(std::string_view kind, std::string_view base_url = "");
std::span<const std::string_view> kinds();

// What a refusal becomes. The engine's own words may repeat the prompt, so of its body only what looks like a code is told.
// `status` 0: an error inside an answer.
base::Error refusal(int status, std::string_view body, std::optional<std::int64_t> retry_after_ms);

}  // namespace llorch::adapter::engines
