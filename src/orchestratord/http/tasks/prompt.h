#pragma once
// From a request to the tokens that a model is given to read, whether or not a job comes of them.
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "orchestratord/http/chat/output_reader.h"
#include "orchestratord/http/chat/tool_use.h"
#include "orchestratord/http/context.h"
#include "orchestratord/http/tasks/images.h"
#include "text/chat.h"
#include "wire/task.h"

namespace llorch::orchestratord::http::tasks {

// A max_tokens above limits.max_tokens, or above what the context has left behind the prompt: refused, or lowered to that.
enum class LongOutputs : std::uint8_t { kRefuse, kCut };

// The request with its images taken out of its messages, within this server's limits. Errors: INVALID_PARAMS.
struct Inputs {
  wire::SubmitRequest request;
  std::vector<std::string> images;  // base64 of the files, in the order of the messages
};
base::Result<Inputs> take_inputs(wire::SubmitRequest request, const config::LimitsConfig& limits,
                                 LongOutputs long_outputs = LongOutputs::kRefuse);

// The refusal by which clients know that they must send less text.
base::Result<> too_long(std::string_view field, std::string_view what, std::size_t bytes, std::string_view limit,
                        std::int64_t bytes_max);

// Of all that becomes tokens, a query once for each document; an id counts as the bytes it takes.
std::size_t bytes_of(const wire::SubmitRequest& request);

struct FoundModel {
  std::string ref;  // what the client's name for it resolved to
  models::KnownModel model;
};
enum class Naming {
  kLook,
  kUse,  // for a job: the name counts as used now
};
// What a client's name for a model leads to, as ModelNames::resolve() tells it. `done` is called once, on the request
// executor; a mount that does not answer does not hold that up.
void resolve(const Context& context, std::string_view name, Naming naming,
             std::function<void(base::Result<models::ModelNames::Resolved>)> done);
// Asks the catalog for what a client's name for a model leads to. `done` is called once: with an error as resolve() does, else as
// Catalog::find() does, or with UNTRUSTED_ARTIFACT where the file is another than the one that was named.
void find_model(const Context& context, std::string_view name, Naming naming, const base::CorrelationId& correlation_id,
                std::function<void(base::Result<FoundModel>)> done);

// Whether a client's ids are tokens of the model that may stand in a prompt: all but the one that stands for an image. Control
// tokens may: who sends ids has made them. `name` is of these ids in messages. Errors: INVALID_PARAMS. REQUIRES a tokenizer.
base::Result<> check_ids(std::string_view field, std::string_view name, std::span<const std::int32_t> ids,
                         const models::KnownModel& model);

// INVALID_PARAMS: a model that takes text, whose tokens nobody here can count.
base::Result<> check_counts_here(const models::KnownModel& model);

struct Prepared {
  wire::SubmitRequest request;  // with the grammar of a required call, or of a call or the JSON that was asked for
  text::ChatPrompt prompt;      // at least one token; `text` is what its hash is of; empty: it is of the tokens
  MeasuredImages images;
  std::shared_ptr<const chat::Reading> reading;  // of the answer; null: it is content, all of it
};
// With `tool_use` messages are told as the model's template wants them. Takes long for a long prompt. Errors: INVALID_PARAMS.
base::Result<Prepared> prepare(Inputs inputs, const std::optional<chat::ToolUse>& tool_use,
                               const models::KnownModel& model, base::Time now);

// Gives `done`, on any thread, the tokens that a job of this request would have to read; there is no job. Takes long for a long
// prompt. Errors: as of a submission. REQUIRES: `context` outlives the call.
void count_prompt(const Context& context, wire::SubmitRequest request, std::optional<chat::ToolUse> tool_use,
                  const base::CorrelationId& correlation_id, std::function<void(base::Result<std::size_t>)> done);

}  // namespace llorch::orchestratord::http::tasks
