#pragma once
// A conversation as it grows, and what a person may type besides what is said. Pure.
#include <boost/json/array.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/stream/request.h"

namespace llorch::cli::chat {

enum class CommandKind : std::uint8_t {
  kSay,
  kHelp,
  kClear,
  kSystem,
  kSet,
  kShow,
  kImage,
  kModel,
  kUndo,
  kRetry,
  kStats,
  kQuit
};

struct Command {
  CommandKind kind = CommandKind::kSay;
  std::string argument;  // what stands behind the command; of kSay all that was typed
};

// What was typed: a command if it begins with a slash and a letter, else a message ("//" begins a message with one slash).
// Errors: INVALID_PARAMS for a command that does not exist, with the nearest that does.
base::Result<Command> parse(std::string_view typed);
// The commands, one a line.
std::string_view help();

// "temperature 0.2": changes `options` as the flag of `llorch run` of that name would. Errors: INVALID_PARAMS.
base::Result<> set(std::string_view setting, RunOptions& options);
// What was set, one "name value" a line.
std::string settings(const RunOptions& options);

class Conversation {
 public:
  // An image of the next message. Errors: IO_ERROR, INVALID_PARAMS.
  base::Result<> add_image(const std::string& path);
  void say(const std::string& text);
  void answer(const std::string& text);
  // Takes the last message back, with its answer; false if there is none.
  bool undo();
  // Takes the last answer back, so that it can be asked for again; false if there is none.
  bool take_answer_back();
  void clear();

  std::int64_t turns() const;  // messages of the user
  std::size_t images_waiting() const { return images_.size(); }
  // `system`: what stands before all of it.
  wire::JsonArray messages(const std::optional<std::string>& system) const;

 private:
  boost::json::array turns_;   // user and assistant in turn
  boost::json::array images_;  // parts of the next message
};

}  // namespace llorch::cli::chat
