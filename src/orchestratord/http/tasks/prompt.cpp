#include "orchestratord/http/tasks/prompt.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error_detail.h"
#include "grammar/limits.h"
#include "images/message_images.h"
#include "orchestratord/http/chat/parsing.h"
#include "orchestratord/http/tasks/constraint.h"
#include "text/formats/required_call.h"
#include "wire/worker.h"

namespace llorch::orchestratord::http::tasks {
namespace {

// A request waits this long for a model nobody has looked at yet.
constexpr std::int64_t kModelWaitMs = 2000;
constexpr std::int64_t kReplacedRetryAfterMs = 1000;

// Control tokens add no bytes to an output.
std::ptrdiff_t control_count(std::span<const base::TokenId> tokens, const text::Tokenizer& tokenizer) {
  return std::ranges::count_if(tokens, [&](base::TokenId id) { return tokenizer.token_bytes(id).empty(); });
}

// A client that writes a whole prompt, markers and all, may have written the token that begins it as well.
base::Result<text::ChatPrompt> prompt_with_markers(const std::string& written, const models::KnownModel& model) {
  const text::Tokenizer& tokenizer = *model.tokenizer;
  text::ChatPrompt out{TRY(tokenizer.encode(written, {.parse_special = true})), written};
  const std::ptrdiff_t added = control_count(TRY(tokenizer.encode("")), tokenizer);
  if (control_count(out.tokens, tokenizer) == added) return out;
  out.text.clear();
  const text::TokenizerFacts& facts = tokenizer.facts();
  const bool begins_twice =
      facts.add_bos && out.tokens.size() > 1 && out.tokens[0] == facts.bos && out.tokens[1] == facts.bos;
  if (begins_twice) out.tokens.erase(out.tokens.begin());
  std::vector<std::int32_t> ids;
  for (const base::TokenId id : out.tokens) ids.push_back(static_cast<std::int32_t>(base::index(id)));
  TRY(check_ids("prompt", "prompt", ids, model));
  return out;
}

base::Result<text::ChatPrompt> plain_prompt(const wire::SubmitRequest& request, const models::KnownModel& model) {
  const wire::TextOrTokens& prompt = *request.prompt;
  if (!prompt.has_tokens()) {
    if (request.parse_special.value_or(false)) return prompt_with_markers(prompt.text, model);
    return text::ChatPrompt{TRY(model.tokenizer->encode(prompt.text)), prompt.text};
  }
  TRY(check_ids("prompt", "prompt", prompt.tokens, model));
  text::ChatPrompt out;
  for (const std::int32_t id : prompt.tokens) out.tokens.push_back(base::TokenId{static_cast<std::uint32_t>(id)});
  return out;
}

// Its hash is of the tokens: no text says all of it.
base::Result<text::ChatPrompt> infill_prompt(const wire::SubmitRequest& request, const models::KnownModel& model) {
  if (model.infill == nullptr) {
    return chat::refused("suffix", "no_infill",
                         "this model has no tokens of fill in the middle, so it cannot be told what follows on the "
                         "output; name a model that was trained for it");
  }
  std::vector<text::InfillFile> files;
  if (request.extra_files) {
    for (const wire::ExtraFile& file : *request.extra_files) files.push_back({.name = file.name, .text = file.text});
  }
  return text::ChatPrompt{
      TRY(model.infill->prompt(*model.tokenizer,
                               {.prefix = request.prompt->text, .suffix = *request.suffix, .files = files})),
      {}};
}

// What the worker is to continue, and the text whose hash is kept.
base::Result<text::ChatPrompt> prompt_of(const wire::SubmitRequest& request, const models::KnownModel& model,
                                         base::Time now) {
  if (request.suffix) return infill_prompt(request, model);
  if (request.prompt) return plain_prompt(request, model);
  const auto text_of = [](const auto& part) { return part ? std::optional(part->text) : std::nullopt; };
  return model.chat->prompt(
      *model.tokenizer,
      {.messages = request.messages->text,
       .tools = text_of(request.tools),
       .documents = text_of(request.documents),
       .template_kwargs = text_of(request.chat_template_kwargs),
       .add_generation_prompt = request.add_generation_prompt.value_or(true),
       .now = std::chrono::floor<std::chrono::seconds>(
           std::chrono::sys_time<std::chrono::milliseconds>(std::chrono::milliseconds(now.unix_ms)))});
}

// Whether an output of this grammar may leave the thought that the prompt has opened.
bool ends_thought(const std::string& grammar, const models::ChatFormat& format) {
  const std::string_view end = text::formats::thought_end(format.format);
  if (grammar.find(end) != std::string::npos) return true;
  return std::ranges::any_of(format.markers, [&](const auto& marker) {
    return marker.second == end && grammar.find(fmt::format("<[{}]>", base::index(marker.first))) != std::string::npos;
  });
}

// The conversation as the model's template wants it told. A call that is required, and one that may stand instead of the JSON that is
// asked for, is a grammar.
struct ChatTurn {
  wire::SubmitRequest request;
  text::ChatPrompt prompt;
  std::shared_ptr<const chat::Reading> reading;
};
base::Result<ChatTurn> chat_turn(wire::SubmitRequest request, const chat::ToolUse& use, const models::KnownModel& model,
                                 base::Time now) {
  namespace formats = text::formats;
  const auto& format = request.tools ? model.format_with_tools : model.format;
  request.messages->text = TRY(format->turn.apply(request.messages->text));
  const auto tools = request.tools ? TRY(formats::Tools::parse(request.tools->text)) : formats::Tools();
  auto prompt = TRY(prompt_of(request, model, now));
  wire::SamplingRequest& sampling = request.sampling;
  const bool calls_or_answers = sampling.json_schema && !tools.empty() && !use.required;
  // Such an output is the client's from its first token: no marker can come, and all of it is content.
  if (sampling.regex || (sampling.json_schema && !calls_or_answers)) {
    return ChatTurn{std::move(request), std::move(prompt), nullptr};
  }
  const bool in_thought = formats::prompt_opens_thought(format->format, prompt.text) &&
                          (!sampling.grammar || ends_thought(*sampling.grammar, *format));
  using Thought = formats::RequiredCall::Thought;
  formats::RequiredCall calls{.name = use.function,
                              .several = use.several,
                              .thought = in_thought ? Thought::kIsOpen : Thought::kNone,
                              .text_bytes_max = grammar::Limits{}.text_bytes_max};
  if (use.required) sampling.grammar = TRY(formats::required_call(format->format, tools, calls, format->markers));
  if (calls_or_answers) {
    sampling.grammar = TRY(calls_or_json(*sampling.json_schema, tools, std::move(calls), *format));
    sampling.json_schema.reset();
  }
  std::shared_ptr<const chat::Reading> reading;
  if (!tools.empty() || in_thought || formats::knows_thoughts(format->format)) {
    reading = std::make_shared<chat::Reading>(chat::Reading{format, tools, in_thought, calls_or_answers});
  }
  return ChatTurn{std::move(request), std::move(prompt), std::move(reading)};
}

// Each input of an embedding or rerank job is a prompt of its own; a query is read once with each document.
base::Result<> check_inputs(const wire::SubmitRequest& request, const config::LimitsConfig& limits) {
  const std::size_t query_bytes = request.query ? request.query->size() : 0;
  const auto& inputs = request.input->inputs;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::size_t bytes = inputs[i].bytes() + query_bytes;
    if (std::cmp_less_equal(bytes, limits.prompt_bytes_max)) continue;
    return too_long("input", fmt::format("input {}{} is", i, request.query ? " with the query" : ""), bytes,
                    "prompt_bytes_max", limits.prompt_bytes_max);
  }
  const std::size_t bytes = bytes_of(request);
  if (std::cmp_less_equal(bytes, limits.request_bytes_max)) return {};
  return too_long("input", request.query ? "the documents, each with the query, are" : "the inputs are", bytes,
                  "request_bytes_max", limits.request_bytes_max);
}

base::Result<> check_bytes(const wire::SubmitRequest& request, const config::LimitsConfig& limits) {
  if (request.input) return check_inputs(request, limits);
  const std::size_t bytes = bytes_of(request);
  if (std::cmp_less_equal(bytes, limits.prompt_bytes_max)) return {};
  return too_long(request.prompt ? "prompt" : "messages", "the prompt is", bytes, "prompt_bytes_max",
                  limits.prompt_bytes_max);
}

// Which the name of a file in a watched directory becomes once it has been looked at.
base::Error replaced_file() {
  return base::Error{base::ErrorCode::kPoolUnready,
                     "the model's file was replaced and is being looked at; the name is the new file's in a moment",
                     {}}
      .with("retry_after_ms", kReplacedRetryAfterMs);
}

}  // namespace

