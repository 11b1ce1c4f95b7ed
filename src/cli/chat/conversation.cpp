#include "cli/chat/conversation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/json/serialize.hpp>
#include <cctype>
#include <charconv>

#include "base/edit_distance.h"

namespace llorch::cli::chat {
namespace {

namespace bj = boost::json;
using base::ErrorCode;

struct Name {
  std::string_view word;
  CommandKind kind;
};
constexpr std::array kNames{
    Name{"help", CommandKind::kHelp}, Name{"?", CommandKind::kHelp},        Name{"clear", CommandKind::kClear},
    Name{"new", CommandKind::kClear}, Name{"system", CommandKind::kSystem}, Name{"set", CommandKind::kSet},
    Name{"show", CommandKind::kShow}, Name{"image", CommandKind::kImage},   Name{"model", CommandKind::kModel},
    Name{"undo", CommandKind::kUndo}, Name{"retry", CommandKind::kRetry},   Name{"stats", CommandKind::kStats},
    Name{"bye", CommandKind::kQuit},  Name{"exit", CommandKind::kQuit},     Name{"quit", CommandKind::kQuit}};

std::string_view trimmed(std::string_view text) {
  const auto is_space = [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

template <class T>
base::Result<T> number(std::string_view name, std::string_view text, T least, T most) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !(value >= least && value <= most)) {
    return base::fail(ErrorCode::kInvalidParams, fmt::format("{} takes a number from {} to {}", name, least, most));
  }
  return value;
}

template <class T>
void add(std::string& out, std::string_view name, const std::optional<T>& value) {
  if (value) out += fmt::format("{} {}\n", name, *value);
}

}  // namespace

base::Result<Command> parse(std::string_view typed) {
  if (!typed.starts_with('/')) return Command{CommandKind::kSay, std::string(typed)};
  if (typed.starts_with("//")) return Command{CommandKind::kSay, std::string(typed.substr(1))};
  const std::string_view word = typed.substr(1, typed.find_first_of(" \t\n") - 1);
  for (const Name& name : kNames) {
    if (name.word == word) return Command{name.kind, std::string(trimmed(typed.substr(1 + word.size())))};
  }
  const auto nearest =
      std::ranges::min_element(kNames, {}, [&](const Name& name) { return base::edit_distance(word, name.word); });
  return base::fail(
      ErrorCode::kInvalidParams,
      fmt::format("/{} is no command; did you mean /{}? /help lists them, and a message that begins with a slash is "
                  "typed with two",
                  word, nearest->word));
}

std::string_view help() {
  return "/help               this list\n"
         "/clear              begin a new conversation\n"
         "/system TEXT        what the model is told before all; nothing takes it back\n"
         "/set NAME VALUE     temperature, top_p, top_k, min_p, seed, max_tokens\n"
         "/show               what is set\n"
         "/image FILE         show a PNG or JPEG file with the next message\n"
         "/model NAME         go on with another model\n"
         "/undo               take the last message and its answer back\n"
         "/retry              ask for the last answer again, with another seed\n"
         "/stats              say after each answer how long it took, or no more\n"
         "/bye                end; so do Ctrl-D and /exit\n"
         "\"\"\"                 begins and ends a message of several lines; so does a backslash at the end of a line\n"
         "Ctrl-C              stop the answer, or drop what is typed\n";
}

base::Result<> set(std::string_view setting, RunOptions& options) {
  const std::size_t space = setting.find_first_of(" \t");
  const std::string_view name = setting.substr(0, space);
  const std::string_view value = space == std::string_view::npos ? "" : trimmed(setting.substr(space));
  if (name == "temperature") {
    options.temperature = TRY(number(name, value, 0.0, 2.0));
  } else if (name == "top_p") {
    options.sampling.top_p = TRY(number(name, value, 0.0, 1.0));
  } else if (name == "top_k") {
    options.sampling.top_k = TRY(number<std::int64_t>(name, value, 0, 10'000'000));
  } else if (name == "min_p") {
    options.sampling.min_p = TRY(number(name, value, 0.0, 1.0));
  } else if (name == "seed") {
    options.seed = TRY(number<std::uint64_t>(name, value, 0, (std::uint64_t{1} << 53) - 1));
  } else if (name == "max_tokens") {
    options.max_tokens = TRY(number<std::int64_t>(name, value, 1, 1'000'000));
  } else {
    return base::fail(ErrorCode::kInvalidParams,
                      "/set takes temperature, top_p, top_k, min_p, seed or max_tokens, and its value");
  }
  return {};
}

std::string settings(const RunOptions& options) {
  std::string out = fmt::format("model {}\n", options.model);
  add(out, "system", options.system);
  add(out, "temperature", options.temperature);
  const wire::SamplingRequest defaults;
  const auto changed = [](auto value, auto usual) { return value == usual ? std::nullopt : std::optional(value); };
  add(out, "top_p", changed(options.sampling.top_p, defaults.top_p));
  add(out, "top_k", changed(options.sampling.top_k, defaults.top_k));
  add(out, "min_p", changed(options.sampling.min_p, defaults.min_p));
  add(out, "seed", options.seed);
  add(out, "max_tokens", options.max_tokens);
  return out;
}

base::Result<> Conversation::add_image(const std::string& path) {
  images_.push_back(TRY(stream::image_part(path)));
  return {};
}

void Conversation::say(const std::string& text) {
  bj::value content(text);
  if (!images_.empty()) {
    images_.push_back(bj::object{{"type", "text"}, {"text", text}});
    content = std::exchange(images_, {});
  }
  turns_.push_back(bj::object{{"role", "user"}, {"content", std::move(content)}});
}

void Conversation::answer(const std::string& text) {
  turns_.push_back(bj::object{{"role", "assistant"}, {"content", text}});
}

bool Conversation::undo() {
  if (turns_.empty()) return false;
  take_answer_back();
  turns_.pop_back();
  return true;
}

bool Conversation::take_answer_back() {
  if (turns_.empty() || turns_.back().as_object().at("role") != "assistant") return false;
  turns_.pop_back();
  return true;
}

void Conversation::clear() {
  turns_.clear();
  images_.clear();
}

std::int64_t Conversation::turns() const {
  return std::ranges::count_if(turns_, [](const bj::value& turn) { return turn.as_object().at("role") == "user"; });
}

wire::JsonArray Conversation::messages(const std::optional<std::string>& system) const {
  bj::array all;
  if (system) all.push_back(bj::object{{"role", "system"}, {"content", *system}});
  all.insert(all.end(), turns_.begin(), turns_.end());
  return wire::JsonArray{bj::serialize(all)};
}

}  // namespace llorch::cli::chat
