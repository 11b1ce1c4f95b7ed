// llorch chat: a conversation at the terminal.
#include <fmt/core.h>

#include <csignal>
#include <optional>

#include "base/process.h"
#include "cli/chat/conversation.h"
#include "cli/chat/line_editor.h"
#include "cli/commands.h"
#include "cli/models/pull.h"
#include "cli/stream/finished_job.h"
#include "cli/stream/run_job.h"
#include "cli/terminal_text.h"

namespace llorch::cli {
namespace {

constexpr std::string_view kQuotes = "\"\"\"";

void note(std::string_view text) { print_text(stderr, "{}\n", text); }

class Chat {
 public:
  Chat(const GlobalOptions& global, const RunOptions& options, Api& api)
      : global_(global), options_(options), api_(api), editor_([this] { return take_signal(); }) {}

  int run() {
    for (const std::string& path : options_.images) {
      if (const auto added = conversation_.add_image(path); !added) return report(added.error(), global_.json);
    }
    if (editor_.on_terminal()) note("/help lists what else can be typed; Ctrl-D ends.");
    bool goes_on = true;
    while (goes_on) {
      const auto typed = read_message();
      if (!typed) break;
      if (typed->empty()) continue;
      const auto command = chat::parse(*typed);
      if (!command) {
        complain(command.error());
        continue;
      }
      goes_on = carry_out(*command);
    }
    if (editor_.on_terminal()) std::fputs("\n", stdout);
    return ends_by_signal_ ? kInterrupted : code_;
  }

 private:
  int take_signal() {
    if (!between_answers_->fired()) return 0;
    const int signal = between_answers_->signal();
    between_answers_.emplace();
    ends_by_signal_ = signal != SIGINT || !editor_.on_terminal();
    return signal;
  }

  // One line, or several that belong together; absent: the input has ended.
  std::optional<std::string> read_message() {
    std::string text;
    bool in_quotes = false;
    while (true) {
      const auto line = editor_.read(text.empty() && !in_quotes ? "> " : ". ");
      if (!line) return text.empty() ? std::nullopt : std::optional(text);
      if (line->cancelled) return "";
      std::string_view part = line->text;
      if (text.empty() && !in_quotes && part.starts_with(kQuotes)) {
        in_quotes = true;
        part.remove_prefix(kQuotes.size());
      }
      const bool closes = in_quotes && part.ends_with(kQuotes);
      if (closes) part.remove_suffix(kQuotes.size());
      const bool continued = !in_quotes && part.ends_with('\\');
      if (continued) part.remove_suffix(1);
      text += part;
      if (closes || (!in_quotes && !continued)) break;
      text += '\n';
    }
    editor_.remember(text);
    return text;
  }

  bool carry_out(const chat::Command& command) {
    using chat::CommandKind;
    switch (command.kind) {
      case CommandKind::kSay: {
        const chat::Conversation before = conversation_;
        conversation_.say(command.argument);
        return ask(before);
      }
      case CommandKind::kHelp: note(chat::help()); return true;
      case CommandKind::kClear: conversation_.clear(); return true;
      case CommandKind::kSystem:
        options_.system = command.argument.empty() ? std::nullopt : std::optional(command.argument);
        return true;
      case CommandKind::kSet: accept(chat::set(command.argument, options_)); return true;
      case CommandKind::kShow: note(chat::settings(options_)); return true;
      case CommandKind::kImage:
        if (accept(conversation_.add_image(command.argument))) {
          note(fmt::format("{} shown with the next message", conversation_.images_waiting()));
        }
        return true;
      case CommandKind::kModel:
        if (!command.argument.empty()) options_.model = command.argument;
        note(options_.model);
        return true;
      case CommandKind::kUndo:
        if (!conversation_.undo()) note("there is nothing to take back");
        return true;
      case CommandKind::kRetry: {
        const chat::Conversation before = conversation_;
        if (!conversation_.take_answer_back()) return note("there is no answer yet"), true;
        options_.seed.reset();
        return ask(before);
      }
      case CommandKind::kStats: options_.stats = !options_.stats; return true;
      case CommandKind::kQuit: return false;
    }
    return false;
  }

  // The answer to what was said last; without one the conversation is what it was `before`. False: the chat is over.
  bool ask(const chat::Conversation& before) {
    wire::SubmitRequest request = stream::request_without_input(options_);
    request.messages = conversation_.messages(options_.system);
    stream::InterruptWatch interrupt;
    stream::WaitDisplay display(stream::WaitDisplay::form(global_.json), [](std::string_view text) {
      std::fwrite(text.data(), 1, text.size(), stderr);
      std::fflush(stderr);
    });
    std::string said;
    AnswerOutput answer;
    const auto print = [&](std::string_view text) {
      said += text;
      if (global_.json) return true;
      return answer.print(text);
    };
    const auto job = stream::run_job(api_, request, interrupt, print, &display);
    display.finish();
    answer.finish();
    if (!global_.json) std::fputs("\n", stdout);
    if (std::ferror(stdout) != 0) return false;
    if (job) {
      conversation_.answer(job->outcome.text);
      if (global_.json) fmt::print("{}\n", stream::as_json(*job)), std::fflush(stdout);
      if (options_.stats && !global_.json) note(stream::stats(*job));
      return true;
    }
    const bool stopped = job.error().code == base::ErrorCode::kCancelled && interrupt.fired();
    if (stopped && !said.empty()) {
      conversation_.answer(said);  // what was said stays said
    } else {
      conversation_ = before;
    }
    if (stopped) {
      ends_by_signal_ = interrupt.signal() == SIGTERM || !editor_.on_terminal();
      return !ends_by_signal_;
    }
    complain(job.error());
    return true;
  }

  void complain(const base::Error& error) {
    const int code = report(error, global_.json);
    if (!editor_.on_terminal()) code_ = code;  // a person has seen it and goes on; a program looks at the exit code
  }
  bool accept(const base::Result<>& result) {
    if (!result) complain(result.error());
    return result.has_value();
  }

  const GlobalOptions& global_;
  RunOptions options_;
  Api& api_;
  std::optional<stream::InterruptWatch> between_answers_{std::in_place};  // while one comes it has its own
  chat::LineEditor editor_;
  chat::Conversation conversation_;
  int code_ = kOk;
  bool ends_by_signal_ = false;
};

}  // namespace

int chat_with_model(const GlobalOptions& global, const RunOptions& asked) {
  auto model = model_to_run(global, asked);
  if (!model) return report(model.error(), global.json);
  RunOptions options = asked;
  options.model = *std::move(model);
  if (const auto found = models::check_name(global, options.model); !found) return report(found.error(), global.json);
  base::block_stop_signals();
  auto api = Api::connect(global);
  if (!api) return report(api.error(), global.json);
  return Chat(global, options, **api).run();
}

}  // namespace llorch::cli