base::Result<> too_long(std::string_view field, std::string_view what, std::size_t bytes, std::string_view limit,
                        std::int64_t bytes_max) {
  return chat::refused(std::string(field), "CONTEXT_TOO_LARGE",
                       fmt::format("{} too long: {} bytes > {} maximum (limits.{})", what, bytes, bytes_max, limit));
}

std::size_t bytes_of(const wire::SubmitRequest& request) {
  std::size_t bytes = (request.prompt ? request.prompt->bytes() : 0) + (request.suffix ? request.suffix->size() : 0);
  if (request.extra_files) {
    for (const wire::ExtraFile& file : *request.extra_files) bytes += file.name.size() + file.text.size();
  }
  if (request.query) bytes += request.query->size() * request.input->inputs.size();
  for (const auto* part : {&request.messages, &request.tools, &request.documents}) {
    if (*part) bytes += (*part)->text.size();
  }
  if (!request.input) return bytes;
  for (const wire::TextOrTokens& input : request.input->inputs) bytes += input.bytes();
  return bytes;
}

base::Result<Inputs> take_inputs(wire::SubmitRequest request, const config::LimitsConfig& limits,
                                 LongOutputs long_outputs) {
  std::vector<std::string> images;
  if (request.messages) {
    auto taken = TRY(images::take_images(std::move(request.messages->text), kImagesMax));
    request.messages->text = std::move(taken.messages);
    images = std::move(taken.base64);
  }
  std::size_t image_bytes = 0;
  for (const std::string& image : images) image_bytes += image.size();
  if (image_bytes > wire::kImagesBytesMax) {
    return chat::refused(
        "messages", "length",
        fmt::format("the images have {} bytes together, as base64; {} are taken", image_bytes, wire::kImagesBytesMax));
  }
  TRY(check_bytes(request, limits));
  if (long_outputs == LongOutputs::kRefuse && request.max_tokens > limits.max_tokens) {
    return chat::refused("max_tokens", "range",
                         fmt::format("max_tokens is {}; this server allows up to {} (limits.max_tokens)",
                                     *request.max_tokens, limits.max_tokens));
  }
  return Inputs{std::move(request), std::move(images)};
}

void resolve(const Context& context, std::string_view name, Naming naming,
             std::function<void(base::Result<models::ModelNames::Resolved>)> done) {
  using Resolved = models::ModelNames::Resolved;
  auto on_executor = [executor = context.request_executor, done = std::move(done)](base::Result<Resolved> resolved) {
    executor->post([done, resolved = std::move(resolved)] { done(resolved); });
  };
  if (naming == Naming::kUse) return context.names->use(name, context.name_reads, std::move(on_executor));
  context.names->resolve(name, context.name_reads, std::move(on_executor));
}

void find_model(const Context& context, std::string_view name, Naming naming, const base::CorrelationId& correlation_id,
                std::function<void(base::Result<FoundModel>)> done) {
  resolve(context, name, naming,
          [&context, correlation_id, done = std::move(done)](base::Result<models::ModelNames::Resolved> resolved) {
            if (!resolved) return done(base::fail(std::move(resolved).error()));
            context.catalog->find(
                {.model_ref = resolved->model_ref,
                 .wait_ms = kModelWaitMs,
                 .correlation_id = correlation_id,
                 .checksum = resolved->checksum},
                [metrics = context.metrics, resolved = *resolved, done](base::Result<models::KnownModel> found) {
                  const bool is_other = !found && models::is_other_file(found.error());
                  // Where a pool is silent as well, the name still follows the file.
                  const bool may_be_other = is_other || (!found && base::has_detail(found.error(), "silent_pools"));
                  if (may_be_other && resolved.is_watched) return done(base::fail(replaced_file()));
                  if (is_other) metrics->verification("changed_file");
                  if (!found) return done(base::fail(std::move(found).error()));
                  done(FoundModel{resolved.model_ref, *std::move(found)});
                });
          });
}

base::Result<> check_counts_here(const models::KnownModel& model) {
  if (model.tokenizer != nullptr) return {};
  return chat::refused("model", "engine",
                       "this model's engine is another system's, and only that one makes tokens of a text");
}

base::Result<> check_ids(std::string_view field, std::string_view name, std::span<const std::int32_t> ids,
                         const models::KnownModel& model) {
  const std::size_t vocab = model.tokenizer->facts().vocab_size;
  const std::optional<std::int64_t> image =
      model.facts.images ? std::optional(model.facts.images->image_token) : std::nullopt;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || static_cast<std::size_t>(ids[i]) >= vocab) {
      return chat::refused(field, "range",
                           fmt::format("{} has the id {} at index {}; this model's vocabulary has the ids 0 to {}",
                                       name, ids[i], i, vocab - 1));
    }
    if (ids[i] == image) {
      return chat::refused(
          field, "image_token",
          fmt::format("{} has the id {} at index {}, which stands for an image; send images in messages", name, ids[i],
                      i));
    }
  }
  return {};
}

base::Result<Prepared> prepare(Inputs inputs, const std::optional<chat::ToolUse>& tool_use,
                               const models::KnownModel& model, base::Time now) {
  TRY(check_counts_here(model));
  Prepared out;
  out.request = std::move(inputs.request);
  out.images = TRY(measure_images(std::move(inputs.images), model.facts));
  if (tool_use && out.request.messages) {
    ChatTurn turn = TRY(chat_turn(std::move(out.request), *tool_use, model, now));
    out.request = std::move(turn.request);
    out.prompt = std::move(turn.prompt);
    out.reading = std::move(turn.reading);
  } else {
    out.prompt = TRY(prompt_of(out.request, model, now));
  }
  out.prompt = TRY(place_images(out.images, model.facts, std::move(out.prompt)));
  if (out.prompt.tokens.empty()) return chat::refused("prompt", "empty", "the prompt has no tokens");
  return out;
}

void count_prompt(const Context& context, wire::SubmitRequest request, std::optional<chat::ToolUse> tool_use,
                  const base::CorrelationId& correlation_id, std::function<void(base::Result<std::size_t>)> done) {
  auto inputs = take_inputs(std::move(request), context.config->orchestratord.limits, LongOutputs::kCut);
  if (!inputs) return done(base::fail(std::move(inputs).error()));
  const std::string model = *inputs->request.model;
  find_model(context, model, Naming::kUse, correlation_id,
             [&context, inputs = *std::move(inputs), tool_use = std::move(tool_use),
              done = std::move(done)](base::Result<FoundModel> found) mutable {
               if (!found) return done(base::fail(std::move(found).error()));
               const auto prepared = prepare(std::move(inputs), tool_use, found->model, context.clock->now());
               if (!prepared) return done(base::fail(prepared.error()));
               done(prepared->prompt.tokens.size());
             });
}

}  // namespace llorch::orchestratord::http::tasks
